package udev

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kubeslot/kubeslot/discovery/sysfs"
	"github.com/kubeslot/kubeslot/discovery/sysfs/sysfstest"
)

// udevadm returns systemd's udevadm and the environment that it needs. Where it is not
// installed, Debian's packages are unpacked beside other test tools, not installed.
func udevadm(t *testing.T) (program string, env []string) {
	t.Helper()
	if program, err := exec.LookPath("udevadm"); err == nil {
		return program, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skipf("needs udevadm (apt-get install udev): %v", err)
	}
	dir := filepath.Join(cache, "kubeslot", "debian", "udev")
	program = filepath.Join(dir, "bin", "udevadm")
	if _, err := os.Stat(program); err != nil {
		if err := unpack(t, dir, "udev", "libudev1"); err != nil {
			t.Skipf("needs udevadm (apt-get install udev): %v", err)
		}
	}
	libraries, err := filepath.Glob(filepath.Join(dir, "usr/lib/*-linux-gnu"))
	if err != nil || len(libraries) == 0 {
		t.Fatalf("no libudev in %s: %v", dir, err)
	}
	env = []string{"LD_LIBRARY_PATH=" + libraries[0]}
	command := exec.Command(program, "--version")
	command.Env = append(os.Environ(), env...)
	if output, err := command.CombinedOutput(); err != nil {
		t.Skipf("needs udevadm (apt-get install udev): %s --version: %v\n%s", program, err, output)
	}
	return program, env
}

// unpack downloads Debian packages and unpacks them into a directory. It changes nothing
// of what apt knows on this machine.
func unpack(t *testing.T, dir string, packages ...string) error {
	temporary := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	apt := func(args ...string) error {
		command := exec.CommandContext(ctx, "apt-get", append([]string{"-o", "APT::Sandbox::User=root"}, args...)...)
		command.Dir = temporary
		if output, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w\n%s", command.Args, err, output)
		}
		return nil
	}
	if apt(append([]string{"download"}, packages...)...) != nil {
		// No lists of packages, as in a fresh container, or old ones.
		lists := []string{"-o", "Dir::State::Lists=" + temporary + "/lists", "-o", "Dir::Cache=" + temporary + "/cache"}
		if err := errors.Join(os.MkdirAll(temporary+"/lists/partial", 0o755), os.MkdirAll(temporary+"/cache/archives/partial", 0o755)); err != nil {
			return err
		}
		if err := apt(append(lists, "update")...); err != nil {
			return err
		}
		if err := apt(append(append(lists, "download"), packages...)...); err != nil {
			return err
		}
	}
	archives, err := filepath.Glob(filepath.Join(temporary, "*.deb"))
	if err != nil {
		return err
	}
	// Complete or not at all: another test may look at the same time.
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	partial, err := os.MkdirTemp(filepath.Dir(dir), "udev-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(partial)
	for _, archive := range archives {
		if output, err := exec.CommandContext(ctx, "dpkg-deb", "-x", archive, partial).CombinedOutput(); err != nil {
			return fmt.Errorf("unpack %s: %w\n%s", archive, err, output)
		}
	}
	if err := os.Rename(partial, dir); err != nil && !errors.Is(err, os.ErrExist) && !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	return nil
}

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
	list, err := tree.Devices()
	if err != nil {
		t.Fatal(err)
	}
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
	program, env := udevadm(t)
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
		for deadline := time.Now().Add(patience); ; {
			differences, number := compare(sysfs.Tree{}, env...)
			if differences == "" {
				t.Logf("the same %d devices on this machine", number)
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("this machine's devices (-udevadm +ours):\n%s", differences)
			}
		}
	}
	if !sysfstest.InNamespace(t) {
		return
	}
	m := sysfstest.New(t, sysfstest.Recording(t, "serial"), sysfstest.Recording(t, "camera"), sysfstest.Recording(t, "pci"))
	seal(t)
	if err := errors.Join(os.CopyFS("/run/udev/data", os.DirFS(m.Tree.UdevData)), unix.Mount(m.Tree.Sys, "/sys", "", unix.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	differences, number := compare(m.Tree, append(env, "SYSTEMD_DEVICE_VERIFY_SYSFS=0")...)
	if differences != "" || number < 20 {
		t.Errorf("%d recorded devices (-udevadm +ours):\n%s", number, differences)
	}
}
