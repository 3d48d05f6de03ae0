package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubeslot/kubeslot/test/cluster/build"
)

const downDeadline = 60 * time.Second

// Down takes a cluster away: every process, mount, namespace and cgroup, and all
// files but the logs. It trusts no record of what the cluster has, so it works after kill -9
// of anything and on half-written state; where there is nothing it does nothing. The last
// cluster's removes the mount points that clusters made on the machine.
func Down(ctx context.Context, cfg Config) error {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	l := layout{cfg.StateDir}
	if err := os.MkdirAll(l.dir, 0o755); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, downDeadline)
	defer cancel()
	unlock, err := build.Lock(ctx, l.dir)
	if err != nil {
		return fmt.Errorf("another up or down is at work on the cluster: %w", err)
	}
	defer unlock()
	return takeDown(ctx, cfg)
}

// takeDown is Down with the state folder locked.
func takeDown(ctx context.Context, cfg Config) error {
	l := layout{cfg.StateDir}
	cg, err := readCgroups()
	if err != nil {
		return err
	}
	if err := killAll(ctx, cfg, cg); err != nil {
		return err
	}
	err = errors.Join(
		unmountBeneath(l.dir),
		cg.remove(ctx, l.cgroup(cfg.Name)),
		hostMountPoints.release(ctx, l.dir),
	)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		path := filepath.Join(l.dir, entry.Name())
		if path != l.logs() {
			err = errors.Join(err, os.RemoveAll(path))
		}
	}
	_ = os.Remove(l.dir) // if there are no logs either
	return err
}

// killAll kills until nothing of the cluster is left. kubelets go first, for
// they start containers again.
func killAll(ctx context.Context, cfg Config, cg cgroups) error {
	first := true
	for {
		procs, err := clusterProcesses(cfg, cg)
		if err != nil || len(procs) == 0 {
			return err
		}
		slices.SortStableFunc(procs, func(a, b found) int { return rank(a) - rank(b) })
		thaw(cg, layout{cfg.StateDir}.cgroup(cfg.Name))
		for _, p := range procs {
			if err := p.signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
				return fmt.Errorf("kill %s: %w", p, err)
			}
			if first && p.comm == Kubelet {
				awaitEnd(ctx, p.identity)
			}
		}
		first = false
		select {
		case <-ctx.Done():
			return fmt.Errorf("processes outlive SIGKILL: %v: %w", procs, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func rank(p found) int {
	if p.comm == Kubelet {
		return 0
	}
	return 1
}

func awaitEnd(ctx context.Context, id identity) {
	for ctx.Err() == nil && id.alive() {
		time.Sleep(time.Millisecond)
	}
}

// thaw lets frozen processes of cgroup v1 act on their signal. v2 needs no help.
func thaw(cg cgroups, path string) {
	for _, dir := range cg.dirs(path) {
		file := filepath.Join(dir, "freezer.state")
		if _, err := os.Stat(file); err == nil {
			_ = os.WriteFile(file, []byte("THAWED"), 0o644)
		}
	}
}

// found is a process that belongs to a cluster.
type found struct {
	identity
	comm string
	why  string
}

func (f found) String() string { return fmt.Sprintf("process %d (%s), by %s", f.PID, f.comm, f.why) }

// clusterProcesses finds a cluster's processes by the marker that its components
// and their children inherit, by cgroup (containers), and by the bound
// namespaces.
func clusterProcesses(cfg Config, cg cgroups) ([]found, error) {
	l := layout{cfg.StateDir}
	inCgroup := map[int]bool{}
	for _, pid := range cg.pids(l.cgroup(cfg.Name)) {
		inCgroup[pid] = true
	}
	namespaces := boundNamespaces(l)
	marker := []byte("\x00" + envMarker + "=" + l.dir + "\x00")
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var all []found
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		why := ""
		switch {
		case hasMarker(pid, marker):
			why = envMarker
		case inCgroup[pid]:
			why = "cgroup"
		case inNamespaces(pid, namespaces):
			why = "namespace"
		default:
			continue
		}
		if id, ok := identify(pid); ok {
			comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
			all = append(all, found{identity: id, comm: strings.TrimSpace(string(comm)), why: why})
		}
	}
	return all, nil
}

func hasMarker(pid int, marker []byte) bool {
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return err == nil && bytes.Contains(append([]byte{0}, environ...), marker)
}

// boundNamespaces returns the inodes of the namespaces bound in a state folder.
func boundNamespaces(l layout) map[uint64]bool {
	inodes := map[uint64]bool{}
	files, _ := filepath.Glob(filepath.Join(l.namespaces(), "*"))
	for _, file := range files {
		var fs unix.Statfs_t
		var st unix.Stat_t
		// A file that nothing is bound on yet is no namespace.
		if unix.Statfs(file, &fs) == nil && fs.Type == unix.NSFS_MAGIC && unix.Stat(file, &st) == nil {
			inodes[st.Ino] = true
		}
	}
	return inodes
}

func inNamespaces(pid int, inodes map[uint64]bool) bool {
	for _, kind := range []string{"net", "mnt"} {
		var st unix.Stat_t
		if unix.Stat(fmt.Sprintf("/proc/%d/ns/%s", pid, kind), &st) == nil && inodes[st.Ino] {
			return true
		}
	}
	return false
}

// Leftovers lists everything of a cluster that is still on the machine, the logs
// aside: nothing after Down.
func Leftovers(cfg Config) ([]string, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	l := layout{cfg.StateDir}
	cg, err := readCgroups()
	if err != nil {
		return nil, err
	}
	procs, err := clusterProcesses(cfg, cg)
	if err != nil {
		return nil, err
	}
	var left []string
	for _, p := range procs {
		left = append(left, p.String())
	}
	mounts, err := mountsBeneath(l.dir)
	if err != nil {
		return nil, err
	}
	for _, m := range mounts {
		left = append(left, "mount "+m)
	}
	for _, dir := range cg.dirs(l.cgroup(cfg.Name)) {
		left = append(left, "cgroup "+dir)
	}
	entries, err := os.ReadDir(l.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, entry := range entries {
		if path := filepath.Join(l.dir, entry.Name()); path != l.logs() {
			left = append(left, "file "+path)
		}
	}
	return left, nil
}
