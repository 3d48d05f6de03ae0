package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cgroups is how this machine mounts its control groups. The mounts themselves
// are never changed.
type cgroups struct {
	// v2 is true when the unified hierarchy is the only one.
	v2 bool
	// roots are the mount points of the hierarchies that kubelet and runc use.
	roots []string
	// all adds the unified hierarchy of a hybrid machine, where a program may
	// have put a process.
	all []string
}

func readCgroups() (cgroups, error) {
	mounts, err := readMounts("/proc/self/mountinfo")
	if err != nil {
		return cgroups{}, err
	}
	return cgroupsOf(mounts), nil
}

func cgroupsOf(mounts []mount) cgroups {
	var v1, v2 []string
	for _, m := range mounts {
		switch m.fsType {
		case "cgroup":
			v1 = append(v1, m.target)
		case "cgroup2":
			v2 = append(v2, m.target)
		}
	}
	if len(v1) == 0 {
		return cgroups{v2: true, roots: v2, all: v2}
	}
	return cgroups{roots: v1, all: append(slices.Clone(v1), v2...)}
}

// create makes a cgroup in every hierarchy, ready for kubelet's cgroupRoot.
func (c cgroups) create(path string) error {
	for _, root := range c.roots {
		var err error
		if c.v2 {
			err = createV2(root, path)
		} else {
			err = createV1(root, path)
		}
		if err != nil {
			return fmt.Errorf("cgroup %s in %s: %w", path, root, err)
		}
	}
	return nil
}

// createV1 also fills cpuset, which a new cgroup of v1 has empty: nothing could
// be started in it.
func createV1(root, path string) error {
	dir := root
	for _, name := range strings.Split(strings.Trim(path, "/"), "/") {
		parent := dir
		dir = filepath.Join(dir, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(parent, file))
			if errors.Is(err, fs.ErrNotExist) {
				continue // not the cpuset hierarchy
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, file), value, 0o644)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// createV2 hands every controller of the root down: kubelet refuses a cgroupRoot
// that lacks one it knows.
func createV2(root, path string) error {
	available, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	if err != nil {
		return err
	}
	dir := root
	for _, name := range strings.Split(strings.Trim(path, "/"), "/") {
		for _, controller := range strings.Fields(string(available)) {
			control := filepath.Join(dir, "cgroup.subtree_control")
			err := os.WriteFile(control, []byte("+"+controller), 0o644)
			if errors.Is(err, unix.EBUSY) {
				return fmt.Errorf("enable %s in %s: %w: processes sit directly in that cgroup; in a container, run this in a cgroup below it", controller, control, err)
			}
			if err != nil {
				return fmt.Errorf("enable %s in %s: %w", controller, control, err)
			}
		}
		dir = filepath.Join(dir, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// dirs lists the folders of a cgroup in all hierarchies, children first.
func (c cgroups) dirs(path string) []string {
	var dirs []string
	for _, root := range c.all {
		// A folder that vanishes meanwhile is what its caller wants.
		_ = filepath.WalkDir(filepath.Join(root, path), func(p string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, p)
			}
			return nil
		})
	}
	slices.Reverse(dirs)
	return dirs
}

// pids lists the processes in a cgroup and below, once each.
func (c cgroups) pids(path string) []int {
	var pids []int
	for _, dir := range c.dirs(path) {
		data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			continue
		}
		for _, field := range strings.Fields(string(data)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}

// remove deletes a cgroup from all hierarchies. The kernel needs a moment after
// the last process has ended, so it tries until ctx ends.
func (c cgroups) remove(ctx context.Context, path string) error {
	for {
		var errs []error
		for _, dir := range c.dirs(path) {
			if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
				errs = append(errs, fmt.Errorf("remove cgroup %s: %w", dir, err))
			}
		}
		if len(errs) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(errs...)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
