package deviceplugins

import (
	"fmt"
	"testing"

	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubeslot/kubeslot/plugins/example/widget"
	"github.com/kubeslot/kubeslot/types"
)

// BenchmarkFilter is Filter of one node, by how much the node has and how much of
// that is asked for.
func BenchmarkFilter(b *testing.B) {
	for _, size := range []int{8, 64} {
		for _, asked := range []int64{1, 8} {
			b.Run(fmt.Sprintf("widgets=%d/asked=%d", size, asked), func(b *testing.B) {
				r := newRig(b, widget.Scheduler{})
				info := types.NewNodeInfo()
				for i := range size {
					types.AddGroupResource(info.Allocatable, fmt.Sprintf("board/%d/widget/%d/cards", i/8, i), 1)
				}
				if err := r.cache.host.AddNode("a", info); err != nil {
					b.Fatal(err)
				}
				pod := &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{"main": {KubeRequests: types.ResourceList{widget.Resource: asked}}}}
				state := framework.NewCycleState()
				state.Write(stateKey, &cycle{req: &request{pod: pod, asked: list(pod)}})
				c := readCycle(state)
				judge := func() verdict { return r.cache.judge("a", r.node(c, "a"), c.req, c.ask) }
				if v := judge(); !v.fits() {
					b.Fatal(v)
				}
				b.ReportAllocs()
				for b.Loop() {
					judge()
				}
			})
		}
	}
}
