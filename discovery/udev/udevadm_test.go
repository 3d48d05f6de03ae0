package udev

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kubeslot/kubeslot/discovery/sysfs"
	"github.com/kubeslot/kubeslot/discovery/sysfs/sysfstest"
	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/test/need"
)

// seal hides this machine's devices, rules and database from udev's programs, so that
// they change nothing. Their /run/udev is empty. Only inside InNamespace.
func seal(t *testing.T) {
	t.Helper()
	mount := func(source, target, kind string, flags uintptr) {
		if err := unix.Mount(source, target, kind, flags, ""); err != nil {
			t.Fatalf("mount %s at %s: %v", source, target, err)
		}
		t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
	}
	empty := t.TempDir()
	mount("tmpfs", "/run", "tmpfs", 0)
	for _, dir := range []string{"/etc/udev", "/usr/lib/udev", "/lib/udev", "/usr/local/lib/udev"} {
		if _, err := os.Stat(dir); err == nil {
			mount(empty, dir, "", unix.MS_BIND)
		}
	}
	dev := t.TempDir()
	if err := unix.Mknod(filepath.Join(dev, "null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
		t.Fatal(err)
	}
	mount(dev, "/dev", "", unix.MS_BIND)
	if err := os.MkdirAll("/run/udev/rules.d", 0o755); err != nil {
		t.Fatal(err)
	}
}

// exportedDevices returns the properties of every device, as udevadm tells them.
func exportedDevices(t *testing.T, program string, env ...string) map[string]map[string]string {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, "info", "--export-db")
	command.Env = append(os.Environ(), env...)
	output, err := command.Output()
	if err != nil {
		t.Fatalf("%v: %v", command.Args, err)
	}
	devices := map[string]map[string]string{}
	path := ""
	for line := range strings.Lines(string(output)) {
		kind, value, _ := strings.Cut(strings.TrimRight(line, "\n"), ": ")
		switch kind {
		case "P":
			path = value
			devices[path] = map[string]string{}
		case "E":
			name, value, _ := strings.Cut(value, "=")
			switch name { // Sets, which udevadm has in no order.
			case "DEVLINKS":
				value = sorted(value, " ")
			case "TAGS":
				value = ":" + sorted(strings.Trim(value, ":"), ":") + ":"
			}
			devices[path][name] = value
		}
	}
	return devices
}

func sorted(list, separator string) string {
	return strings.Join(slices.Sorted(slices.Values(strings.Split(list, separator))), separator)
}

func ourDevices(t *testing.T, tree sysfs.Tree) map[string]map[string]string {
	t.Helper()
	list := sysfstest.Devices(t, tree)
	devices := map[string]map[string]string{}
	for _, d := range list {
		devices[d.Path()] = maps.Clone(d.Properties())
		// These two are for udevd itself, and for systemd.
		delete(devices[d.Path()], "USEC_INITIALIZED")
		delete(devices[d.Path()], "CURRENT_TAGS")
	}
	return devices
}

// TestSeesWhatUdevSees compares devices and their properties with udevadm's: on this
// machine, and on the recordings.
func TestSeesWhatUdevSees(t *testing.T) {
	program := need.Program(t, "apt-get install udev", "udevadm")
	compare := func(tree sysfs.Tree, env ...string) (differences string, number int) {
		theirs, ours := exportedDevices(t, program, env...), ourDevices(t, tree)
		for path, properties := range theirs {
			delete(properties, "USEC_INITIALIZED")
			delete(properties, "CURRENT_TAGS")
			// udevadm also lists drivers, modules and subsystems where a tag asks for them.
			if !strings.HasPrefix(path, "/devices/") {
				delete(theirs, path)
			}
		}
		return cmp.Diff(theirs, ours), len(ours)
	}
	if os.Getenv("KUBESLOT_TEST_NAMESPACE") == "" {
		// Devices come and go meanwhile.
		await.That(t, "this machine's devices to be the same (-udevadm +ours)", func() (bool, string) {
			differences, number := compare(sysfs.Tree{})
			if differences == "" {
				t.Logf("the same %d devices on this machine", number)
			}
			return differences == "", differences
		})
	}
	if !sysfstest.InNamespace(t) {
		return
	}
	m := sysfstest.New(t, sysfstest.Recording(t, "serial"), sysfstest.Recording(t, "camera"), sysfstest.Recording(t, "pci"))
	seal(t)
	if err := errors.Join(os.CopyFS("/run/udev/data", os.DirFS(m.Tree.UdevData)), unix.Mount(m.Tree.Sys, "/sys", "", unix.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	differences, number := compare(m.Tree, "SYSTEMD_DEVICE_VERIFY_SYSFS=0")
	if differences != "" || number < 20 {
		t.Errorf("%d recorded devices (-udevadm +ours):\n%s", number, differences)
	}
}
