package udev

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/sysfs"
	"github.com/kubeslot/kubeslot/discovery/sysfs/sysfstest"
	"github.com/kubeslot/kubeslot/discovery/uevent"
)

const (
	usb1   = "/devices/pci0000:00/0000:00:14.0/usb1"
	usb2   = "/devices/pci0000:00/0000:00:15.0/usb2"
	bridge = "/devices/pci0000:00/0000:00:01.0"
)

// find returns what a Configuration finds on a machine.
func find(t *testing.T, f *finder, m *sysfstest.Machine) []discovery.Device {
	t.Helper()
	devices := sysfstest.Devices(t, m.Tree)
	f.apply(t.Context(), uevent.Change{All: true, Devices: devices})
	return f.devices()
}

func newTestFinder(t *testing.T, m *sysfstest.Machine, details string, properties map[string][]byte) *finder {
	t.Helper()
	request := discovery.Request{Details: details, Properties: properties}
	s, err := parseRequest(request)
	if err != nil {
		t.Fatal(err)
	}
	return newFinder(m.Tree, s, request.Warnf)
}

// summary writes devices for comparison: id, properties, and nodes with permissions.
func summary(tree sysfs.Tree, devices []discovery.Device) []string {
	var lines []string
	for _, d := range devices {
		line := "id=" + d.ID
		for _, key := range slices.Sorted(maps.Keys(d.Properties)) {
			line += " " + key + "=" + d.Properties[key]
		}
		for _, s := range d.DeviceSpecs {
			host := strings.TrimPrefix(s.HostPath, tree.Dev)
			line += fmt.Sprintf(" [%s:%s:%s]", host, strings.TrimPrefix(s.ContainerPath, "/dev"), s.Permissions)
		}
		lines = append(lines, line)
	}
	return lines
}

