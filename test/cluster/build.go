package cluster

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// upstream is a set of programs of one pinned module, see folder upstream.
type upstream struct {
	// name is the build's, in the cache; dir's by default.
	name string
	// dir is the nested module's folder in upstream.
	dir string
	// module's version in that go.mod names the build.
	module   string
	programs map[string]string // name: main package
	tags     string
	// ldflags may hold %s for the version.
	ldflags string
	// cgo is set for runc, whose namespace setup is written in C.
	cgo bool
}

// kubernetesVersion are the ldflags of Kubernetes' programs of a minor version.
func kubernetesVersion(minor string) string {
	return "-X k8s.io/component-base/version.gitVersion=%[1]s" +
		" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=" + minor +
		" -X k8s.io/client-go/pkg/version.gitVersion=%[1]s" +
		" -X k8s.io/client-go/pkg/version.gitMajor=1 -X k8s.io/client-go/pkg/version.gitMinor=" + minor
}

var upstreams = []upstream{
	{
		dir: "etcd", module: "go.etcd.io/etcd/server/v3",
		programs: map[string]string{"etcd": "go.etcd.io/etcd/server/v3"},
	},
	{
		dir: "runc", module: "github.com/opencontainers/runc", cgo: true,
		programs: map[string]string{"runc": "github.com/opencontainers/runc"},
		ldflags:  "-X main.version=%s",
	},
	{
		dir: "cni", module: "github.com/containernetworking/plugins",
		programs: map[string]string{
			"ptp":        "github.com/containernetworking/plugins/plugins/main/ptp",
			"loopback":   "github.com/containernetworking/plugins/plugins/main/loopback",
			"host-local": "github.com/containernetworking/plugins/plugins/ipam/host-local",
		},
	},
	{
		dir: "containerd", module: "github.com/containerd/containerd/v2",
		programs: map[string]string{
			"containerd":              "github.com/containerd/containerd/v2/cmd/containerd",
			"containerd-shim-runc-v2": "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
			"ctr":                     "github.com/containerd/containerd/v2/cmd/ctr",
		},
		tags:    "no_btrfs no_devmapper no_zfs",
		ldflags: "-X github.com/containerd/containerd/v2/version.Version=%s",
	},
	{
		dir: "kubernetes", module: "k8s.io/kubernetes",
		programs: map[string]string{
			"kube-apiserver":          "k8s.io/kubernetes/cmd/kube-apiserver",
			"kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
			"kube-scheduler":          "k8s.io/kubernetes/cmd/kube-scheduler",
			"kubectl":                 "k8s.io/kubernetes/cmd/kubectl",
			"kubelet":                 "k8s.io/kubernetes/cmd/kubelet",
		},
		ldflags: kubernetesVersion("36"),
	},
}

// cacheDir holds the built programs of every pinned version.
func cacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("cache for built programs: %w", err)
	}
	return filepath.Join(base, "kubeslot", "bin"), nil
}

// target is a build and the folder of the cache that holds its outcome.
type target struct {
	upstream
	source  string // the nested module
	version string
	out     string
}

func newTarget(u upstream, repoRoot, cache string) (target, error) {
	t := target{upstream: u, source: filepath.Join(repoRoot, "test/cluster/upstream", u.dir)}
	goMod, err := os.ReadFile(filepath.Join(t.source, "go.mod"))
	if err != nil {
		return t, err
	}
	goSum, err := os.ReadFile(filepath.Join(t.source, "go.sum"))
	if err != nil {
		return t, err
	}
	if t.version = requiredVersion(goMod, u.module); t.version == "" {
		return t, fmt.Errorf("%s/go.mod does not require %s", t.source, u.module)
	}
	key := sha256.New()
	fmt.Fprintf(key, "%s\n%s\n%s\n%s/%s\n", goMod, goSum, strings.Join(t.args(), " "), runtime.Version(), runtime.GOARCH)
	t.out = filepath.Join(cache, fmt.Sprintf("%s-%s-%.4x", cmp.Or(u.name, u.dir), t.version, key.Sum(nil)))
	return t, nil
}

