package usb

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kubeslot/kubeslot/discovery/sysfs"
)

// kinds are kinds of device nodes, in the order in which they are a device's main node.
// Others follow, and last the node that libusb uses.
var kinds = []string{"tty", "video", "hidraw", "misc", "block", "sound", "input"}

// busKind is the kind of the node by which a program talks to the device itself:
// /dev/bus/usb/001/004.
const busKind = "bus"

// kindOf is the kind of a subsystem's nodes.
func kindOf(subsystem string) string {
	switch subsystem {
	case "usb":
		return busKind
	case "video4linux":
		return "video"
	case "usbmisc":
		return "misc" // printers: usb/lp0, modems: cdc-wdm0
	}
	return subsystem
}

// usbDevice is a USB device with the device nodes of its functions.
type usbDevice struct {
	path            string // in sysfs
	vendor, product string // four hexadecimal digits
	serial          string // "" if the device has none
	manufacturer    string
	model           string
	classes         map[string]bool // two hexadecimal digits: the device's and its interfaces'
	port            string          // as the kernel names it: "1-2.4"
	portPath        string          // the same after a reboot: "pci-0000:00:14.0-usbv2-0:2.4"
	nodes           []node          // sorted: kind by kind, in each by interface
}

// node is a device node.
type node struct {
	kind     string
	path     string // as programs know it
	hostPath string
	order    string // of its path below the USB device
}

// maxNodes bounds the nodes of one device: a disk may say that it has many partitions.
const maxNodes = 64

// usbDevices returns the USB devices among devices, sorted by path. The nodes of a
// device behind a hub are its own, not the hub's.
func usbDevices(devices map[string]*sysfs.Device) []*usbDevice {
	all := map[string]*usbDevice{}
	for p, d := range devices {
		if d.Property("DEVTYPE") != "usb_device" {
			continue
		}
		if u := newUSBDevice(d, devices); u != nil {
			all[p] = u
		}
	}
	for p, d := range devices {
		owner := ownerOf(p, all)
		if owner == nil {
			continue
		}
		if d.Property("DEVTYPE") == "usb_interface" {
			class, _ := d.Attr("bInterfaceClass")
			owner.classes[strings.ToLower(class)] = true
		}
		if d.Node() != "" {
			owner.nodes = append(owner.nodes, node{
				kind: kindOf(d.Subsystem()), path: d.Node(), hostPath: d.HostNode(), order: strings.TrimPrefix(p, owner.path)})
		}
	}
	sorted := make([]*usbDevice, 0, len(all))
	for _, u := range all {
		slices.SortFunc(u.nodes, compareNodes)
		u.nodes = u.nodes[:min(len(u.nodes), maxNodes)]
		sorted = append(sorted, u)
	}
	slices.SortFunc(sorted, func(a, b *usbDevice) int { return strings.Compare(a.path, b.path) })
	return sorted
}

// newUSBDevice returns nil for a device that is vanishing.
func newUSBDevice(d *sysfs.Device, devices map[string]*sysfs.Device) *usbDevice {
	vendor, hasVendor := d.Attr("idVendor")
	product, hasProduct := d.Attr("idProduct")
	if !hasVendor || !hasProduct {
		return nil
	}
	u := &usbDevice{
		path: d.Path(), vendor: strings.ToLower(vendor), product: strings.ToLower(product),
		serial: text(d, "serial"), manufacturer: text(d, "manufacturer"), model: text(d, "product"),
		classes: map[string]bool{}, port: path.Base(d.Path()),
	}
	if class, ok := d.Attr("bDeviceClass"); ok {
		u.classes[strings.ToLower(class)] = true
	}
	u.portPath = portPath(d, devices)
	return u
}

// ownerOf is the USB device that a path is of: itself or the nearest above it.
func ownerOf(p string, all map[string]*usbDevice) *usbDevice {
	for ; len(p) > 1; p = path.Dir(p) {
		if u := all[p]; u != nil {
			return u
		}
	}
	return nil
}

// portPath is where the device is plugged in, counted from its controller: udevd's
// ID_PATH_WITH_USB_REVISION without the interface. Bus numbers, as in 1-2.4, depend on
// the order in which the kernel finds controllers. The revision, that of the root hub,
// tells the two halves of a USB 3 hub apart.
func portPath(d *sysfs.Device, devices map[string]*sysfs.Device) string {
	bus, chain, isPort := strings.Cut(path.Base(d.Path()), "-")
	rootPath := d.Path()
	if !isPort {
		chain = "0"
	} else if before, _, ok := strings.Cut(d.Path(), "/usb"+bus+"/"); ok {
		rootPath = before + "/usb" + bus
	}
	root := devices[rootPath]
	if root == nil {
		return path.Base(d.Path())
	}
	revision := "usb"
	if product, _ := root.Attr("idProduct"); len(product) == 4 && product[0] == '0' {
		revision = "usbv" + product[3:] // root hubs are 1d6b:0001, 0002 and 0003
	}
	controller := path.Base(path.Dir(rootPath))
	if parent := root.Parent(); parent != nil && parent.Subsystem() != "" {
		controller = parent.Subsystem() + "-" + path.Base(parent.Path())
	}
	return controller + "-" + revision + "-0:" + chain
}

// text is an attribute that the device itself provides, as a word that IDs and
// environment variables can hold: what is not printable becomes "_".
func text(d *sysfs.Device, attribute string) string {
	value, _ := d.Attr(attribute)
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '_'
		}
		return r
	}, strings.TrimSpace(value))
}

func compareNodes(a, b node) int {
	return cmp.Or(
		cmp.Compare(rankOf(a.kind), rankOf(b.kind)),
		strings.Compare(a.kind, b.kind),
		sysfs.ComparePaths(a.order, b.order),
	)
}

func rankOf(kind string) int {
	if i := slices.Index(kinds, kind); i >= 0 {
		return i
	}
	if kind == busKind {
		return len(kinds) + 1
	}
	return len(kinds)
}
