package usb

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/sysfs"
	"github.com/kubeslot/kubeslot/discovery/uevent"
)

// Properties of each device. Those of further nodes are USB_<KIND> for the first of a
// kind, such as USB_TTY, USB_VIDEO, USB_HIDRAW and USB_SOUND, and USB_<KIND>_1 and so on.
// Their values are paths in the container.
const (
	VendorProperty       = "USB_VENDOR"  // four hexadecimal digits
	ProductProperty      = "USB_PRODUCT" // four hexadecimal digits
	SerialProperty       = "USB_SERIAL"
	ManufacturerProperty = "USB_MANUFACTURER"
	ModelProperty        = "USB_MODEL"
	PortProperty         = "USB_PORT"      // the kernel's name: "1-2.4"
	PortPathProperty     = "USB_PORT_PATH" // "pci-0000:00:14.0-usbv2-0:2.4"
	NodeProperty         = "USB_NODE"      // the main node
	BusDeviceProperty    = "USB_BUS_DEVICE"
)

// permissions are Akri's default of device nodes.
const permissions = "rwm"

// finder knows the USB devices of the node, and finds those of a Configuration.
type finder struct {
	details *details
	devices map[string]*sysfs.Device // below USB controllers, by path
	known   map[string]known         // what each port's last device was known by, by USB_PORT_PATH
}

// known is what a device with a serial number was known by: that, or its port when another had the
// same number.
type known struct{ serialID, id string }

// newFinder returns a finder for which devices that are still in their ports are known by what they
// were known by before.
func newFinder(d *details, before []discovery.Device) *finder {
	f := &finder{details: d, devices: map[string]*sysfs.Device{}, known: map[string]known{}}
	for _, b := range before {
		p := b.Properties
		f.know(p[PortPathProperty], known{serialID(p[VendorProperty], p[ProductProperty], p[SerialProperty]), b.ID})
	}
	return f
}

// know has the device in a port be known by an id, and none in another port any more.
func (f *finder) know(portPath string, k known) {
	maps.DeleteFunc(f.known, func(_ string, other known) bool { return other.id == k.id })
	f.known[portPath] = k
}

// apply takes over a change. It returns false if nothing of USB has changed.
func (f *finder) apply(change uevent.Change) (changed bool) {
	if change.All {
		clear(f.devices)
		changed = true
	}
	for _, p := range change.Gone {
		if _, ok := f.devices[p]; ok {
			delete(f.devices, p)
			changed = true
		}
	}
	for _, d := range change.Devices {
		if ofUSB.MatchString(d.Path()) {
			f.devices[d.Path()] = d
			changed = true
		}
	}
	return changed
}

// ofUSB matches paths of root hubs, whose names are usb and a number, and what is below them.
var ofUSB = regexp.MustCompile(`/usb[0-9]`)

// find returns the devices that the details select, by ID, and what to warn of.
func (f *finder) find() (found map[string]discovery.Device, warnings []string) {
	type match struct {
		device   *usbDevice
		selector *selector
	}
	byID := map[string][]match{}
	for _, u := range usbDevices(f.devices) {
		if s := f.details.selects(u); s != nil {
			id := f.details.id(u)
			byID[id] = append(byID[id], match{u, s})
		}
	}
	found = map[string]discovery.Device{}
	for _, wanted := range slices.Sorted(maps.Keys(byID)) {
		matches := byID[wanted]
		if len(matches) > 1 {
			var ports []string
			for _, m := range matches {
				ports = append(ports, m.device.port)
			}
			warnings = append(warnings, fmt.Sprintf(
				"the devices at ports %s have the same serial number %.64q: those that came later go by their ports; "+
					"with identity: port their names do not depend on which of them came first",
				strings.Join(ports, ", "), matches[0].device.serial))
		}
		for _, m := range matches {
			id := wanted
			// A device that containers use keeps its name while it is there.
			if k := f.known[m.device.portPath]; k.serialID == wanted {
				id = k.id
			} else if len(matches) > 1 {
				id = portID(m.device)
			}
			f.know(m.device.portPath, known{wanted, id})
			if device, ok := f.details.device(id, m.device, m.selector); ok {
				found[id] = device
			}
		}
	}
	return found, warnings
}

// id is what the device is known by: "10c4:ea60:0001", or "10c4:ea60@" and the port.
func (d *details) id(u *usbDevice) string {
	if u.serial == "" || d.Identity == byPort {
		return portID(u)
	}
	return serialID(u.vendor, u.product, u.serial)
}

func serialID(vendor, product, serial string) string { return vendor + ":" + product + ":" + serial }

func portID(u *usbDevice) string { return u.vendor + ":" + u.product + "@" + u.portPath }

// device returns the device as it is reported; ok is false if it does not have the main
// node that the details want.
func (d *details) device(id string, u *usbDevice, s *selector) (device discovery.Device, ok bool) {
	device = discovery.Device{ID: id, Properties: map[string]string{
		VendorProperty: u.vendor, ProductProperty: u.product, PortProperty: u.port, PortPathProperty: u.portPath,
	}}
	for property, value := range map[string]string{
		SerialProperty: u.serial, ManufacturerProperty: u.manufacturer, ModelProperty: u.model,
	} {
		if value != "" {
			device.Properties[property] = value
		}
	}
	main := d.Node
	if main == "" && len(u.nodes) > 0 {
		main = u.nodes[0].kind
	}
	containerPath := cmp.Or(s.ContainerPath, d.ContainerPath)
	count := map[string]int{}
	for _, n := range u.nodes {
		target := n.path
		if n.kind == main && containerPath != "" {
			target = numbered(containerPath, "", count[n.kind])
		}
		if n.kind == main && count[n.kind] == 0 {
			device.Properties[NodeProperty] = target
		}
		property := BusDeviceProperty
		if n.kind != busKind {
			property = "USB_" + discovery.EnvName(n.kind)
		}
		property = numbered(property, "_", count[n.kind])
		if _, taken := device.Properties[property]; !taken {
			device.Properties[property] = target
		}
		count[n.kind]++
		device.DeviceSpecs = append(device.DeviceSpecs, discovery.DeviceSpec{
			ContainerPath: target, HostPath: n.hostPath, Permissions: permissions})
	}
	return device, d.Node == "" || count[d.Node] > 0
}

// numbered is the text for the first, and the text, a separator and 1, 2 … for others.
func numbered(text, separator string, i int) string {
	if i == 0 {
		return text
	}
	return fmt.Sprint(text, separator, i)
}
