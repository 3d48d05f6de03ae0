package node

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// The names are NVIDIA's, for what NVML says of real GPUs.
func TestProfileName(t *testing.T) {
	for want, c := range map[string]struct {
		total, memory uint64 // MiB
		compute, gpu  uint32 // slices
		suffix        string
	}{
		"1g.5gb":        {40536, 4864, 1, 1, ""},
		"1g.10gb":       {81559, 9984, 1, 1, ""},
		"1g.20gb":       {81559, 20096, 1, 1, ""},
		"3g.40gb":       {81559, 40448, 3, 3, ""},
		"1c.3g.40gb":    {81559, 40448, 1, 3, ""},
		"7g.80gb":       {81559, 81152, 7, 7, ""},
		"1g.18gb":       {143771, 16384, 1, 1, ""},
		"7g.141gb":      {143771, 143360, 7, 7, ""},
		"1g.23gb.me":    {183359, 22144, 1, 1, ".me"},
		"2g.48gb-me":    {97887, 48512, 2, 2, "-me"},
		"1g.0gb.me.all": {0, 0, 1, 1, ".me.all"},
	} {
		a := nvml.DeviceAttributes{
			MemorySizeMB: c.memory, ComputeInstanceSliceCount: c.compute, GpuInstanceSliceCount: c.gpu,
		}
		if got := profileName(a, c.total<<20, c.suffix); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestHealed(t *testing.T) {
	for name, c := range map[string]struct {
		fault fault
		now   condition
		want  bool
	}{
		"does not answer":             {fault{}, condition{}, false},
		"answers as before":           {fault{}, condition{answers: true}, false},
		"answers again":               {fault{absent: true}, condition{answers: true}, true},
		"answers again, with errors":  {fault{absent: true}, condition{answers: true, errors: 1}, false},
		"answers again, to be reset":  {fault{absent: true}, condition{answers: true, remapping: true}, false},
		"counts are 0 again":          {fault{errors: 2}, condition{answers: true}, true},
		"counts, rows to be replaced": {fault{errors: 2}, condition{answers: true, remapping: true}, false},
		"nothing is to be done":       {fault{errors: 2}, condition{answers: true, recoveryKnown: true, errors: 2}, true},
		"a reset is to be done": {fault{absent: true}, condition{
			answers: true, recoveryKnown: true, recovery: nvml.GPU_RECOVERY_ACTION_GPU_RESET,
		}, false},
	} {
		if got := c.fault.healed(c.now); got != c.want {
			t.Errorf("%s: healed: %v", name, got)
		}
	}
	f := &fault{}
	if f.healed(condition{}) || !f.healed(condition{answers: true}) {
		t.Error("that it did not answer is not remembered")
	}
}
