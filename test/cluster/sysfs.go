package cluster

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

const sysDir = "/sys"

// mountSysfs replaces /sys of the calling thread's mount namespace by a sysfs of
// its network namespace: a sysfs shows the network interfaces, and what hangs on
// them, of the namespace that it was mounted in. What lies mounted beneath /sys,
// the cgroups above all, stays as it is. Mounts must not be shared yet.
func mountSysfs() (err error) {
	mounts, err := readMounts("/proc/thread-self/mountinfo")
	if err != nil {
		return err
	}
	beneath := map[string]int{} // by target, copies that are mounted nowhere
	defer func() {
		for _, tree := range beneath {
			err = errors.Join(err, unix.Close(tree))
		}
	}()
	for _, target := range outermost(mounts, sysDir) {
		tree, err := unix.OpenTree(unix.AT_FDCWD, target, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if err != nil {
			return fmt.Errorf("copy the mount %s: %w", target, err)
		}
		beneath[target] = tree
	}
	if err := unix.Unmount(sysDir, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) { // no mount
		return fmt.Errorf("unmount %s: %w", sysDir, err)
	}
	if err := unix.Mount("sysfs", sysDir, "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount sysfs: %w", err)
	}
	for target, tree := range beneath {
		if err := unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("mount %s in the new sysfs: %w", target, err)
		}
	}
	return nil
}

// outermost lists the mount points beneath dir that lie in no other one beneath it.
func outermost(mounts []mount, dir string) []string {
	var targets []string
	for _, m := range mounts {
		if !strings.HasPrefix(m.target, dir+"/") {
			continue
		}
		inside := false
		for _, t := range targets {
			inside = inside || m.target == t || strings.HasPrefix(m.target, t+"/")
		}
		if !inside {
			targets = append(targets, m.target)
		}
	}
	return targets
}
