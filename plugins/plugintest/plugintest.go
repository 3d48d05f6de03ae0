// Package plugintest builds plugins that the running test binary can load.
package plugintest

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"sync"
	"testing"

	"github.com/kubeslot/kubeslot/test/need"
)

// Build builds the package, named as for go build, as a plugin into the file, with
// the test binary's flags and those given. It ends the test where no plugin can
// be built.
func Build(t testing.TB, file, pkg string, flags ...string) {
	t.Helper()
	if testing.CoverMode() != "" {
		t.Skip("coverage changes this binary's packages: no plugin matches it")
	}
	NeedGCC(t)
	info, _ := debug.ReadBuildInfo()
	for _, s := range info.Settings {
		if s.Key == "-race" && s.Value == "true" && testing.Short() {
			t.Skip("builds all that a plugin imports with -race: make test-all")
		}
		if (s.Key == "-race" || s.Key == "-trimpath") && s.Value == "true" {
			flags = append(flags, s.Key)
		}
	}
	Go(t, append(append([]string{"build", "-buildmode=plugin", "-o", file}, flags...), pkg)...)
	// As the loader wants it, whatever the umask.
	for path, mode := range map[string]os.FileMode{file: 0o644, filepath.Dir(file): 0o755} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
}

// Go runs the go tool, with cgo, in the test's folder.
func Go(t testing.TB, args ...string) {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "GOWORK=", "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
}

// NeedGCC ends the test where there is none: see package need.
func NeedGCC(t testing.TB) {
	t.Helper()
	need.Program(t, "no plugin can be built: apt-get install gcc", "gcc")
}

var ran sync.Map // names of tests

// Once skips the test when it runs again in this process (-count): Go takes a plugin
// that is built again for a copy of the one that it has loaded, and loads neither.
func Once(t testing.TB) {
	t.Helper()
	if _, again := ran.LoadOrStore(t.Name(), true); again {
		t.Skip("a process loads a plugin once")
	}
}
