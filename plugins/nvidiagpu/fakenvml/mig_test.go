package fakenvml

import (
	"slices"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// uuids are those of the GPU's slices, by NVML's functions.
func uuids(t *testing.T, gpu nvml.Device) []string {
	t.Helper()
	var all []string
	n, _ := gpu.GetMaxMigDeviceCount()
	for i := range n {
		s, code := gpu.GetMigDeviceHandleByIndex(i)
		if code == nvml.ERROR_NOT_FOUND {
			continue
		}
		uuid, code := s.GetUUID()
		if code != nvml.SUCCESS {
			t.Fatal(code)
		}
		all = append(all, uuid)
	}
	return all
}

// A GPU is partitioned and partitioned anew: what stays keeps its handle and UUID.
func TestSlice(t *testing.T) {
	m := New(Layouts["dgx-b200"])
	gpu, _ := m.DeviceGetHandleByIndex(3)
	if err := m.Slice(3, "1g.23gb.me", "3g.90gb", "1g.23gb"); err != nil {
		t.Fatal(err)
	}
	if mode, _, _ := gpu.GetMigMode(); mode != nvml.DEVICE_MIG_ENABLE {
		t.Error("not in MIG mode")
	}
	var labels []string
	for _, uuid := range uuids(t, gpu) {
		labels = append(labels, Label(uuid))
	}
	if want := []string{"3:0", "3:1", "3:4"}; !slices.Equal(labels, want) {
		t.Errorf("%v, want %v", labels, want)
	}
	before := uuids(t, gpu)
	old, _ := gpu.GetMigDeviceHandleByIndex(1)
	for _, wrong := range [][]string{{"7g.180gb", "1g.23gb"}, {"1g.5gb"}} {
		if err := m.Slice(3, wrong...); err == nil || !slices.Equal(uuids(t, gpu), before) {
			t.Errorf("%v: %v, %v", wrong, err, uuids(t, gpu))
		}
	}
	if err := m.Slice(3, "1g.23gb.me", "3g.90gb"); err != nil {
		t.Fatal(err)
	}
	if now := uuids(t, gpu); !slices.Equal(now, []string{before[0], before[2]}) {
		t.Errorf("before %v, now %v", before, now)
	}
	if _, code := old.GetUUID(); code == nvml.SUCCESS {
		t.Error("a slice that is gone answers")
	}
	m.Partition(3, false)
	if now := uuids(t, gpu); now != nil {
		t.Error(now)
	}
}
