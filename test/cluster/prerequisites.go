package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// overlayMagic is OVERLAYFS_SUPER_MAGIC, statfs(2).
const overlayMagic = 0x794c7630

// checkPrerequisites reports everything that this machine lacks, in one error.
// It creates nothing that outlives it.
func checkPrerequisites(cfg Config) error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("a cluster needs Linux, this is %s", runtime.GOOS)
	}
	var errs []error
	missing := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	programs := []struct{ name, get string }{
		{"go", "install it from https://go.dev/dl"},
		{"gcc", "runc needs it (cgo): apt-get install gcc libc6-dev"},
		{"nsenter", "apt-get install util-linux"},
		{"mount", "kubelet needs it: apt-get install mount"},
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p.name); err != nil {
			missing("program %s is not on PATH: %s", p.name, p.get)
		}
	}
	if _, err := os.Stat("/dev/kmsg"); err != nil {
		missing("/dev/kmsg is missing, kubelet watches it: in a container, pass it with --device /dev/kmsg")
	}
	if os.Geteuid() != 0 {
		missing("not root: namespaces, mounts and cgroups need it; run with sudo")
		return errors.Join(errs...) // the rest would fail for that reason alone
	}
	for name, bit := range map[string]int{"CAP_SYS_ADMIN": unix.CAP_SYS_ADMIN, "CAP_NET_ADMIN": unix.CAP_NET_ADMIN} {
		if !hasCapability(bit) {
			missing("root without %s: in a container, run it with --privileged", name)
		}
	}
	if err := checkOverlay(cfg.StateDir); err != nil {
		errs = append(errs, err)
	}
	if err := checkCgroups(); err != nil {
		errs = append(errs, err)
	}
	if err := checkLinks(); err != nil {
		errs = append(errs, err)
	}
	if err := checkInotify(10 + 12*len(cfg.Nodes)); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// checkInotify takes as many inotify instances as a cluster may need, and gives them
// back: a kubelet that gets none ends.
func checkInotify(want int) error {
	for got := range want {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
		if err != nil {
			return fmt.Errorf("only %d inotify instances are to be had, and the cluster may need %d: sysctl fs.inotify.max_user_instances=1024: %w", got, want, err)
		}
		defer unix.Close(fd)
	}
	return nil
}

func hasCapability(bit int) bool {
	status, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(status), "\nCapEff:")
	hex, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
	effective, err := strconv.ParseUint(hex, 16, 64)
	return err == nil && effective&(1<<bit) != 0
}

func checkOverlay(stateDir string) error {
	known, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return err
	}
	if !slices.Contains(strings.Fields(string(known)), "overlay") {
		// A module that is not loaded yet is no reason to stop.
		if output, err := exec.Command("modprobe", "overlay").CombinedOutput(); err != nil {
			return fmt.Errorf("the kernel has no overlayfs, containerd needs it; modprobe overlay: %w %s", err, output)
		}
	}
	existing := stateDir
	for {
		var fs unix.Statfs_t
		err := unix.Statfs(existing, &fs)
		if err == nil && fs.Type == overlayMagic {
			return fmt.Errorf("%s is on overlayfs, which cannot hold containers' layers: choose a --state-dir on a disk, a volume or tmpfs", existing)
		}
		if err == nil || existing == "/" {
			return err
		}
		existing = filepath.Dir(existing)
	}
}

func checkCgroups() error {
	cg, err := readCgroups()
	if err != nil {
		return err
	}
	if len(cg.roots) == 0 {
		return errors.New("no cgroup hierarchy is mounted: mount -t cgroup2 none /sys/fs/cgroup")
	}
	if cg.v2 {
		return nil
	}
	var have []string
	mounts, err := readMounts("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for _, m := range mounts {
		if m.fsType == "cgroup" {
			have = append(have, m.options...)
		}
	}
	var lacking []string
	for _, controller := range []string{"cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "pids"} {
		if !slices.Contains(have, controller) {
			lacking = append(lacking, controller)
		}
	}
	if len(lacking) > 0 {
		return fmt.Errorf("cgroup v1 without the controllers %s: mount them, or boot with cgroup v2", strings.Join(lacking, ", "))
	}
	return nil
}

// checkLinks makes the kinds of interfaces needed in a network namespace that
// ends with the thread.
func checkLinks() error {
	return onOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("the kernel makes no network namespace (CONFIG_NET_NS): %w", err)
		}
		h, err := netlink.NewHandle()
		if err != nil {
			return fmt.Errorf("netlink: %w", err)
		}
		defer h.Close()
		br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
		if err := h.LinkAdd(br); err != nil {
			return fmt.Errorf("the kernel makes no bridge (modprobe bridge): %w", err)
		}
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "veth0"}, PeerName: "veth1"}
		if err := h.LinkAdd(veth); err != nil {
			return fmt.Errorf("the kernel makes no veth (modprobe veth): %w", err)
		}
		return nil
	})
}
