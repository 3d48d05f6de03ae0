package node

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/gpu"
	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/nvmllink"
)

// TestRealGPU reads this machine's GPUs, if it has any.
func TestRealGPU(t *testing.T) {
	if err := nvmllink.Load(nvmllink.Library); err != nil {
		t.Skipf("this machine has no NVIDIA driver: %v", err)
	}
	d := NewDevice(nvml.New(), noLoad)
	d.cdiFolders = nil
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	t.Log(d.told)
	for _, g := range d.gpus {
		now := conditionOf(g.handle)
		t.Logf("%s: %+v", g.UUID, now)
		if !(&fault{absent: true}).healed(now) {
			t.Logf("%s would not count as well again", g.UUID)
		}
	}
	if len(d.units) == 0 {
		t.Skipf("this machine has a driver and no GPU that can be given out: %s", d.told)
	}
	nodes, err := filepath.Glob("/dev/nvidia[0-9]*")
	if err != nil || len(nodes) < len(d.gpus) {
		t.Errorf("%d GPUs, and %v, %v", len(d.gpus), nodes, err)
	}
	info := update(t, d)
	free := gpu.Free(info.Allocatable, nil, gpu.DefaultKind)
	if int64(len(free)) != info.KubeCap[gpu.Resource] || len(free) != len(d.units) {
		t.Errorf("%d GPUs in groups, nvidia.com/gpu %d, found %d", len(free), info.KubeCap[gpu.Resource], len(d.units))
	}
	for _, g := range free {
		if !strings.HasPrefix(g.UUID, "GPU-") || g.Memory < 1<<30 || g.Node == "" || g.Clique == "" {
			t.Errorf("%+v", g)
		}
		if _, _, env, err := d.Allocate(nil, given(g.UUID)); err != nil || env[visibleDevices] != g.UUID {
			t.Error(env, err)
		}
	}
}
