package usb

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/sysfs/sysfstest"
	"github.com/kubeslot/kubeslot/discovery/uevent"
)

func recording(tb testing.TB, name string) string {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".umockdev"))
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

// plugged is a machine with a controller and what is plugged in.
func plugged(tb testing.TB, names ...string) *sysfstest.Machine {
	tb.Helper()
	m := sysfstest.New(tb, recording(tb, "controller"))
	for _, name := range names {
		m.Add(tb, recording(tb, name))
	}
	return m
}

// find returns what the details find on a machine.
func find(t *testing.T, m *sysfstest.Machine, text string) (map[string]discovery.Device, []string) {
	t.Helper()
	d, err := parse(discovery.Request{Details: text})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	devices := sysfstest.Devices(t, m.Tree)
	f := newFinder(d, nil)
	f.apply(uevent.Change{All: true, Devices: devices})
	return f.find()
}

const (
	zigbeeID = "10c4:ea60:0001"
	port     = "pci-0000:00:14.0-usbv2-0:" // ports of the controller's USB 2 root hub
)

func TestFind(t *testing.T) {
	everything := []string{"hub", "ch340-left", "ch340-right", "zigbee", "two-radios", "security-key", "webcam", "printer", "disk"}
	for details, want := range map[string]string{
		`devices: []`: "",
		`devices: [{vendor: "10c4", product: "ea60"}]`:                                       zigbeeID,
		`devices: [{vendor: "0x10C4", product: "EA60"}]`:                                     zigbeeID,
		`devices: [{vendor: "10c4"}]`:                                                        "10c4:8a2a:C0D1 " + zigbeeID,
		`devices: [{vendor: "10c4", product: "ea60"}, {vendor: "10c4", product: "8a2a"}]`:    "10c4:8a2a:C0D1 " + zigbeeID,
		`devices: [{vendor: "10c4", serial: "0001"}]`:                                        zigbeeID,
		`devices: [{vendor: "10c4", serial: "001"}]`:                                         "",
		`devices: [{vendor: "10c4", product: "ea61"}]`:                                       "",
		`devices: [{vendor: "1a86", product: "7523"}]`:                                       "1a86:7523@" + port + "1.1 1a86:7523@" + port + "1.10",
		`devices: [{vendor: "1a86", port: 1-1.1}]`:                                           "1a86:7523@" + port + "1.1",
		`devices: [{vendor: "1a86", port: "pci-0000:00:14.0-usbv2-0:1.10"}]`:                 "1a86:7523@" + port + "1.10",
		`devices: [{port: 1-2}]`:                                                             zigbeeID,
		`{devices: [{port: 1-2}], identity: port}`:                                           "10c4:ea60@" + port + "2",
		`devices: [{class: "03"}]`:                                                           "1050:0407@" + port + "4", // of an interface
		`devices: [{class: "0E"}]`:                                                           "046d:0825:6D0A2B40",
		`devices: [{class: "07"}, {class: "08"}]`:                                            "04b8:0202:5144463 0781:5581:4C530001",
		`devices: [{class: "08"}, {vendor: "0781"}]`:                                         "0781:5581:4C530001",
		`{devices: [{class: "08"}], identity: port}`:                                         "0781:5581@pci-0000:00:14.0-usbv3-0:1",
		`{devices: [{class: ef}]}`:                                                           "046d:0825:6D0A2B40", // of the device
		`{devices: [{vendor: "05e3"}]}`:                                                      "05e3:0608@" + port + "1",
		`{devices: [{vendor: 1d6b, product: "0003"}], identity: port}`:                       "1d6b:0003@pci-0000:00:14.0-usbv3-0:0",
		`{devices: [{vendor: "10c4"}], node: tty}`:                                           "10c4:8a2a:C0D1 " + zigbeeID,
		`{devices: [{vendor: "046d"}, {class: "03"}], node: hidraw}`:                         "1050:0407@" + port + "4", // the webcam has none
		`{devices: [{vendor: "10c4", product: "8a2a", serial: C0D1}], node: scsi_generic}`:   "",
		`{devices: [{vendor: "0781", product: "5581", serial: 4C530001}], node: block}`:      "0781:5581:4C530001",
		`{devices: [{vendor: "1a86", product: "7523", serial: ""}, {vendor: "1a86"}]}`:       "1a86:7523@" + port + "1.1 1a86:7523@" + port + "1.10",
		`{devices: [{vendor: "1a86", product: "7523", serial: "x"}], containerPath: /dev/x}`: "",
	} {
		found, warnings := find(t, plugged(t, everything...), details)
		got := strings.Join(slices.Sorted(maps.Keys(found)), " ")
		if got != want {
			t.Errorf("%s:\n got %s\nwant %s", details, got, want)
		}
		if len(warnings) > 0 {
			t.Errorf("%s: warned %q", details, warnings)
		}
	}
}

