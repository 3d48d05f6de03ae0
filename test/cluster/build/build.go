// Package build builds what a test cluster runs: the programs of others, and ours, from
// the one module graph of go.mod, with the same flags, so that each package is compiled once.
// It is made of the standard library alone: a first build says how far it is within seconds.
package build

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/kubeslot/kubeslot/deploy/gobuild"
)

const (
	kubernetesModule = "k8s.io/kubernetes"
	kubernetes       = "./test/cluster/kubernetes"
	containerd       = "github.com/containerd/containerd/v2"
	runc             = "github.com/opencontainers/runc"
	cni              = "github.com/containernetworking/plugins/plugins"
)

// Upstream are the programs of others that every cluster needs, and their packages: tools
// of go.mod, and the one program that is all of Kubernetes'.
var Upstream = map[string]string{
	"etcd": "go.etcd.io/etcd/server/v3",
	"runc": runc,

	"ptp":        cni + "/main/ptp",
	"loopback":   cni + "/main/loopback",
	"host-local": cni + "/ipam/host-local",

	"containerd":              containerd + "/cmd/containerd",
	"containerd-shim-runc-v2": containerd + "/cmd/containerd-shim-runc-v2",
	"ctr":                     containerd + "/cmd/ctr",

	"kube-apiserver":          kubernetes,
	"kube-controller-manager": kubernetes,
	"kube-scheduler":          kubernetes,
	"kubectl":                 kubernetes,
	"kubelet":                 kubernetes,
}

// Ours are the programs of this repository that a cluster may need.
var Ours = map[string]string{
	"kube-scheduler":   "./kube-scheduler/cmd/kube-scheduler",
	"kubecri":          "./kubecri/cmd/kubecri",
	"controller":       "./controller/cmd/controller",
	"kubectl-kubeslot": "./kubectl-kubeslot/cmd/kubectl-kubeslot",
	"kubeslot-ui":      "./kubectl-kubeslot/cmd/kubeslot-ui",
	"forward":          "./test/cluster/forward",
	"noseccomp":        "./test/cluster/noseccomp",
}

// Images are the programs of the cluster's images.
var Images = map[string]string{
	"app":   "./test/images/app",
	"pause": "./test/images/pause",
}

// What only some tests and targets need.
const (
	Helm    = "helm.sh/helm/v4/cmd/helm"
	Kubeadm = "k8s.io/kubernetes/cmd/kubeadm"
	Demo    = "./test/demo"
)

// tags have net and os/user compiled in the same way with cgo and without it, and leave
// out of containerd what needs C libraries.
const tags = "netgo,osusergo,no_btrfs,no_devmapper,no_zfs"

// Flags are the flags of go build that every program has: the Makefile's, so that tests,
// linters and programs share what is compiled. How far the compiler optimizes is in GOFLAGS:
// less for demos and tests than for benchmarks. Without DWARF, which a stripped program has
// not, compiling takes a sixth less time and a quarter less room. The compiler's variables
// change nothing in what is compiled: GOGC=400 saves another sixth of its CPU time, and
// GOMAXPROCS=1 a fifteenth where other packages keep the few cores busy.
func Flags() []string {
	with := "-toolexec=env GOGC=400"
	if runtime.NumCPU() <= 4 {
		with += " GOMAXPROCS=1"
	}
	return []string{"-trimpath", "-buildvcs=false", gobuild.CompilerFlags(os.Environ()), "-tags=" + tags, with}
}

// Programs are to be built.
type Programs struct {
	// Root is the repository's directory.
	Root string
	// Packages are the programs' main packages, in any order, also more than once.
	Packages []string
	// Flags are further flags of go build, such as -race. Programs of other flags are
	// in other directories.
	Flags []string
	// Static programs run where there is no C library, as in an empty root directory.
	Static bool
	// Out gets a line when something is compiled that takes long.
	Out io.Writer
}

