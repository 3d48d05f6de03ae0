package nvidiagpu

import (
	"fmt"
	"testing"

	"github.com/kubeslot/kubeslot/device-scheduler/host"
	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/fakenvml"
	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/gpu"
	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/node"
	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/schedule"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
)

// What asking one node costs in Filter, calls of plugins and group scheduler
// included.
func BenchmarkFits(b *testing.B) {
	for _, layout := range []string{"two-cliques", "pcie"} {
		info := types.NewNodeInfo()
		device := node.NewDevice(fakenvml.New(fakenvml.Layouts[layout]), func() error { return nil })
		h, err := host.New([]devicescheduler.DeviceScheduler{schedule.Scheduler{}}, host.Options{})
		if err != nil {
			b.Fatal(err)
		}
		if err := device.UpdateNodeInfo(info); err != nil {
			b.Fatal(err)
		}
		if err := h.AddNode("node", info); err != nil {
			b.Fatal(err)
		}
		for _, n := range []int64{1, 7} {
			pod := &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{"main": {KubeRequests: types.ResourceList{gpu.Resource: n}}}}
			b.Run(fmt.Sprintf("%s/gpus=%d", layout, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if fit := h.Fits(h.Node("node"), pod); !fit.OK {
						b.Fatal(fit)
					}
				}
			})
		}
	}
}
