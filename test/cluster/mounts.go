package cluster

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mount is what matters here of a line of /proc/<pid>/mountinfo, proc(5).
type mount struct {
	target, fsType string
	// options are the file system's own: for cgroup v1 its controllers.
	options []string
}

func readMounts(mountinfo string) ([]mount, error) {
	data, err := os.ReadFile(mountinfo)
	if err != nil {
		return nil, err
	}
	var mounts []mount
	for line := range strings.Lines(string(data)) {
		if m, ok := parseMount(line); ok {
			mounts = append(mounts, m)
		}
	}
	return mounts, nil
}

func parseMount(line string) (mount, bool) {
	before, after, ok := strings.Cut(strings.TrimSpace(line), " - ")
	first, last := strings.Fields(before), strings.Fields(after)
	if !ok || len(first) < 5 || len(last) < 3 {
		return mount{}, false
	}
	return mount{
		target:  unescapeOctal(first[4]),
		fsType:  last[0],
		options: strings.Split(last[2], ","),
	}, true
}

// unescapeOctal undoes the kernel's \040 for a blank and the like.
func unescapeOctal(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// mountsBeneath lists mount points at or below dir, the last mounted first.
func mountsBeneath(dir string) ([]string, error) {
	mounts, err := readMounts("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var targets []string
	for _, m := range mounts {
		target := strings.TrimSuffix(m.target, "//deleted")
		if target == dir || strings.HasPrefix(target, dir+"/") {
			targets = append(targets, target)
		}
	}
	slices.Reverse(targets)
	return targets, nil
}

// unmountBeneath unmounts everything at or below dir. What is busy is detached:
// it is gone for everyone who comes later, and from the disk when its users end.
func unmountBeneath(dir string) error {
	targets, err := mountsBeneath(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, target := range targets {
		err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EBUSY) {
			err = unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		}
		// EINVAL: no mount any more, it went with one above it.
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", target, err))
		}
	}
	return errors.Join(errs...)
}
