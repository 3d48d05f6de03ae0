package nvmllink_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/nvmllink"
	"github.com/kubeslot/kubeslot/plugins/plugintest"
)

// An NVML of 3 GPUs that has few functions, and calls one of its own by name.
const library = `
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return code == 13 ? "not found" : "another"; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 3; return 0; }
int nvmlSystemGetCudaDriverVersion(int *v) { unsigned n; nvmlDeviceGetCount_v2(&n); *v = (int)n; return 0; }
`

// loaded is set when this process has loaded the library.
var loaded atomic.Bool

// go-nvml reaches the library's functions, and is told of those that it lacks.
func TestLoad(t *testing.T) {
	if loaded.Swap(true) {
		t.Skip("a process loads one library, which the run before has done")
	}
	plugintest.NeedGCC(t)
	dir := t.TempDir()
	c, so := filepath.Join(dir, "nvml.c"), filepath.Join(dir, "libnvidia-ml.so.1")
	if err := os.WriteFile(c, []byte(library), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", so, c).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	if err := nvmllink.Load(filepath.Join(dir, "none")); err == nil || !strings.Contains(err.Error(), "none") {
		t.Error(err)
	}
	for range 2 {
		if err := nvmllink.Load(so); err != nil {
			t.Fatal(err)
		}
	}
	lib := nvml.New(nvml.WithLibraryPath(so))
	if code := lib.Init(); code != nvml.SUCCESS {
		t.Fatal(code)
	}
	if n, code := lib.DeviceGetCount(); n != 3 || code != nvml.SUCCESS {
		t.Error(n, code)
	}
	if n, code := lib.SystemGetCudaDriverVersion(); n != 3 || code != nvml.SUCCESS {
		t.Error(n, code)
	}
	if _, code := lib.SystemGetNVMLVersion(); code != nvml.ERROR_FUNCTION_NOT_FOUND || nvml.ErrorString(code) != "not found" {
		t.Error(code, nvml.ErrorString(code))
	}
	if code := lib.Shutdown(); code != nvml.SUCCESS {
		t.Error(code)
	}
}
