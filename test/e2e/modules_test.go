package e2e

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/mod/module"
	modzip "golang.org/x/mod/zip"

	"github.com/kubeslot/kubeslot/deploy/gobuild"
)

// release is the version of the modules as the test publishes them, which go.mod requires of types.
const release = "v0.2.0"

// Somebody else's program has Kubeslot's types from a module proxy, without a line of this tree
// or of k8s.io/kubernetes; kubectl-kubeslot and the discovery handlers are installed from there.
func TestModulesOfARelease(t *testing.T) {
	testAll(t, "compiles the client libraries as somebody else's program has them")
	r := newRig(t)
	proxy := t.TempDir()
	r.check(publish(proxy, "github.com/kubeslot/kubeslot/types", "types"))
	r.check(publish(proxy, "github.com/kubeslot/kubeslot", "."))
	bin := t.TempDir()
	run := func(dir string, args ...string) string {
		r.Helper()
		cmd := exec.CommandContext(r.ctx, args[0], args[1:]...)
		cmd.Dir, cmd.Env = dir, append(moduleEnvironment(t, proxy), "GOBIN="+bin, "KUBECONFIG="+shared.Kubeconfig())
		var said bytes.Buffer
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil {
			r.Fatalf("%v: %v\n%s%s", args, err, out, &said)
		}
		return string(out)
	}

	program := t.TempDir()
	source, err := os.ReadFile("testdata/outside/main.go")
	r.check(err)
	r.check(os.WriteFile(filepath.Join(program, "main.go"), source, 0o644))
	run(program, "go", "mod", "init", "example.com/outside")
	run(program, "go", "get", "github.com/kubeslot/kubeslot/types@"+release)
	run(program, "go", "build", "-mod=mod", "-o", "outside")
	if modules := run(program, "go", "list", "-m", "all"); strings.Contains(modules, "k8s.io/kubernetes ") ||
		strings.Contains(modules, "github.com/kubeslot/kubeslot ") {
		t.Errorf("a program that imports the types depends on\n%s", modules)
	}
	r.create(newPod("seen", "", map[string]int64{"outside": 1}))
	if out, want := run(program, "./outside", r.ns, "seen"),
		regexp.MustCompile(`^main outside outside-[0-9a-f]{6}-[01]\n$`); !want.MatchString(out) {
		t.Errorf("the program says %q, want %s", out, want)
	}
	r.awaitRunning("seen")

	for _, pkg := range []string{"kubectl-kubeslot/cmd/kubectl-kubeslot", "discovery/cmd/..."} {
		run(program, "go", "install", "github.com/kubeslot/kubeslot/"+pkg+"@"+release)
	}
	if out := run(bin, "./kubectl-kubeslot", "pod", "seen", "-n", r.ns); !strings.Contains(out, "outside-") {
		t.Errorf("kubectl-kubeslot that go installed says %s", out)
	}
}

// publish puts a module of the repository, as its files are now, into a folder that is a module proxy.
func publish(proxy, path, dir string) error {
	root := shared.Config().RepoRoot
	list := exec.Command("git", "ls-files", "-z", "-co", "--exclude-standard", ".")
	list.Dir = filepath.Join(root, dir)
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("list the files of %s: %w", dir, err)
	}
	var files []modzip.File
	for _, name := range strings.Split(strings.TrimRight(string(out), "\x00"), "\x00") {
		if file := (moduleFile{list.Dir, name}); file.exists() { // git knows it until its deletion is committed
			files = append(files, file)
		}
	}
	at := filepath.Join(proxy, path, "@v")
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	packed, err := os.Create(filepath.Join(at, release+".zip"))
	if err != nil {
		return err
	}
	defer packed.Close()
	if err := modzip.Create(packed, module.Version{Path: path, Version: release}, files); err != nil {
		return fmt.Errorf("pack %s: %w", path, err)
	}
	mod, err := os.ReadFile(filepath.Join(list.Dir, "go.mod"))
	if err != nil {
		return err
	}
	for name, text := range map[string]string{
		"list": release + "\n", release + ".info": fmt.Sprintf(`{"Version":%q,"Time":"2026-01-01T00:00:00Z"}`, release), release + ".mod": string(mod)} {
		if err := os.WriteFile(filepath.Join(at, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// moduleFile is a file of a module: its folder, and the path in it.
type moduleFile struct{ dir, path string }

func (f moduleFile) Path() string                 { return f.path }
func (f moduleFile) Lstat() (os.FileInfo, error)  { return os.Lstat(filepath.Join(f.dir, f.path)) }
func (f moduleFile) Open() (io.ReadCloser, error) { return os.Open(filepath.Join(f.dir, f.path)) }

func (f moduleFile) exists() bool {
	_, err := f.Lstat()
	return err == nil
}

// moduleEnvironment has the go tool take our modules from the proxy, others from this machine's
// cache of modules before it asks whom it always asks, and keep them in a folder of their own. The
// flags are the repository's, so that what was compiled for it is not compiled again.
func moduleEnvironment(t *testing.T, proxy string) []string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		t.Fatal(err)
	}
	has := strings.Fields(string(out))
	return append(
		os.Environ(),
		"GOWORK=off",
		"CGO_ENABLED=0",
		"GOMODCACHE="+t.TempDir(),
		"GOSUMDB=off", // of a release that is in no log
		"GOPROXY=file://"+proxy+",file://"+has[0]+"/cache/download,"+has[1],
		"GOFLAGS=-modcacherw -trimpath -buildvcs=false -tags=netgo,osusergo '"+gobuild.CompilerFlags(os.Environ())+"'",
	)
}
