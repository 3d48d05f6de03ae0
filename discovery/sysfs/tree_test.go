package sysfs_test

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeslot/kubeslot/discovery/sysfs"
	"github.com/kubeslot/kubeslot/discovery/sysfs/sysfstest"
)

const (
	usb1   = "/devices/pci0000:00/0000:00:14.0/usb1"
	ttyUSB = usb1 + "/1-2/1-2:1.0/ttyUSB0/tty/ttyUSB0"
	gpu    = "/devices/pci0000:00/0000:00:01.0/0000:01:00.0"
)

func device(t *testing.T, tree sysfs.Tree, path string) *sysfs.Device {
	t.Helper()
	devices := sysfstest.Devices(t, tree)
	at := slices.IndexFunc(devices, func(d *sysfs.Device) bool { return d.Path() == path })
	if at < 0 {
		t.Fatalf("no device at %s", path)
	}
	return devices[at]
}

func paths(devices []*sysfs.Device) []string {
	var all []string
	for _, d := range devices {
		all = append(all, d.Path())
	}
	return all
}

func TestDevicesOfASerialAdapter(t *testing.T) {
	m := sysfstest.New(t, sysfstest.Recording(t, "serial"))
	devices := sysfstest.Devices(t, m.Tree)
	// The PCI root has no bus and no class, so that it is not listed.
	want := []string{
		"/devices/pci0000:00/0000:00:14.0", usb1, usb1 + "/1-2", usb1 + "/1-2/1-2:1.0",
		usb1 + "/1-2/1-2:1.0/ttyUSB0", ttyUSB,
	}
	if diff := cmp.Diff(want, paths(devices)); diff != "" {
		t.Errorf("Devices() (-want +got):\n%s", diff)
	}

	tty := devices[5]
	major, minor, ok := tty.DevNum()
	got := map[string]any{
		"name": tty.Name(), "subsystem": tty.Subsystem(), "driver": tty.Driver(), "node": tty.Node(), "host": tty.HostNode(),
		"major": major, "minor": minor, "numbered": ok, "tags": tty.Tags(),
		"serial": tty.Property("ID_SERIAL_SHORT"), "links": tty.Property("DEVLINKS"), "all tags": tty.Property("TAGS"),
		"devpath": tty.Property("DEVPATH"), "devname": tty.Property("DEVNAME"), "no property": tty.Property("NO"),
	}
	if diff := cmp.Diff(map[string]any{
		"name": "ttyUSB0", "subsystem": "tty", "driver": "", "node": "/dev/ttyUSB0", "host": filepath.Join(m.Tree.Dev, "ttyUSB0"),
		"major": uint32(188), "minor": uint32(0), "numbered": true, "tags": []string{"systemd"},
		"serial":   "A50285BI",
		"links":    "/dev/serial/by-id/usb-FTDI_FT232R_USB_UART_A50285BI-if00-port0 /dev/serial/by-path/pci-0000:00:14.0-usb-0:2:1.0-port0",
		"all tags": ":systemd:", "devpath": ttyUSB, "devname": "/dev/ttyUSB0", "no property": "",
	}, got); diff != "" {
		t.Errorf("the serial adapter's tty (-want +got):\n%s", diff)
	}

	var parents []string
	for d := tty; d != nil; d = d.Parent() {
		parents = append(parents, d.Path()+" "+d.Driver())
	}
	if diff := cmp.Diff([]string{
		ttyUSB + " ", usb1 + "/1-2/1-2:1.0/ttyUSB0 ftdi_sio", usb1 + "/1-2/1-2:1.0 ftdi_sio", usb1 + "/1-2 usb", usb1 + " usb",
		"/devices/pci0000:00/0000:00:14.0 xhci_hcd", "/devices/pci0000:00 ",
	}, parents); diff != "" {
		t.Errorf("the parents of the tty (-want +got):\n%s", diff)
	}
	if devices[4].Parent() != devices[3] {
		t.Error("devices of one call do not share their parents")
	}
}

func TestAttributes(t *testing.T) {
	m := sysfstest.New(t, sysfstest.Recording(t, "pci"), sysfstest.Recording(t, "serial"))
	d := device(t, m.Tree, gpu)
	dir := m.Tree.Sys + gpu
	for name, content := range map[string]string{
		"empty": "", "spaces": "a b \n", "lines": "a\nb\n\n", "power/control": "auto\n", "big": strings.Repeat("x", 1<<20), "writeonly": "x",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chmod(filepath.Join(dir, "writeonly"), 0o200), os.Symlink("/etc/passwd", filepath.Join(dir, "elsewhere")),
		syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600)); err != nil {
		t.Fatal(err)
	}
	type value struct {
		Value string
		There bool
	}
	for name, want := range map[string]value{
		"vendor": {"0x10de", true}, "empty": {"", true}, "spaces": {"a b ", true}, "lines": {"a\nb", true},
		"power/control": {"auto", true}, "driver": {"vfio-pci", true}, "subsystem": {"pci", true}, "iommu_group": {"14", true},
		"big":    {strings.Repeat("x", 64<<10), true},
		"nosuch": {}, "": {}, ".": {}, "power": {}, "writeonly": {}, "elsewhere": {}, "pipe": {},
		"../0000:01:00.1/device": {}, "/etc/hostname": {}, "power/../vendor": {}, "vendor\x00": {},
	} {
		got, there := d.Attr(name)
		if diff := cmp.Diff(want, value{got, there}); diff != "" {
			t.Errorf("Attr(%q) (-want +got):\n%s", name, diff)
		}
	}

	m.SetAttr(t, gpu, "vendor", "0x1002")
	if got, _ := d.Attr("vendor"); got != "0x10de" {
		t.Errorf("the attribute changed to %q though the device was not read again", got)
	}
	if got, _ := device(t, m.Tree, gpu).Attr("vendor"); got != "0x1002" {
		t.Errorf("read again, the attribute is %q, want 0x1002", got)
	}
}