// requiredVersion finds a module's version in a go.mod.
func requiredVersion(goMod []byte, module string) string {
	for lines := bufio.NewScanner(bytes.NewReader(goMod)); lines.Scan(); {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(lines.Text()), "require "))
		if len(fields) >= 2 && fields[0] == module {
			return fields[1]
		}
	}
	return ""
}

// args are the flags that decide what a build's outcome is.
func (t target) args() []string {
	ldflags := "-s -w"
	if strings.Contains(t.ldflags, "%") {
		ldflags += " " + fmt.Sprintf(t.ldflags, t.version)
	}
	return []string{"build", "-trimpath", "-buildvcs=false", "-tags=" + t.tags, "-ldflags=" + ldflags}
}

func (t target) built() bool {
	_, err := os.Stat(t.out)
	return err == nil
}

// build fills t.out. Any number of processes may do so at once: one builds, and
// the folder appears complete or not at all.
func (t target) build(ctx context.Context) error {
	unlock, err := lockFile(ctx, t.out+".lock")
	if err != nil {
		return err
	}
	defer unlock()
	if t.built() {
		return nil
	}
	stale, _ := filepath.Glob(t.out + ".tmp-*")
	for _, dir := range stale {
		os.RemoveAll(dir)
	}
	temp, err := os.MkdirTemp(filepath.Dir(t.out), filepath.Base(t.out)+".tmp-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	cgo := "CGO_ENABLED=0"
	if t.cgo {
		cgo = "CGO_ENABLED=1"
	}
	for name, pkg := range t.programs {
		args := append(t.args(), "-o", filepath.Join(temp, name), pkg)
		if err := goCommand(ctx, t.source, []string{cgo, "GOWORK=off"}, args...); err != nil {
			return err
		}
	}
	if err := os.Chmod(temp, 0o755); err != nil {
		return err
	}
	return os.Rename(temp, t.out)
}

// buildUpstream builds what the cache lacks and returns where each program is.
func buildUpstream(ctx context.Context, repoRoot string, out io.Writer) (map[string]string, error) {
	cache, err := cacheDir()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, err
	}
	var targets, missing []target
	for _, u := range upstreams {
		t, err := newTarget(u, repoRoot, cache)
		if err != nil {
			return nil, err
		}
		targets = append(targets, t)
		if !t.built() {
			missing = append(missing, t)
		}
	}
	for i, t := range missing {
		fmt.Fprintf(out, "building %s %s (%d of %d, once for %s)\n", t.dir, t.version, i+1, len(missing), t.out)
		begin := time.Now()
		if err := t.build(ctx); err != nil {
			return nil, fmt.Errorf("build %s %s: %w", t.dir, t.version, err)
		}
		fmt.Fprintf(out, "built %s in %s\n", t.dir, time.Since(begin).Round(time.Second))
	}
	programs := map[string]string{}
	for _, t := range targets {
		for name := range t.programs {
			programs[name] = filepath.Join(t.out, name)
		}
	}
	return programs, nil
}

// goCommand runs the go tool. It ends with this process: a kill -9 leaves no
// build behind.
func goCommand(ctx context.Context, dir string, env []string, args ...string) error {
	return onOwnThread(func() error { // Pdeathsig is about the thread, not the process
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), env...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if output, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go %s, in %s: %w\n%s", strings.Join(args, " "), dir, err, output)
		}
		return nil
	})
}

// lockFile takes an exclusive lock, which ends with this process at the latest.
// It works on folders too.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE, 0o644)
	if errors.Is(err, unix.EISDIR) {
		f, err = os.Open(path)
	}
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			f.Close()
			return nil, &fs.PathError{Op: "lock", Path: path, Err: err}
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("lock %s: held by another process: %w", path, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}
