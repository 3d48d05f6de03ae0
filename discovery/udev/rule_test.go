package udev

import (
	"strings"
	"testing"

	"github.com/kubeslot/kubeslot/discovery/sysfs"
	"github.com/kubeslot/kubeslot/discovery/sysfs/sysfstest"
)

// selected returns the names of the devices that a rule selects: the last element of
// their paths, and the subsystem of those that share it with another.
func selected(t *testing.T, devices []*sysfs.Device, text string) string {
	t.Helper()
	r, err := parseRule(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	var names []string
	for _, d := range devices {
		if r.matches(d) {
			name := d.Name()
			if name == "ttyUSB0" {
				name = d.Subsystem() + ":" + name
			}
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

func TestWhatRulesSelect(t *testing.T) {
	m := sysfstest.New(t, sysfstest.Recording(t, "serial"), sysfstest.Recording(t, "camera"), sysfstest.Recording(t, "pci"))
	m.Add(t, "P: /devices/virtual/block/cciss!c0d0\nN: cciss/c0d0\nE: SUBSYSTEM=block\nE: DEVTYPE=disk\nE: MAJOR=104\nE: MINOR=0\nA: model=Fast  \\n\n")
	devices := sysfstest.Devices(t, m.Tree)
	const videos = "video0 video1 video2 video3 video4 video5"
	for name, rules := range map[string]map[string]string{
		"the device itself": {
			`KERNEL=="video0"`:                                       "video0",
			`KERNEL=="video*"`:                                       videos,
			`KERNEL=="video[!0-3]"`:                                  "video4 video5",
			`KERNEL=="video0|ttyUSB0|nosuch"`:                        "usb-serial:ttyUSB0 tty:ttyUSB0 video0", // libudev has no alternatives here
			`KERNEL=="cciss/c0d0"`:                                   "cciss/c0d0",
			`SUBSYSTEM=="tty"`:                                       "tty:ttyUSB0",
			`SUBSYSTEM=="video4linux", KERNEL!="video*"`:             "",
			`DRIVER=="uvcvideo"`:                                     "2-1:1.0 2-10:1.0 2-3.1:1.0",
			`DRIVER=="", SUBSYSTEM=="tty|block"`:                     "tty:ttyUSB0 cciss/c0d0",
			`DRIVER!="usb", SUBSYSTEM=="usb"`:                        "1-2:1.0 2-1:1.0 2-10:1.0 2-3.1:1.0",
			`ATTR{idVendor}=="046d"`:                                 "2-1 2-10 2-3.1",
			`ATTR{idVendor}=="046?", ATTR{devnum}!="[67]"`:           "2-1",
			`ATTR{model}=="Fast"`:                                    "cciss/c0d0", // white space at the end does not count
			`ATTR{model}=="Fast "`:                                   "",
			`ATTR{model}=="Fast  "`:                                  "cciss/c0d0",
			`TAG=="systemd"`:                                         "tty:ttyUSB0",
			`TAG=="seat", TAG=="uaccess"`:                            videos,
			`TAG!="seat", SUBSYSTEM=="tty|video4linux"`:              "tty:ttyUSB0",
			`DEVPATH=="/devices/pci0000:00/0000:00:15.0/usb2/2-1/*"`: "2-1:1.0 video0 video1",
			`DEVPATH=="*/usb2/2-1"`:                                  "2-1",
		},
		"properties": {
			`ENV{ID_SERIAL_SHORT}=="A50285BI"`:                                  "1-2 tty:ttyUSB0",
			`ENV{ID_MODEL_ID}=="082d", ENV{ID_V4L_CAPABILITIES}=="*:capture:*"`: "video0 video2 video4", // any one of them in Akri
			`ENV{DEVTYPE}=="usb_device", ENV{ID_VENDOR_ID}=="046d"`:             "2-1 2-10 2-3.1",
			`ENV{ID_NOSUCH}=="", KERNEL=="video0"`:                              "video0",
			`ENV{ID_NOSUCH}!="x", KERNEL=="video0"`:                             "video0",
			`ENV{ID_NOSUCH}=="?*"`:                                              "",
			`ENV{ID_*_ID}=="0403"`:                                              "1-2 tty:ttyUSB0",
			`ENV{SUBSYSTEM}=="tty"`:                                             "tty:ttyUSB0",
			`ENV{MAJOR}=="81", ENV{MINOR}=="3"`:                                 "video3",
		},
		"parents": {
			`SUBSYSTEM=="video4linux", ATTRS{serial}=="C0FFEE10"`: "video2 video3",
			`SUBSYSTEM=="video4linux", KERNELS=="2-1"`:            "video0 video1",
			`SUBSYSTEM=="video4linux", KERNELS=="2-1*"`:           "video0 video1 video2 video3",
			`KERNELS=="2-3", KERNEL=="video?"`:                    "video4 video5",
			`SUBSYSTEMS=="usb-serial", KERNEL=="*"`:               "usb-serial:ttyUSB0 tty:ttyUSB0",
			`DRIVERS=="ftdi_sio", SUBSYSTEM=="tty"`:               "tty:ttyUSB0",
			`TAGS=="systemd"`:                                     "tty:ttyUSB0",
			`KERNELS=="0000:01:00.*"`:                             "0000:01:00.0 0000:01:00.1",
			// The product's parent is not the one with this driver, although both are there.
			`SUBSYSTEM=="video4linux", DRIVERS=="uvcvideo", ATTRS{idVendor}=="046d"`: "",
			`SUBSYSTEM=="video4linux", DRIVERS=="usb", ATTRS{idVendor}=="046d"`:      videos,
			// One and the same parent: the hub at 2-3 has another product.
			`KERNEL=="video*", ATTRS{idVendor}=="2109", ATTRS{idProduct}=="082d"`: "",
			`KERNEL=="video*", ATTRS{idVendor}=="2109", ATTRS{idProduct}=="2817"`: "video4 video5",
		},
		"what is not there": {
			`ATTR{nosuch}=="x"`:                   "",
			`ATTR{nosuch}!="x"`:                   "", // as in udevd; Akri's handler selects all
			`ATTRS{nosuch}!="x"`:                  "",
			`ATTR{nosuch}==""`:                    "",
			`SUBSYSTEM=="tty", SUBSYSTEMS!="tty"`: "tty:ttyUSB0", // some parent is none
			`SUBSYSTEM=="tty", KERNELS!="*USB*"`:  "tty:ttyUSB0",
			`ATTR{../../1-2/serial}=="A50285BI"`:  "",
			`ATTR{/etc/hostname}=="?*"`:           "",
		},
		"regular expressions, which Akri's handler takes, are none": {
			`KERNELS=="2-1.*", KERNEL=="video*"`:                         "", // not 2-1, nor 2-10
			`KERNELS=="2-3.*", KERNEL=="video*"`:                         "video4 video5",
			`KERNELS=="2.3", KERNEL=="video*"`:                           "",
			`SUBSYSTEM=="video4linux", ATTRS{product}==".*Webcam.*"`:     "",
			`SUBSYSTEM=="video4linux", ATTRS{serial}=="(C0FFEE|AA5A).+"`: "",
			`DRIVER=="uvc(video)?"`:                                      "",
			`KERNEL!="video[0-9]+", SUBSYSTEM=="video4linux"`:            videos,
			`TAGS=="s.*", SUBSYSTEM=="tty"`:                              "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for text, want := range rules {
				if got := selected(t, devices, text); got != want {
					t.Errorf("%s selects %q, want %q", text, got, want)
				}
			}
		})
	}
}