// shape is a device in lines: where containers see each node, and the properties.
func shape(m *sysfstest.Machine, d discovery.Device) string {
	var lines []string
	for _, s := range d.DeviceSpecs {
		lines = append(lines, fmt.Sprintf("%s -> %s %s", strings.TrimPrefix(s.HostPath, m.Tree.Dev+"/"), s.ContainerPath, s.Permissions))
	}
	for _, key := range slices.Sorted(maps.Keys(d.Properties)) {
		lines = append(lines, key+"="+d.Properties[key])
	}
	return strings.Join(lines, "\n")
}

func TestNodesAndProperties(t *testing.T) {
	for _, tc := range []struct{ recording, details, want string }{{
		"zigbee", `{devices: [{vendor: "10c4"}], containerPath: /dev/zigbee}`, `
ttyUSB2 -> /dev/zigbee rwm
bus/usb/001/007 -> /dev/bus/usb/001/007 rwm
USB_BUS_DEVICE=/dev/bus/usb/001/007
USB_MANUFACTURER=Silicon Labs
USB_MODEL=CP2102 USB to UART Bridge Controller
USB_NODE=/dev/zigbee
USB_PORT=1-2
USB_PORT_PATH=pci-0000:00:14.0-usbv2-0:2
USB_PRODUCT=ea60
USB_SERIAL=0001
USB_TTY=/dev/zigbee
USB_VENDOR=10c4`,
	}, {
		// In the order of the interfaces, whatever the kernel calls the nodes.
		"two-radios", `{devices: [{vendor: "10c4", containerPath: /dev/radio}], containerPath: /dev/x}`, `
ttyUSB11 -> /dev/radio rwm
ttyUSB9 -> /dev/radio1 rwm
bus/usb/001/008 -> /dev/bus/usb/001/008 rwm
USB_BUS_DEVICE=/dev/bus/usb/001/008
USB_MANUFACTURER=Silicon Labs
USB_MODEL=HubZ Smart Home Controller
USB_NODE=/dev/radio
USB_PORT=1-3
USB_PORT_PATH=pci-0000:00:14.0-usbv2-0:3
USB_PRODUCT=8a2a
USB_SERIAL=C0D1
USB_TTY=/dev/radio
USB_TTY_1=/dev/radio1
USB_VENDOR=10c4`,
	}, {
		"security-key", `{devices: [{class: "03"}]}`, `
hidraw0 -> /dev/hidraw0 rwm
hidraw1 -> /dev/hidraw1 rwm
input/event5 -> /dev/input/event5 rwm
bus/usb/001/010 -> /dev/bus/usb/001/010 rwm
USB_BUS_DEVICE=/dev/bus/usb/001/010
USB_HIDRAW=/dev/hidraw0
USB_HIDRAW_1=/dev/hidraw1
USB_INPUT=/dev/input/event5
USB_MANUFACTURER=Yubico
USB_MODEL=YubiKey OTP+FIDO+CCID
USB_NODE=/dev/hidraw0
USB_PORT=1-4
USB_PORT_PATH=pci-0000:00:14.0-usbv2-0:4
USB_PRODUCT=0407
USB_VENDOR=1050`,
	}, {
		"security-key", `{devices: [{class: "03"}], node: bus, containerPath: /dev/key}`, `
hidraw0 -> /dev/hidraw0 rwm
hidraw1 -> /dev/hidraw1 rwm
input/event5 -> /dev/input/event5 rwm
bus/usb/001/010 -> /dev/key rwm
USB_BUS_DEVICE=/dev/key
USB_HIDRAW=/dev/hidraw0
USB_HIDRAW_1=/dev/hidraw1
USB_INPUT=/dev/input/event5
USB_MANUFACTURER=Yubico
USB_MODEL=YubiKey OTP+FIDO+CCID
USB_NODE=/dev/key
USB_PORT=1-4
USB_PORT_PATH=pci-0000:00:14.0-usbv2-0:4
USB_PRODUCT=0407
USB_VENDOR=1050`,
	}, {
		"webcam", `{devices: [{class: 0e}], containerPath: /dev/camera}`, `
video0 -> /dev/camera rwm
video1 -> /dev/camera1 rwm
snd/controlC1 -> /dev/snd/controlC1 rwm
snd/pcmC1D0c -> /dev/snd/pcmC1D0c rwm
media0 -> /dev/media0 rwm
bus/usb/001/011 -> /dev/bus/usb/001/011 rwm
USB_BUS_DEVICE=/dev/bus/usb/001/011
USB_MEDIA=/dev/media0
USB_MODEL=Webcam C270
USB_NODE=/dev/camera
USB_PORT=1-5
USB_PORT_PATH=pci-0000:00:14.0-usbv2-0:5
USB_PRODUCT=0825
USB_SERIAL=6D0A2B40
USB_SOUND=/dev/snd/controlC1
USB_SOUND_1=/dev/snd/pcmC1D0c
USB_VENDOR=046d
USB_VIDEO=/dev/camera
USB_VIDEO_1=/dev/camera1`,
	}, {
		"printer", `{devices: [{class: "07"}], containerPath: /dev/printer}`, `
usb/lp0 -> /dev/printer rwm
bus/usb/001/013 -> /dev/bus/usb/001/013 rwm
USB_BUS_DEVICE=/dev/bus/usb/001/013
USB_MANUFACTURER=EPSON
USB_MISC=/dev/printer
USB_MODEL=TM-T88V
USB_NODE=/dev/printer
USB_PORT=1-6
USB_PORT_PATH=pci-0000:00:14.0-usbv2-0:6
USB_PRODUCT=0202
USB_SERIAL=5144463
USB_VENDOR=04b8`,
	}, {
		"disk", `{devices: [{class: "08"}], containerPath: /dev/disk}`, `
sda -> /dev/disk rwm
sda1 -> /dev/disk1 rwm
sda2 -> /dev/disk2 rwm
sda10 -> /dev/disk3 rwm
sg0 -> /dev/sg0 rwm
bus/usb/002/002 -> /dev/bus/usb/002/002 rwm
USB_BLOCK=/dev/disk
USB_BLOCK_1=/dev/disk1
USB_BLOCK_2=/dev/disk2
USB_BLOCK_3=/dev/disk3
USB_BUS_DEVICE=/dev/bus/usb/002/002
USB_MANUFACTURER=SanDisk
USB_MODEL=Ultra
USB_NODE=/dev/disk
USB_PORT=2-1
USB_PORT_PATH=pci-0000:00:14.0-usbv3-0:1
USB_PRODUCT=5581
USB_SCSI_GENERIC=/dev/sg0
USB_SERIAL=4C530001
USB_VENDOR=0781`,
	}, {
		// What is behind a hub is not the hub's.
		"hub", `{devices: [{vendor: "05e3"}]}`, `
bus/usb/001/002 -> /dev/bus/usb/001/002 rwm
USB_BUS_DEVICE=/dev/bus/usb/001/002
USB_MANUFACTURER=GenesysLogic
USB_MODEL=USB2.0 Hub
USB_NODE=/dev/bus/usb/001/002
USB_PORT=1-1
USB_PORT_PATH=pci-0000:00:14.0-usbv2-0:1
USB_PRODUCT=0608
USB_VENDOR=05e3`,
	}} {
		t.Run(tc.recording, func(t *testing.T) {
			m := plugged(t, tc.recording)
			if tc.recording == "hub" {
				m.Add(t, recording(t, "ch340-left"))
			}
			found, _ := find(t, m, tc.details)
			if len(found) != 1 {
				t.Fatalf("%d devices found, want 1", len(found))
			}
			for _, device := range found {
				if diff := cmp.Diff(strings.TrimSpace(tc.want), shape(m, device)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.details, diff)
				}
			}
		})
	}
}