// Run builds the programs, as far as they are not up to date, and returns their files by
// their packages. They are in _output of the repository, and replaced when they are built
// anew. Any number of processes may do so at once.
func (p Programs) Run(ctx context.Context) (map[string]string, error) {
	root, err := filepath.Abs(p.Root) // go build runs there, and would take -o from there
	if err != nil {
		return nil, err
	}
	dir, cgo := filepath.Join(root, "_output", "cluster"+strings.Join(p.Flags, "")), "CGO_ENABLED=1"
	if p.Static {
		dir, cgo = dir+"-static", "CGO_ENABLED=0"
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	unlock, err := Lock(ctx, filepath.Join(dir, ".lock"))
	if err != nil {
		return nil, err
	}
	defer unlock()
	ldflags, err := p.ldflags(ctx)
	if err != nil {
		return nil, err
	}
	// What go works in is on the programs' filesystem, so that a program is replaced at once, and is gone
	// when a build is interrupted. That of one that was killed is removed by the next.
	work := filepath.Join(dir, ".work")
	if err := errors.Join(os.RemoveAll(work), os.Mkdir(work, 0o755)); err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	args := append(append(Flags(), ldflags...), p.Flags...)
	packages := slices.Compact(slices.Sorted(slices.Values(p.Packages)))
	if err := goBuild(ctx, root, []string{"GOWORK=", cgo, "GOTMPDIR=" + work}, p.Out, append(args, "-o", dir+"/"), packages); err != nil {
		return nil, err
	}
	built := map[string]string{}
	for _, pkg := range packages {
		built[pkg] = filepath.Join(dir, fileOf(pkg))
	}
	return built, nil
}

// fileOf is what go build names a package's program.
func fileOf(pkg string) string {
	base := path.Base(pkg)
	if len(base) > 1 && base[0] == 'v' && strings.Trim(base[1:], "0123456789") == "" {
		return path.Base(path.Dir(pkg))
	}
	return base
}

// ldflags have the programs say their versions, and ours their commit, as Makefile does.
func (p Programs) ldflags(ctx context.Context) ([]string, error) {
	goMod, err := os.ReadFile(filepath.Join(p.Root, "go.mod"))
	if err != nil {
		return nil, err
	}
	versions := map[string]string{}
	for _, module := range []string{kubernetesModule, containerd, runc} {
		if versions[module] = RequiredVersion(goMod, module); versions[module] == "" {
			return nil, fmt.Errorf("%s/go.mod does not require %s", p.Root, module)
		}
	}
	const ours = "github.com/kubeslot/kubeslot/"
	common := "-s -w " + KubernetesVersion(versions[kubernetesModule], minorOf(versions[kubernetesModule])) +
		" -X " + containerd + "/version.Version=" + versions[containerd]
	// The last pattern that matches counts. Only what says its commit is linked again at each.
	return []string{
		"-ldflags=" + common,
		"-ldflags=" + ours + "...=" + common + " -X " + ours + "version.commit=" + commitOf(ctx, p.Root),
		"-ldflags=" + path.Join(ours, kubernetes) + "=" + common,
		"-ldflags=" + runc + "=-s -w -X main.version=" + versions[runc],
	}, nil
}

// KubernetesVersion are the linker's flags by which a program says that it is of that
// version of Kubernetes, such as v1.37.2, whose minor version is 37.
func KubernetesVersion(version, minor string) string {
	var flags []string
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags, "-X "+pkg+".gitVersion="+version, "-X "+pkg+".gitMajor=1", "-X "+pkg+".gitMinor="+minor)
	}
	return strings.Join(flags, " ")
}

func minorOf(version string) string { return strings.SplitN(version+"..", ".", 3)[1] }

// RequiredVersion finds a module's version in a go.mod.
func RequiredVersion(goMod []byte, module string) string {
	for lines := bufio.NewScanner(bytes.NewReader(goMod)); lines.Scan(); {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(lines.Text()), "require "))
		if len(fields) >= 2 && fields[0] == module {
			return fields[1]
		}
	}
	return ""
}

// commitOf is the checkout's commit, with -dirty if files were changed; empty where there
// is no git or no repository. (go build's own stamp fails there, and in a checkout of
// another user.)
func commitOf(ctx context.Context, root string) string {
	git := func(args ...string) (string, error) {
		args = append([]string{"-c", "safe.directory=" + root, "-C", root}, args...)
		out, err := exec.CommandContext(ctx, "git", args...).Output()
		return strings.TrimSpace(string(out)), err
	}
	commit, err := git("rev-parse", "HEAD")
	if err != nil {
		return ""
	}
	if changed, err := git("status", "--porcelain", "--untracked-files=no"); err == nil && changed != "" {
		commit += "-dirty"
	}
	return commit
}
