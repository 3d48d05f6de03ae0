// Package sysfs reads the devices of this machine from the kernel's sysfs and from
// udevd's database, as libudev does, without libudev. sysfs/sysfstest lays out recorded
// devices for tests.
package sysfs

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Where a Tree looks unless it is told otherwise.
const (
	DefaultSys      = "/sys"
	DefaultUdevData = "/run/udev/data"
	DefaultDev      = "/dev"
)

// Tree is where the devices are read. Its zero value is the running machine. A Tree is
// safe for concurrent use.
type Tree struct {
	// Sys is where sysfs is mounted; DefaultSys when empty.
	Sys string

	// UdevData is udevd's database of properties and tags; DefaultUdevData when empty.
	// It need not exist: then devices have the kernel's properties alone.
	UdevData string

	// Dev is the directory of device nodes; DefaultDev when empty.
	Dev string
}

func (t Tree) withDefaults() Tree {
	t.Sys = filepath.Clean(cmp.Or(t.Sys, DefaultSys))
	t.UdevData = cmp.Or(t.UdevData, DefaultUdevData)
	t.Dev = cmp.Or(t.Dev, DefaultDev)
	return t
}

// UdevdRuns reports whether udevd has its control socket beside its database. It says
// nothing of whether udevd is in the network namespace of this process.
func (t Tree) UdevdRuns() bool {
	_, err := os.Stat(filepath.Join(filepath.Dir(t.withDefaults().UdevData), "control"))
	return err == nil
}

// HostNode is where a node that programs know as "/dev/…" is on this machine.
func (t Tree) HostNode(node string) string {
	return path.Join(t.withDefaults().Dev, strings.TrimPrefix(node, DefaultDev))
}

// paths returns the sorted paths, without Sys, of all entries of buses and classes.
func (t Tree) paths() ([]string, error) {
	// sysfs itself may be reached through a symbolic link.
	sys, err := filepath.EvalSymlinks(t.Sys)
	if err != nil {
		return nil, fmt.Errorf("list devices: is sysfs mounted at %s? %w", t.Sys, err)
	}
	seen := make(map[string]bool, 512)
	var errs []error
	found := false
	for _, kind := range []struct{ dir, devices string }{{"bus", "devices"}, {"class", ""}} {
		subsystems, err := readDir(filepath.Join(sys, kind.dir))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		found = true
		for _, subsystem := range subsystems {
			dir := filepath.Join(sys, kind.dir, subsystem, kind.devices)
			// A subsystem may go while it is read: its module was unloaded.
			entries, err := readDir(dir)
			if err != nil {
				continue
			}
			for _, entry := range entries {
				if p, ok := resolve(sys, filepath.Join(dir, entry)); ok {
					seen[p] = true
				}
			}
		}
	}
	if !found {
		return nil, fmt.Errorf("list devices: is sysfs mounted at %s? %w", t.Sys, errors.Join(errs...))
	}
	return slices.Sorted(maps.Keys(seen)), nil
}

// resolve returns where below sys a class's or bus's entry leads. sysfs's links are
// relative and have one step, so that reading one is enough.
func resolve(sys, entry string) (string, bool) {
	target, err := os.Readlink(entry)
	if err != nil {
		if !errors.Is(err, syscall.EINVAL) {
			return "", false
		}
		target = entry // A directory: a device without a parent in an old layout.
	} else if !filepath.IsAbs(target) {
		target = filepath.Join(filepath.Dir(entry), target)
	}
	p, ok := strings.CutPrefix(target, sys)
	return p, ok && strings.HasPrefix(p, "/devices/")
}

func readDir(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}
