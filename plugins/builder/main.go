// Command builder builds plugins so that the binaries in _output load them:
// `make plugins` those of this tree, `make plugin-builder PLUGIN=<folder>` any.
//
// It takes the toolchain and the flags from the binaries. A plugin of another
// module is built in a workspace of that module, Kubeslot and kubedevice-api:
// there all versions are chosen together, and Kubeslot's packages have the same
// paths as in the binaries. Then it compares the result with its binary, as the
// binary will: what was built and does not match is not kept.
package main

import (
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/kubeslot/kubeslot/plugins/load"
)

func main() {
	out := flag.String("o", "", "file to write, of one plugin; by default <binaries>/plugins/{schedulers,devices}/<the directory's name>.so")
	binaries := flag.String("binaries", "_output", "directory of the kube-scheduler and kubecri that are to load the plugins")
	flag.Parse()
	if flag.NArg() == 0 || flag.Arg(0) == "" || flag.NArg() > 1 && *out != "" {
		fmt.Fprintln(os.Stderr, "plugin-builder: which plugin? make plugin-builder PLUGIN=<directory of its package main>")
		os.Exit(1)
	}
	for _, plugin := range flag.Args() {
		file, err := run(plugin, *out, *binaries)
		if err != nil {
			fmt.Fprintln(os.Stderr, "plugin-builder:", err)
			os.Exit(1)
		}
		fmt.Println(file)
	}
}

// half is what a factory's plugin goes with.
type half struct{ binary, folder string }

var halves = map[string]half{
	load.Schedulers.Factory: {"kube-scheduler", "schedulers"},
	load.Devices.Factory:    {"kubecri", "devices"},
}

// run builds the plugin in the folder and returns the file that it wrote.
func run(plugin, out, binaries string) (string, error) {
	root, err := os.Getwd()
	if err != nil {
		return "", err
	}
	if plugin, err = filepath.Abs(plugin); err != nil {
		return "", err
	}
	// One build makes both binaries; either says how.
	info, err := buildinfo.ReadFile(filepath.Join(binaries, "kube-scheduler"))
	if err != nil {
		return "", fmt.Errorf("which toolchain and flags? %w: build the binaries first: make build", err)
	}
	work, err := os.MkdirTemp("", "plugin-builder")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	workspace, err := newWorkspace(root, plugin, work)
	if err != nil {
		return "", err
	}
	built := filepath.Join(work, "plugin.so")
	flags, env := matching(info)
	cmd := exec.Command("go", append(append([]string{"build", "-buildmode=plugin", "-o", built}, flags...), ".")...)
	cmd.Dir, cmd.Env = plugin, append(append(os.Environ(), env...), "GOWORK="+workspace)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("build %s: %w", plugin, err)
	}

	factory, err := load.FactoryOf(built)
	if err != nil {
		return "", err
	}
	h, ok := halves[factory]
	if !ok {
		return "", fmt.Errorf("%s exports neither %s nor %s: one of them makes it a plugin", plugin, load.Schedulers.Factory, load.Devices.Factory)
	}
	findings, err := load.Against(filepath.Join(binaries, h.binary), built, factory)
	if err != nil {
		return "", err
	}
	if len(findings) > 0 {
		errs := []error{fmt.Errorf("%s would not load what was built of %s, so it is not kept", h.binary, plugin)}
		for _, f := range findings {
			errs = append(errs, fmt.Errorf("  it %s", f.Text))
		}
		return "", errors.Join(errs...)
	}
	if out == "" {
		out = filepath.Join(binaries, "plugins", h.folder, name(plugin)+".so")
	}
	return out, install(built, out)
}

// name is the plugin's folder, or the one above when that only says which half
// it is, as in plugins/example/scheduler.
func name(plugin string) string {
	switch base := filepath.Base(plugin); base {
	case "scheduler", "device":
		return filepath.Base(filepath.Dir(plugin))
	default:
		return base
	}
}

// newWorkspace writes a go.work with the plugin's module and ours, and returns
// it; for a plugin in Kubeslot's own module Kubeslot's.
func newWorkspace(root, plugin, dir string) (string, error) {
	cmd := exec.Command("go", "env", "GOMOD")
	cmd.Dir, cmd.Env = plugin, append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("find the module of %s: %w", plugin, err)
	}
	mod := strings.TrimSpace(string(out))
	if mod == "" || mod == os.DevNull {
		return "", fmt.Errorf("%s is in no Go module: run `go mod init <name>` there", plugin)
	}
	if filepath.Dir(mod) == root {
		return filepath.Join(root, "go.work"), nil
	}
	uses := []string{root, filepath.Join(root, "types"), filepath.Join(root, "kubedevice-api")}
	if !slices.Contains(uses, filepath.Dir(mod)) {
		uses = append(uses, filepath.Dir(mod))
	}
	file := filepath.Join(dir, "go.work")
	init := exec.Command("go", append([]string{"work", "init"}, uses...)...)
	init.Dir, init.Env = dir, append(os.Environ(), "GOWORK="+file)
	if out, err := init.CombinedOutput(); err != nil {
		return "", fmt.Errorf("make a workspace of %s: %w\n%s", strings.Join(uses, ", "), err, out)
	}
	return file, nil
}

// matching returns the flags and the environment that the binary was built with,
// as far as they change its packages. The caller's own GOFLAGS do not count.
func matching(info *debug.BuildInfo) (flags, env []string) {
	env = []string{"GOFLAGS=", "CGO_ENABLED=1"}
	// A toolchain of somebody's own making cannot be fetched: there it must be
	// the one on PATH, and the comparison at the end tells if it is not.
	if version, _, custom := strings.Cut(info.GoVersion, " "); !custom && strings.HasPrefix(version, "go1.") {
		env = append(env, "GOTOOLCHAIN="+version)
	}
	// A package may not be part of a repository that git trusts.
	flags = []string{"-buildvcs=false"}
	for _, s := range info.Settings {
		switch s.Key {
		case "-trimpath", "-race", "-msan", "-asan", "-tags", "-gcflags", "-asmflags":
			flags = append(flags, s.Key+"="+s.Value)
		case "GOOS", "GOARCH", "GOAMD64", "GOARM64", "GOEXPERIMENT":
			env = append(env, s.Key+"="+s.Value)
		}
	}
	return flags, env
}

// install copies the plugin to a file that root or its owner alone can write,
// which is what loading asks for. A plugin that is in use stays what it is.
func install(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	fresh := to + ".new"
	if err := os.WriteFile(fresh, content, 0o644); err != nil {
		return err
	}
	return os.Rename(fresh, to)
}