// The recordings that the udev handler is tested with.
func TestRecordingOfTheUdevHandler(t *testing.T) {
	m := sysfstest.New(t, sysfstest.Recording(t, "serial"), sysfstest.Recording(t, "camera"))
	found, _ := find(t, m, `devices: [{vendor: "0403", product: "6001"}, {vendor: 046d}]`)
	want := []string{"0403:6001:A50285BI", "046d:082d:AA5A2F0F", "046d:082d:C0FFEE10", "046d:082d:D15EA5E5"}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(found))); diff != "" {
		t.Fatalf("devices (-want +got):\n%s", diff)
	}
	if got := found["0403:6001:A50285BI"].Properties["USB_TTY"]; got != "/dev/ttyUSB0" {
		t.Errorf("USB_TTY is %q, want /dev/ttyUSB0", got)
	}
}

// Two sticks of one serial number would be one device: where nobody knows which came first, both go by
// their ports.
func TestTheSameSerialNumberTwice(t *testing.T) {
	m := plugged(t, "zigbee", "zigbee-clone")
	found, warnings := find(t, m, `devices: [{vendor: "10c4"}]`)
	want := []string{"10c4:ea60@" + port + "12", "10c4:ea60@" + port + "2"}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(found))); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], "1-12, 1-2") || !strings.Contains(warnings[0], "identity: port") {
		t.Errorf("warnings %q, want one with the ports and the way out", warnings)
	}
	if got := found[want[1]].Properties["USB_TTY"]; got != "/dev/ttyUSB2" {
		t.Errorf("the one at port 1-2 has %s, want /dev/ttyUSB2", got)
	}
}

