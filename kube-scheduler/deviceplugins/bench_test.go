package deviceplugins

import (
	"fmt"
	"testing"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/device-scheduler/host"
	"github.com/kubeslot/kubeslot/plugins/example/widget"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
)

// BenchmarkFilter is Filter of one node, by how much the node has and how much of
// that is asked for.
func BenchmarkFilter(b *testing.B) {
	for _, size := range []int{8, 64} {
		for _, asked := range []int64{1, 8} {
			b.Run(fmt.Sprintf("widgets=%d/asked=%d", size, asked), func(b *testing.B) {
				h, err := host.New([]devicescheduler.DeviceScheduler{widget.Scheduler{}}, host.Options{})
				if err != nil {
					b.Fatal(err)
				}
				info := types.NewNodeInfo()
				for i := range size {
					types.AddGroupResource(info.Allocatable, fmt.Sprintf("board/%d/widget/%d/cards", i/8, i), 1)
				}
				if err := h.AddNode("a", info); err != nil {
					b.Fatal(err)
				}
				a := newDeviceCache(klog.Background(), h, newTrouble(klog.Background()), nil, clock.RealClock{})
				p := &Plugin{cache: a}
				pod := &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{"main": {KubeRequests: types.ResourceList{widget.Resource: asked}}}}
				state := framework.NewCycleState()
				state.Write(stateKey, &cycle{req: &request{pod: pod, asked: list(pod)}})
				v := a.judge("a", p.node(readCycle(state), "a"), readCycle(state).req)
				if !v.fits() {
					b.Fatal(v)
				}
				b.ReportAllocs()
				for b.Loop() {
					a.judge("a", p.node(readCycle(state), "a"), readCycle(state).req)
				}
			})
		}
	}
}
