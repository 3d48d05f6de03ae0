package build

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestRequiredVersion(t *testing.T) {
	goMod := []byte("module x\n\nrequire a.example/one v1.0.0\nrequire (\n\ta.example/two/v2 v2.1.0 // indirect\n)\n")
	for module, want := range map[string]string{"a.example/one": "v1.0.0", "a.example/two/v2": "v2.1.0", "a.example/two": ""} {
		if got := RequiredVersion(goMod, module); got != want {
			t.Errorf("%s: %q, want %q", module, got, want)
		}
	}
}

func TestNamesOfPrograms(t *testing.T) {
	for pkg, want := range map[string]string{"go.etcd.io/etcd/server/v3": "server", "./test/demo": "demo", "a.example/v": "v", "a.example/vx": "vx"} {
		if got := fileOf(pkg); got != want {
			t.Errorf("%s: %q, want %q", pkg, got, want)
		}
	}
}

// A build says how far it is, and guesses what is left by what it took so far.
func TestDescribe(t *testing.T) {
	all := work{"a": 1 << 20, "b": 2 << 20, "c": 1 << 20}
	for _, c := range []struct {
		work       work
		compiled   []string
		downloaded int
		want       string
	}{
		{nil, nil, 0, "building for 10s, 0 packages compiled"},
		{nil, []string{"x"}, 3, "building for 10s, 3 modules fetched, 1 packages compiled"},
		{all, nil, 0, "building for 10s: 0 %, 0 of 3 packages, about 8s left"},
		{all, []string{"a", "elsewhere"}, 0, "building for 10s: 25 %, 1 of 3 packages, about 30s left"},
		{all, []string{"a", "b", "c"}, 0, "building for 10s: linking"},
		{work{}, nil, 0, "building for 10s: linking"},
	} {
		compiled := map[string]bool{}
		for _, pkg := range c.compiled {
			compiled[pkg] = true
		}
		if got := describe(c.work, compiled, c.downloaded, 10*time.Second); got != c.want {
			t.Errorf("%v of %v: %q, want %q", c.compiled, c.work, got, c.want)
		}
	}
}

// module is a Go module of one program.
func module(t *testing.T, goMod, program string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{"go.mod": goMod, "main.go": program} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestBuildThatFailsSaysWhy(t *testing.T) {
	root := module(t, "module a.example/one\n\ngo 1.26\n", "package main\n\nfunc main() { undefined() }\n")
	err := goBuild(t.Context(), root, []string{"CGO_ENABLED=0"}, io.Discard, Flags(), []string{"."})
	if err == nil || !strings.Contains(err.Error(), "undefined: undefined") {
		t.Errorf("error %v, want the compiler's", err)
	}
}

// If the module proxy cannot be reached, the error names the module and what to set.
func TestProxyThatCannotBeReached(t *testing.T) {
	t.Setenv("GOPROXY", "http://127.0.0.1:1")
	t.Setenv("GOMODCACHE", t.TempDir())
	t.Setenv("GONOSUMDB", "*")
	t.Setenv("GONOSUMCHECK", "1")
	t.Setenv("GOFLAGS", "-modcacherw")
	root := module(t, "module a.example/one\n\ngo 1.26\n\nrequire b.example/two v1.2.3\n",
		"package main\n\nimport _ \"b.example/two\"\n\nfunc main() {}\n")
	err := goBuild(t.Context(), root, []string{"CGO_ENABLED=0"}, io.Discard, append(Flags(), "-mod=mod"), []string{"."})
	for _, want := range []string{"b.example/two@v1.2.3", "set GOPROXY", "http://127.0.0.1:1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
}

// A build that is interrupted leaves nothing behind but what it has compiled, and says so.
func TestInterruptedBuild(t *testing.T) {
	t.Setenv("GOCACHE", t.TempDir())
	root := module(t, goMod, "package main\n\nimport _ \"fmt\"\n\nfunc main() {}\n")
	work := filepath.Join(root, "_output/cluster/.work")
	if err := os.MkdirAll(filepath.Join(work, "of-a-build-that-was-killed"), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for ctx.Err() == nil { // until go compiles something
			if begun, _ := filepath.Glob(filepath.Join(work, "go-build*", "*", "_pkg_.a")); len(begun) > 0 {
				cancel()
			}
			time.Sleep(time.Millisecond)
		}
	}()
	_, err := Programs{Root: root, Packages: []string{"a.example/one"}, Out: io.Discard}.Run(ctx)
	cancel()
	<-stopped
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "the next run goes on from there") {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(work); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is there: %v", work, err)
	}
}

func TestLinesOfALog(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out)
	p.plan(work{"a": 100, "b": 100})
	p.compiling("a")
	p.show()
	p.stop()
	p.show() // too late to be seen
	if got := strings.Split(out.String(), "\n"); len(got) != 3 || !strings.Contains(got[0], "1 of 2 packages") || !strings.HasPrefix(got[1], "built in ") {
		t.Errorf("%q", got)
	}
}

func TestLockIsHeldByOne(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	unlock, err := Lock(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Lock(ctx, file); err == nil || !strings.Contains(err.Error(), "held by another") {
		t.Errorf("taken twice: %v", err)
	}
	unlock()
	again, err := Lock(ctx, file)
	if err != nil {
		t.Fatal(err)
	}
	again()
}

// Tests name the repository as they see it, such as "../..".
// goMod has what Programs wants.
const goMod = "module a.example/one\n\ngo 1.26\n\nrequire (\n\tk8s.io/kubernetes v1.37.2\n\tgithub.com/containerd/containerd/v2 v2.3.7\n\tgithub.com/opencontainers/runc v1.4.3\n)\n"

func TestRootMayBeRelative(t *testing.T) {
	root := module(t, goMod, "package main\n\nfunc main() {}\n")
	below := filepath.Join(root, "a", "b")
	if err := os.MkdirAll(below, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(below)
	built, err := Programs{Root: "../..", Packages: []string{"a.example/one"}, Out: io.Discard}.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(root, "_output/cluster/one"); built["a.example/one"] != want {
		t.Errorf("built as %s, want %s", built["a.example/one"], want)
	}
	if _, err := os.Stat(built["a.example/one"]); err != nil {
		t.Error(err)
	}
}