// What a device says of itself is foreign input.
func TestStringsThatAreNoWords(t *testing.T) {
	m := plugged(t, "zigbee")
	const stick = "/devices/pci0000:00/0000:00:14.0/usb1/1-2"
	m.SetAttr(t, stick, "serial", "  a\nb\x00c\xff/../d\u202e ")
	m.SetAttr(t, stick, "manufacturer", " \t ")
	found, _ := find(t, m, `devices: [{vendor: "10c4"}]`)
	device, ok := found["10c4:ea60:a_b_c_/../d_"]
	if !ok {
		t.Fatalf("found %v", slices.Sorted(maps.Keys(found)))
	}
	if value, ok := device.Properties[ManufacturerProperty]; ok {
		t.Errorf("manufacturer %q, want none", value)
	}
	m.SetAttr(t, stick, "serial", "   ")
	found, _ = find(t, m, `devices: [{vendor: "10c4"}]`)
	if _, ok := found["10c4:ea60@"+port+"2"]; !ok {
		t.Errorf("a blank serial number: found %v, want one by port", slices.Sorted(maps.Keys(found)))
	}
}

func TestBadDetails(t *testing.T) {
	for details, want := range map[string]string{
		``:                                                                    "devices has 0 items",
		`devices: 3`:                                                          "devices",
		`devices: [{}]`:                                                       "devices[0] selects every device",
		`devices: [{serial: "0001"}]`:                                         "devices[0] selects every device",
		`devices: [{vendor: 0403}]`:                                           "259 is not a string: want hexadecimal digits in quotes",
		`devices: [{vendor: 6001}]`:                                           "6001 is not a string",
		`devices: [{vendor: "xyz"}]`:                                          `"xyz" is not a number of 4 hexadecimal digits`,
		`devices: [{vendor: "10c4a"}]`:                                        "not a number of 4 hexadecimal digits",
		`devices: [{class: "100"}]`:                                           "not a number of 2 hexadecimal digits",
		`devices: [{vendor: ["10c4"]}]`:                                       "is not a string",
		`devices: [{product: "ea60"}]`:                                        "devices[0] has a product but no vendor",
		`devices: [{vendor: "1", x: 1}]`:                                      "",
		`{devices: [], containerPath: dev/zigbee}`:                            "containerPath is",
		`{devices: [], containerPath: /dev/../etc}`:                           "want a path below /dev",
		`{devices: [], containerPath: /dev/}`:                                 "want a path below /dev",
		`{devices: [], containerPath: /dev}`:                                  "want a path below /dev",
		`{devices: [], containerPath: /etc/passwd}`:                           "want a path below /dev",
		`{devices: [{vendor: "1", containerPath: /x}]}`:                       "devices[0]: containerPath",
		`{devices: [], identity: name}`:                                       "identity is \"name\": want serial or port",
		`{devices: [], node: "/dev/x"}`:                                       "node is",
		`{devices: [` + strings.Repeat(`{vendor: "1"}, `, 257) + `]}`:         "devices has 257 items",
		`{devices: [{vendor: "1"}], devices: [{vendor: "2"}]}`:                "devices",
		`{devices: [], containerPath: /dev/` + strings.Repeat("x", 300) + `}`: "containerPath",
	} {
		_, err := parse(discovery.Request{Details: details})
		if want == "" {
			if err != nil {
				t.Errorf("%s: %v", details, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, discovery.ErrInvalid) {
			t.Errorf("%.100s:\n got %v\nwant an error with %q that wraps ErrInvalid", details, err, want)
		}
	}
}

func TestWhatIsUSB(t *testing.T) {
	for path, want := range map[string]bool{
		"/devices/pci0000:00/0000:00:14.0/usb1":                 true,
		"/devices/pci0000:00/0000:00:14.0/usb12/12-1/12-1:1.0":  true,
		"/devices/platform/vhci_hcd.0/usb3/3-1":                 true,
		"/devices/pci0000:00/0000:00:14.0":                      false,
		"/devices/platform/usbphy0":                             false,
		"/devices/platform/fe980000.usb":                        false,
		"/devices/platform/usbphy0/usb1":                        true,
		"/devices/virtual/net/usb":                              false,
		"/devices/virtual/block/loop0":                          false,
		"/devices/platform/soc/usb-controller/usbmisc/cdc-wdm0": false,
	} {
		if got := ofUSB.MatchString(path); got != want {
			t.Errorf("%q is of USB: %t, want %t", path, got, want)
		}
	}
}

func FuzzDetails(f *testing.F) {
	f.Add(`{devices: [{vendor: "10c4", product: ea60, serial: "1", class: "03", port: 1-2}], containerPath: /dev/x, identity: port, node: tty}`)
	f.Add(`devices: [{vendor: 0403}]`)
	f.Fuzz(func(t *testing.T, text string) {
		d, err := parse(discovery.Request{Details: text})
		if err != nil && !errors.Is(err, discovery.ErrInvalid) {
			t.Fatalf("parse(%q) = %v, which is not ErrInvalid", text, err)
		}
		if err == nil {
			for _, s := range d.Devices {
				if s.Vendor != "" && len(s.Vendor) != 4 || s.Class != "" && len(s.Class) != 2 {
					t.Errorf("parse(%q): %+v", text, s)
				}
			}
		}
	})
}
