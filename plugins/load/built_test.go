package load

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
)

// built holds the plugins that tests share: to link one takes seconds.
var built struct {
	sync.Mutex
	dir   string
	files map[string]string
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "load")
	if err != nil {
		panic(err)
	}
	built.dir, built.files = dir, map[string]string{}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// build builds testdata/src/<name> as a plugin with this test binary's flags
// and those given.
func build(t *testing.T, name string, flags ...string) string {
	t.Helper()
	key := name + strings.Join(flags, "")
	built.Lock()
	defer built.Unlock()
	if file, ok := built.files[key]; ok {
		return file
	}
	if testing.CoverMode() != "" {
		t.Skip("coverage changes this binary's packages: no plugin matches it")
	}
	needGCC(t)
	info, _ := debug.ReadBuildInfo()
	for _, key := range []string{"-race", "-trimpath"} {
		if setting(info, key) == "true" {
			flags = append(flags, key)
		}
	}
	file := filepath.Join(built.dir, strings.NewReplacer("/", "_", "=", "_").Replace(key)+".so")
	goBuild(t, file, "./testdata/src/"+name, append(flags, "-buildmode=plugin")...)
	built.files[key] = file
	return file
}

func goBuild(t *testing.T, file, pkg string, flags ...string) {
	t.Helper()
	cmd := exec.Command("go", append(append([]string{"build", "-o", file}, flags...), pkg)...)
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
}

func needGCC(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is not on PATH: no plugin can be built")
	}
}

// overlay returns a flag that builds with the file, of this module, replaced.
func overlay(t *testing.T, file, text string) string {
	t.Helper()
	real, err := filepath.Abs(filepath.Join("../..", file))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	other := write(t, filepath.Join(dir, "other.go"), text)
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{real: other}})
	if err != nil {
		t.Fatal(err)
	}
	return "-overlay=" + write(t, filepath.Join(dir, "overlay.json"), string(list))
}

func write(t *testing.T, file, text string) string {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// folder returns a folder with links of the given names to the files.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, file := range files {
		if err := os.Symlink(file, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
