package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kubeslot/kubeslot/types"
)

// The file is read anew each time: a GPU is partitioned, and whole again.
func TestFile(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("STATE_DIR", dir)
	t.Setenv("MIG_STRATEGY", "mixed")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "fakegpu"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, wrong := range []string{"none of these\n", "one\nmig 0 2g.3gb\n", "one\nlost\n", "one\nmig x\n"} {
		write(wrong)
		if _, err := CreateDevicePlugin(); err == nil {
			t.Errorf("%q was taken", wrong)
		}
	}
	write("dgx-a100\nmig 1 3g.20gb 3g.20gb\n")
	d, err := CreateDevicePlugin()
	if err == nil {
		err = d.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	check := func(gpus, slices int64) {
		t.Helper()
		info := types.NewNodeInfo()
		if err := d.UpdateNodeInfo(info); err != nil {
			t.Fatal(err)
		}
		if got := info.KubeAlloc; got["nvidia.com/gpu"] != gpus || got["nvidia.com/mig-3g.20gb"] != slices {
			t.Errorf("%v, want %d GPUs and %d slices", got, gpus, slices)
		}
	}
	check(7, 2)
	write("dgx-a100\nlost 0\nmig 1 3g.20gb\n")
	check(6, 1)
	write("dgx-a100\nlost 0\nmig 1 3g.")
	check(6, 1)
	write("dgx-a100\n")
	check(8, 0)
}