func TestNoSysfs(t *testing.T) {
	_, err := sysfs.Tree{Sys: t.TempDir()}.Snapshot()
	if err == nil || !strings.Contains(err.Error(), "is sysfs mounted at /") {
		t.Errorf("Snapshot() of an empty directory: %v, want an error that asks for sysfs", err)
	}
}

// A node's path comes from a uevent file: it must not lead out of /dev.
func TestNodesStayInDev(t *testing.T) {
	m := sysfstest.New(t)
	for name, want := range map[string]string{
		"null": "/dev/null", "/dev/null": "/dev/null", "bus/usb/001/002": "/dev/bus/usb/001/002", "../etc/shadow": "", "/etc/shadow": "", "a/../../b": "",
	} {
		m.Add(t, "P: /devices/virtual/mem/x\nE: SUBSYSTEM=mem\n")
		if err := os.WriteFile(m.Tree.Sys+"/devices/virtual/mem/x/uevent", []byte("DEVNAME="+name+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		d := device(t, m.Tree, "/devices/virtual/mem/x")
		if d.Node() != want || d.Property("DEVNAME") != want || want == "" && d.HostNode() != "" {
			t.Errorf("DEVNAME=%s: node %q, want %q", name, d.Node(), want)
		}
	}
}

func TestReload(t *testing.T) {
	m := sysfstest.New(t, sysfstest.Recording(t, "camera"))
	snapshot, err := m.Tree.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	usb2 := "/devices/pci0000:00/0000:00:15.0/usb2"
	interface1, video := usb2+"/2-1/2-1:1.0", usb2+"/2-1/2-1:1.0/video4linux/"
	reload := func(path string, wantTouched, wantGone []string) {
		t.Helper()
		touched, gone := snapshot.Reload(path)
		got := paths(touched)
		slices.Sort(got)
		if diff := cmp.Diff([][]string{wantTouched, wantGone}, [][]string{got, gone}); diff != "" {
			t.Errorf("Reload(%s): touched and gone (-want +got):\n%s", path, diff)
		}
	}
	// Not 2-10, whose name begins like it.
	all := []string{usb2 + "/2-1", interface1, video + "video0", video + "video1"}
	if diff := cmp.Diff(all[1:], snapshot.Below(usb2+"/2-1")); diff != "" {
		t.Errorf("Below (-want +got):\n%s", diff)
	}
	reload(usb2+"/2-1", all, nil)

	var below *sysfs.Device
	for _, d := range snapshot.Devices() {
		if d.Path() == video+"video0" {
			below = d
		}
	}
	product := func() string { value, _ := below.Parent().Parent().Attr("product"); return value }
	before := product()
	m.SetAttr(t, usb2+"/2-1", "product", "Another")
	if before != "HD Pro Webcam C920" || product() != before {
		t.Errorf("product is %q before the device is read again", product())
	}
	reload(usb2+"/2-1", all, nil)
	if product() != "Another" {
		t.Errorf("product is %q after the device was read again", product())
	}

	m.Remove(t, usb2+"/2-1")
	reload(usb2+"/2-1", nil, all)
	reload(usb2+"/2-1", nil, nil)
	m.Add(t, sysfstest.Recording(t, "camera"))
	reload(usb2+"/2-1", all[:1], nil)
	reload(video+"video0", all[2:3], nil)
	reload("/module/loop", nil, nil)
}

func FuzzDeviceFiles(f *testing.F) {
	f.Add("MAJOR=188\nMINOR=0\nDEVNAME=ttyUSB0\n", "S:serial/x\nE:ID_A=b\nG:systemd\nQ:systemd\nV:1\n")
	f.Add("MAJOR=99999999999\n=\nIFINDEX=-1\nDEVNAME=../../x", "E:=\nG\nE:x")
	m := sysfstest.At(f.TempDir())
	m.Add(f, "P: /devices/virtual/tty/x\nE: SUBSYSTEM=tty\nE: MAJOR=4\nE: MINOR=1\nE: ID_X=1\n")
	f.Fuzz(func(t *testing.T, uevent, data string) {
		for name, content := range map[string]string{
			m.Tree.Sys + "/devices/virtual/tty/x/uevent": uevent, m.Tree.UdevData + "/c4:1": data,
		} {
			if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		d := device(t, m.Tree, "/devices/virtual/tty/x")
		if node := d.Node(); node != "" && (!strings.HasPrefix(node, "/dev/") || path.Clean(node) != node) {
			t.Errorf("the node is %q", node)
		}
		if d.Property("DEVPATH") != d.Path() || d.Property("SUBSYSTEM") != "tty" {
			t.Errorf("DEVPATH is %q and SUBSYSTEM %q", d.Property("DEVPATH"), d.Property("SUBSYSTEM"))
		}
	})
}