func TestWhatIsReported(t *testing.T) {
	m := sysfstest.New(t, sysfstest.Recording(t, "serial"), sysfstest.Recording(t, "camera"), sysfstest.Recording(t, "pci"))
	kubevirt := map[string][]byte{"devicePluginResourceName": []byte("example.com/my-dev.v1")}
	vfio := map[string][]byte{"devicePluginResourceName": []byte("gpu"), "vfioPassthrough": []byte("true")}
	tty := usb1 + "/1-2/1-2:1.0/ttyUSB0/tty/ttyUSB0"
	video := func(port string, n int) string {
		name := port[strings.LastIndex(port, "/")+1:]
		return fmt.Sprintf("%s/%s/%s:1.0/video4linux/video%d", usb2, port, name, n)
	}
	for name, tc := range map[string]struct {
		details    string
		properties map[string][]byte
		want       []string
	}{
		"no rules":      {details: `udevRules: []`},
		"nothing there": {details: `udevRules: ['KERNEL=="nosuch"']`},
		"a device node": {
			details: `udevRules: ['SUBSYSTEM=="tty", ENV{ID_SERIAL_SHORT}=="A50285BI"']`,
			want:    []string{"id=" + tty + " UDEV_DEVNODE=/dev/ttyUSB0 UDEV_DEVPATH=" + tty + " [/ttyUSB0:/ttyUSB0:rwm]"},
		},
		"permissions": {
			details: `{udevRules: ['SUBSYSTEM=="tty"'], permissions: rw}`,
			want:    []string{"id=" + tty + " UDEV_DEVNODE=/dev/ttyUSB0 UDEV_DEVPATH=" + tty + " [/ttyUSB0:/ttyUSB0:rw]"},
		},
		"rules are alternatives, and a device is found once": {
			details: `udevRules: ['KERNEL=="video0"', 'SUBSYSTEM=="video4linux", KERNEL=="video[02]"']`,
			want: []string{
				"id=" + video("2-1", 0) + " UDEV_DEVNODE=/dev/video0 UDEV_DEVPATH=" + video("2-1", 0) + " [/video0:/video0:rwm]",
				"id=" + video("2-10", 2) + " UDEV_DEVNODE=/dev/video2 UDEV_DEVPATH=" + video("2-10", 2) + " [/video2:/video2:rwm]",
			},
		},
		"a device without a node stands for its parent with one": {
			details: `udevRules: ['DRIVER=="ftdi_sio"']`, // the interface and its port: both are in 1-2
			want:    []string{"id=" + usb1 + "/1-2 UDEV_DEVNODE=/dev/bus/usb/001/004 UDEV_DEVPATH=" + usb1 + "/1-2 [/bus/usb/001/004:/bus/usb/001/004:rwm]"},
		},
		"one device, although the driver and the tty have its name": {
			details: `udevRules: ['KERNEL=="ttyUSB*"']`,
			want: []string{"id=" + tty + " UDEV_DEVNODE=/dev/ttyUSB0 UDEV_DEVPATH=" + tty +
				" [/ttyUSB0:/ttyUSB0:rwm]"},
		},
		"a group has the parent's node too": {
			details: `{udevRules: ['KERNEL=="ttyUSB*"'], groupRecursive: true}`,
			want: []string{"id=" + usb1 + "/1-2 UDEV_DEVNODE_0=/dev/bus/usb/001/004 UDEV_DEVNODE_1=/dev/ttyUSB0" +
				" UDEV_DEVPATH=" + usb1 + "/1-2 [/bus/usb/001/004:/bus/usb/001/004:rwm] [/ttyUSB0:/ttyUSB0:rwm]"},
		},
		"a device without any node above it": {
			details: `udevRules: ['KERNEL=="0000:00:1f.3"']`,
			want:    []string{"id=/devices/pci0000:00/0000:00:1f.3 UDEV_DEVPATH=/devices/pci0000:00/0000:00:1f.3"},
		},
		"groups: 2-1 does not take 2-10 along": {
			details: `{udevRules: ['ATTR{idVendor}=="046d"', 'SUBSYSTEM=="video4linux"'], groupRecursive: true}`,
			want: []string{
				"id=" + usb2 + "/2-1 UDEV_DEVNODE_0=/dev/bus/usb/002/005 UDEV_DEVNODE_1=/dev/video0 UDEV_DEVNODE_2=/dev/video1 UDEV_DEVPATH=" + usb2 + "/2-1" +
					" [/bus/usb/002/005:/bus/usb/002/005:rwm] [/video0:/video0:rwm] [/video1:/video1:rwm]",
				"id=" + usb2 + "/2-3/2-3.1 UDEV_DEVNODE_0=/dev/bus/usb/002/007 UDEV_DEVNODE_1=/dev/video4 UDEV_DEVNODE_2=/dev/video5 UDEV_DEVPATH=" + usb2 + "/2-3/2-3.1" +
					" [/bus/usb/002/007:/bus/usb/002/007:rwm] [/video4:/video4:rwm] [/video5:/video5:rwm]",
				"id=" + usb2 + "/2-10 UDEV_DEVNODE_0=/dev/bus/usb/002/006 UDEV_DEVNODE_1=/dev/video2 UDEV_DEVNODE_2=/dev/video3 UDEV_DEVPATH=" + usb2 + "/2-10" +
					" [/bus/usb/002/006:/bus/usb/002/006:rwm] [/video2:/video2:rwm] [/video3:/video3:rwm]",
			},
		},
		"a group of one": {
			details: `{udevRules: ['SUBSYSTEM=="tty"'], groupRecursive: true}`,
			want:    []string{"id=" + tty + " UDEV_DEVNODE_0=/dev/ttyUSB0 UDEV_DEVPATH=" + tty + " [/ttyUSB0:/ttyUSB0:rwm]"},
		},
		"KubeVirt, USB": {
			details:    `udevRules: ['ATTR{idVendor}=="0403"']`,
			properties: kubevirt,
			want: []string{"id=" + usb1 + "/1-2 UDEV_DEVNODE=/dev/bus/usb/001/004 UDEV_DEVPATH=" + usb1 + "/1-2 USB_RESOURCE_EXAMPLE_COM_MY-DEV_V1=1:4" +
				" [/bus/usb/001/004:/bus/usb/001/004:rwm]"},
		},
		"KubeVirt, no device of the host": {
			details:    `udevRules: ['SUBSYSTEM=="tty"']`, // behind USB, but no USB node
			properties: vfio,
			want:       []string{"id=" + tty + " UDEV_DEVNODE=/dev/ttyUSB0 UDEV_DEVPATH=" + tty + " [/ttyUSB0:/ttyUSB0:rwm]"},
		},
		"KubeVirt, a group": {
			details:    `{udevRules: ['KERNEL=="2-3*"', 'KERNEL=="video4"'], groupRecursive: true}`,
			properties: kubevirt,
			want: []string{"id=" + usb2 + "/2-3 UDEV_DEVNODE_0=/dev/bus/usb/002/003 UDEV_DEVNODE_1=/dev/bus/usb/002/007 UDEV_DEVNODE_2=/dev/video4 UDEV_DEVPATH=" + usb2 + "/2-3" +
				" USB_RESOURCE_EXAMPLE_COM_MY-DEV_V1=2:3,2:7 USB_RESOURCE_EXAMPLE_COM_MY-DEV_V1_0=2:3 USB_RESOURCE_EXAMPLE_COM_MY-DEV_V1_1=2:7" +
				" [/bus/usb/002/003:/bus/usb/002/003:rwm] [/bus/usb/002/007:/bus/usb/002/007:rwm] [/video4:/video4:rwm]"},
		},
		"KubeVirt, PCI": {
			details:    `udevRules: ['ATTR{vendor}=="0x10de", ATTR{class}=="0x0302*"']`,
			properties: kubevirt,
			want:       []string{"id=" + bridge + "/0000:01:00.0 PCI_RESOURCE_EXAMPLE_COM_MY-DEV_V1=0000:01:00.0 UDEV_DEVPATH=" + bridge + "/0000:01:00.0"},
		},
		"VFIO": {
			details:    `{udevRules: ['ATTR{vendor}=="0x10de", ATTR{class}=="0x0302*"'], permissions: r}`,
			properties: vfio,
			want: []string{"id=" + bridge + "/0000:01:00.0 PCI_RESOURCE_GPU=0000:01:00.0 UDEV_DEVPATH=" + bridge + "/0000:01:00.0" +
				" [/vfio/14:/vfio/14:rwm] [/vfio/vfio:/vfio/vfio:rwm]"},
		},
		"VFIO without an IOMMU": {
			details:    `udevRules: ['KERNEL=="0000:00:1f.3"']`,
			properties: vfio,
			want:       []string{"id=/devices/pci0000:00/0000:00:1f.3 PCI_RESOURCE_GPU=0000:00:1f.3 UDEV_DEVPATH=/devices/pci0000:00/0000:00:1f.3"},
		},
		"VFIO, a group": {
			details:    `{udevRules: ['DRIVER=="vfio-pci|pcieport"'], groupRecursive: true}`,
			properties: vfio,
			want: []string{"id=" + bridge + " PCI_RESOURCE_GPU=0000:00:01.0,0000:01:00.0,0000:01:00.1 UDEV_DEVPATH=" + bridge +
				" [/vfio/2:/vfio/2:rwm] [/vfio/vfio:/vfio/vfio:rwm] [/vfio/14:/vfio/14:rwm]"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := summary(m.Tree, find(t, newTestFinder(t, m, tc.details, tc.properties), m))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("found (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAMissingIOMMUIsToldOnce(t *testing.T) {
	m := sysfstest.New(t, sysfstest.Recording(t, "pci"))
	var warnings []string
	request := discovery.Request{
		Details: `udevRules: ['SUBSYSTEM=="pci"']`, Properties: map[string][]byte{"vfioPassthrough": []byte("true")},
		Warn: func(w string) { warnings = append(warnings, w) },
	}
	s, err := parseRequest(request)
	if err != nil {
		t.Fatal(err)
	}
	f := newFinder(m.Tree, s, request.Warnf)
	find(t, f, m)
	find(t, f, m)
	if len(warnings) != 1 || !strings.Contains(warnings[0], "0000:00:1f.3 has no IOMMU group") {
		t.Errorf("warnings %q, want one of the device without an IOMMU group", warnings)
	}
}

func TestNumbersStayWhileMembersDo(t *testing.T) {
	m := sysfstest.New(t, sysfstest.Recording(t, "camera"))
	f := newTestFinder(t, m, `{udevRules: ['KERNEL=="2-1"', 'KERNEL=="video[01]"', 'SUBSYSTEM=="sound"'], groupRecursive: true}`, nil)
	sound := func(n string) string {
		return "P: " + usb2 + "/2-1/2-1:1.0/sound/" + n + "\nN: snd/" + n + "\nE: SUBSYSTEM=sound\n"
	}
	for i, step := range []struct {
		do   func()
		want string
	}{
		{func() {}, "_0=/dev/bus/usb/002/005 _1=/dev/video0 _2=/dev/video1"},
		{func() { m.Add(t, sound("a")) }, "_0=/dev/bus/usb/002/005 _1=/dev/video0 _2=/dev/video1 _3=/dev/snd/a"},
		{func() { m.Remove(t, usb2+"/2-1/2-1:1.0/video4linux/video0") }, "_0=/dev/bus/usb/002/005 _2=/dev/video1 _3=/dev/snd/a"},
		{func() { m.Add(t, sound("b")) }, "_0=/dev/bus/usb/002/005 _1=/dev/snd/b _2=/dev/video1 _3=/dev/snd/a"},
		{func() { m.Remove(t, usb2+"/2-1/2-1:1.0/sound/b") }, "_0=/dev/bus/usb/002/005 _2=/dev/video1 _3=/dev/snd/a"},
		{func() { m.Remove(t, usb2+"/2-1") }, ""},
		{func() { m.Add(t, sysfstest.Recording(t, "camera")) }, "_0=/dev/bus/usb/002/005 _1=/dev/video0 _2=/dev/video1"},
	} {
		step.do()
		var got []string
		for _, d := range find(t, f, m) {
			for _, key := range slices.Sorted(maps.Keys(d.Properties)) {
				if number, ok := strings.CutPrefix(key, "UDEV_DEVNODE"); ok {
					got = append(got, number+"="+d.Properties[key])
				}
			}
		}
		if diff := cmp.Diff(step.want, strings.Join(got, " ")); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
	}
}

func TestDetails(t *testing.T) {
	for name, tc := range map[string]struct {
		details string
		err     string // a part of it; "" for none
		warning string
	}{
		"as Akri's chart renders it": {details: "groupRecursive: true\nudevRules:\n- 'KERNEL==\"video[0-9]*\"'\n"},
		"another key":                {details: "{udevRules: [], colour: red}", warning: "colour"},
		"only != on parents":         {details: `udevRules: ['SUBSYSTEM=="tty", SUBSYSTEMS!="usb"']`, warning: "udevRules[0] has conditions on parents with != only"},
		"!= beside == on parents":    {details: `udevRules: ['SUBSYSTEM=="tty", SUBSYSTEMS=="usb", DRIVERS!="usb"']`},
		"Akri's regular expression": {
			details: `udevRules: ['ATTRS{product}==".*Cam.*"']`,
			warning: `udevRules[0]: the value ".*Cam.*" of ATTRS is a glob`,
		},
		"… after a word": {
			details: `udevRules: ['DRIVERS!="uvc.*"']`, warning: `"uvc.*" of DRIVERS is a glob`,
		},
		"assignments": {
			details: `udevRules: ['KERNEL=="a", SYMLINK+="b", MODE="0666" SYMLINK+="c"']`,
			warning: "udevRules[0]: assignments have no effect, rules only select devices: SYMLINK, MODE",
		},
		"dots in names and versions": {
			details: `udevRules: ['KERNELS=="1-1.*|soc.*", ATTRS{version}=="2.*", ENV{A}=="*.conf"']`,
		},
		"empty":           {details: "", err: "udevRules, the list of rules that select devices, is missing"},
		"no rules":        {details: "udevRules: null", err: "is missing"},
		"a rule alone":    {details: `udevRules: 'KERNEL=="a"'`, err: "udevRules"},
		"a bad rule":      {details: `udevRules: ['KERNEL=="a"', 'KERNEL=="a" TAG=="b"']`, err: "udevRules[1], column 13: want a comma"},
		"bad permissions": {details: `{udevRules: [], permissions: wr}`, err: `permissions is "wr": want one of r, w, m, rw`},
		"no permissions":  {details: `{udevRules: [], permissions: ""}`, err: `permissions is ""`},
		"too many rules":  {details: "udevRules: [" + strings.Repeat("a,", maxRules) + "a]", err: "1001 rules"},
		"not YAML":        {details: "udevRules: [", err: "not YAML"},
	} {
		warnings := ""
		_, err := parseRequest(discovery.Request{Details: tc.details, Warn: func(w string) { warnings += w }})
		if (err == nil) != (tc.err == "") || err != nil && (!strings.Contains(err.Error(), tc.err) || !errors.Is(err, discovery.ErrInvalid)) {
			t.Errorf("%s: %v, want an error that wraps ErrInvalid, with %q", name, err, tc.err)
		}
		if !strings.Contains(warnings, tc.warning) || tc.warning == "" && warnings != "" {
			t.Errorf("%s: warnings %q, want %q", name, warnings, tc.warning)
		}
	}
}
