package load

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/kubeslot/kubeslot/plugins/plugintest"
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
	file := filepath.Join(built.dir, strings.NewReplacer("/", "_", "=", "_").Replace(key)+".so")
	plugintest.Build(t, file, "./testdata/src/"+name, flags...)
	built.files[key] = file
	return file
}

func goBuild(t *testing.T, file, pkg string, flags ...string) {
	t.Helper()
	plugintest.Go(t, append(append([]string{"build", "-o", file}, flags...), pkg)...)
}

func needGCC(t *testing.T) {
	t.Helper()
	plugintest.NeedGCC(t)
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
