package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kubeslot/kubeslot/test/cluster/build"
)

const (
	upDeadline   = 3 * time.Minute
	lockDeadline = 2 * time.Second
	tailLines    = 25
)

// Up brings a cluster up and returns when every node is Ready and the control
// plane, and without Stock our scheduler, controller and every kubecri, are serving.
// When it fails it takes everything down again, unless cfg.Keep.
//
// The first Up on a machine builds Kubernetes, which takes minutes; ctx bounds
// that too. Everything after the builds has a deadline of its own.
func Up(ctx context.Context, cfg Config) (*Cluster, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if cfg.RepoRoot == "" {
		if cfg.RepoRoot, err = FindRepoRoot("."); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(checkPrerequisites(cfg), checkDeploy(cfg)); err != nil {
		return nil, fmt.Errorf("cannot bring a cluster up here:\n%w", err)
	}
	l := layout{cfg.StateDir}
	if err := os.MkdirAll(l.dir, 0o755); err != nil {
		return nil, err
	}
	lockCtx, cancel := context.WithTimeout(ctx, lockDeadline)
	defer cancel()
	unlock, err := build.Lock(lockCtx, l.dir)
	if err != nil {
		return nil, fmt.Errorf("another up or down is at work on cluster %q: %w", cfg.Name, err)
	}
	defer unlock()
	left, err := Leftovers(cfg)
	if err != nil {
		return nil, err
	}
	if len(left) > 0 {
		return nil, fmt.Errorf("cluster %q is there already (%d processes, mounts and files in %s): see its `status`, or take it `down` first", cfg.Name, len(left), l.dir)
	}

	u := &upper{Cluster: &Cluster{cfg: cfg, layout: l}, progress: newProgress(cfg.Out)}
	if err := u.run(ctx); err != nil {
		u.explain(err)
		return nil, errors.Join(err, u.abandon(ctx))
	}
	u.printf("cluster %q is up", cfg.Name)
	return u.Cluster, nil
}

// upper is one run of Up.
type upper struct {
	*Cluster
	*progress
	ca       *authority
	cgroups  cgroups
	archives []string // test images
}

func (u *upper) run(ctx context.Context) error {
	if err := os.RemoveAll(u.layout.logs()); err != nil {
		return err
	}
	if err := u.makeDirs(); err != nil {
		return err
	}
	if err := u.build(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, upDeadline, fmt.Errorf("%s have passed since the builds", upDeadline))
	defer cancel()
	if err := u.prepare(ctx); err != nil {
		return err
	}
	return u.bringUp(ctx)
}

func (u *upper) makeDirs() error {
	l := u.layout
	if err := os.RemoveAll(l.schedulerPlugins()); err != nil { // which match no other build
		return err
	}
	for _, dir := range []string{l.logs(), l.bin(), l.schedulerPlugins(), l.pluginSockets(), l.procs(), l.images(),
		l.config()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for _, dir := range []string{l.pki(), l.etcd(), filepath.Dir(l.kubeconfig("admin"))} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	return nil
}

// build makes every program and image, and notes where the programs are.
func (u *upper) build(ctx context.Context) error {
	ours := ourPrograms(u.cfg)
	packages := slices.AppendSeq(slices.Collect(maps.Values(build.Upstream)), maps.Values(build.Images))
	if len(u.cfg.BuildFlags) == 0 { // all in one build
		packages = slices.AppendSeq(packages, maps.Values(ours))
	}
	wanted := build.Programs{Root: u.cfg.RepoRoot, Packages: packages, Out: u}
	built, err := wanted.Run(ctx)
	if err != nil {
		return err
	}
	if len(u.cfg.BuildFlags) > 0 {
		wanted.Packages, wanted.Flags = slices.Collect(maps.Values(ours)), u.cfg.BuildFlags
		flagged, err := wanted.Run(ctx)
		if err != nil {
			return err
		}
		maps.Copy(built, flagged)
	}
	if err := u.placePrograms(built, ours); err != nil {
		return err
	}
	if err := u.cfg.Versions.build(ctx, u.cfg.RepoRoot, u, u.programs); err != nil {
		return err
	}
	if err := u.linkBinaries(); err != nil {
		return err
	}
	for name, pkg := range build.Images {
		archive := filepath.Join(u.layout.images(), name+".tar")
		if err := writeImage(testImages[name], built[pkg], archive); err != nil {
			return fmt.Errorf("image of %s: %w", name, err)
		}
		u.archives = append(u.archives, archive)
	}
	u.printf("programs and images are built")
	return u.save()
}

// linkBinaries puts the programs that replace ours into the folder of all programs: what is built for
// the cluster, as plugins are, looks there for what loads it.
func (u *upper) linkBinaries() error {
	for name, file := range u.cfg.Binaries {
		file, err := filepath.Abs(file)
		if err != nil {
			return err
		}
		u.programs[name] = filepath.Join(u.layout.bin(), name)
		if err := os.Remove(u.programs[name]); err != nil && !errors.Is(err, fs.ErrNotExist) { // upstream's
			return err
		}
		if err := os.Symlink(file, u.programs[name]); err != nil {
			return err
		}
	}
	return nil
}

// placePrograms puts every program into one folder: for the cluster's processes, for a
// user's PATH, and for noseccomp, which looks for runc there. Ours stay as they are for as
// long as the cluster lives, though they may be built anew.
func (u *upper) placePrograms(built, ours map[string]string) error {
	u.programs = programs{}
	for name, pkg := range build.Upstream {
		u.programs[name] = filepath.Join(u.layout.bin(), name)
		if ours[name] != "" {
			continue
		}
		if err := os.Symlink(built[pkg], u.programs[name]); err != nil {
			return err
		}
	}
	for name, pkg := range ours {
		u.programs[name] = filepath.Join(u.layout.bin(), name)
		if err := linkOrCopy(built[pkg], u.programs[name]); err != nil {
			return err
		}
	}
	return os.Symlink(u.programs["runc"], filepath.Join(u.layout.bin(), "runc.real"))
}

// linkOrCopy makes a hard link, or a copy where the file is on another filesystem.
func linkOrCopy(from, to string) error {
	err := os.Link(from, to)
	if !errors.Is(err, syscall.EXDEV) {
		return err
	}
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o755)
}

// prepare makes all that processes need before the first one starts.
func (u *upper) prepare(ctx context.Context) (err error) {
	if u.ca, err = writePKI(u.cfg, u.layout); err != nil {
		return err
	}
	if err := writeAuditPolicy(u.layout); err != nil {
		return err
	}
	if err := makeNamespaceDir(u.layout.namespaces()); err != nil {
		return err
	}
	if err := createNetwork(u.layout, u.cfg.Nodes); err != nil {
		return fmt.Errorf("network: %w", err)
	}
	if u.cgroups, err = readCgroups(); err != nil {
		return err
	}
	if len(u.cfg.Nodes) > 0 {
		if err := u.MakeMountPoints(ctx, nodePrivateDirs...); err != nil {
			return err
		}
	}
	for i := range u.cfg.Nodes {
		if err := prepareNode(u.cfg, u.layout, i, u.cgroups, u.programs); err != nil {
			return fmt.Errorf("node %s: %w", u.cfg.Nodes[i], err)
		}
	}
	u.printf("network and nodes are prepared")
	return nil
}

// processError is a failure that a component's log may explain.
type processError struct {
	process *process
	err     error
}

func (e *processError) Error() string { return fmt.Sprintf("%s: %v", e.process, e.err) }
func (e *processError) Unwrap() error { return e.err }

// startAndAwait starts a component and waits until it serves.
func (u *upper) startAndAwait(ctx context.Context, p *process) error {
	if err := u.layout.start(p); err != nil {
		return err
	}
	return u.awaitProcess(ctx, p, p.String()+" is serving", u.probe(p.Component, p.Node))
}

// awaitProcess is await for something that a component has to bring about.
func (u *upper) awaitProcess(ctx context.Context, p *process, what string, ready func(context.Context) error) error {
	ended := func() error {
		if p.Started.alive() {
			return nil
		}
		return errors.New("the process has ended")
	}
	if err := u.await(ctx, what, ended, ready); err != nil {
		return &processError{p, err}
	}
	return nil
}

// explain prints the end of the failing component's log, and of every
// component's that has ended.
func (u *upper) explain(err error) {
	shown := map[string]bool{}
	show := func(p *process) {
		if file := u.layout.logOf(p.Component, p.Node); !shown[file] {
			shown[file] = true
			u.printf("the end of %s:\n    %s", file, strings.ReplaceAll(u.layout.logTail(p, tailLines), "\n", "\n    "))
		}
	}
	var failed *processError
	if errors.As(err, &failed) {
		show(failed.process)
	}
	for _, p := range u.layout.processes() {
		if !p.Started.alive() {
			show(p)
		}
	}
	u.printf("logs are in %s", u.layout.logs())
}

// abandon takes down what a failed Up has made. It works when ctx has ended.
func (u *upper) abandon(ctx context.Context) error {
	if u.cfg.Keep {
		u.printf("the cluster is left as it is; take it down when done")
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), downDeadline)
	defer cancel()
	return takeDown(ctx, u.cfg)
}
