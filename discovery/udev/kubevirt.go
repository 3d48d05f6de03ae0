package udev

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/sysfs"
)

// KubeVirt's virt-launcher takes host devices whose addresses it finds in these
// environment variables. The resource's name comes behind them.
const (
	usbResourceProperty = "USB_RESOURCE_"
	pciResourceProperty = "PCI_RESOURCE_"
)

var (
	usbNode    = regexp.MustCompile(`^/dev/bus/usb/([0-9]+)/([0-9]+)$`)
	pciAddress = regexp.MustCompile(`^[0-9a-f]+:[0-9a-f]+:[0-9a-f]+\.[0-9a-f]+$`)
)

// vfioDir is the directory of device nodes by which a process takes a PCI device.
const vfioDir = "/dev/vfio"

// address returns the property and the value by which KubeVirt finds a device: bus and
// device number of a USB device, or the PCI address of one that is no USB device.
func address(d *sysfs.Device) (property, value string) {
	if match := usbNode.FindStringSubmatch(d.Node()); match != nil {
		bus, err := strconv.ParseUint(match[1], 10, 32)
		number, err2 := strconv.ParseUint(match[2], 10, 32)
		if err == nil && err2 == nil {
			return usbResourceProperty, strconv.FormatUint(bus, 10) + ":" + strconv.FormatUint(number, 10)
		}
	}
	if pci := pciDevice(d); pci != nil {
		return pciResourceProperty, path.Base(pci.Path())
	}
	return "", ""
}

// pciDevice is the PCI device that d is or is a part of, nil if d is connected by USB.
func pciDevice(d *sysfs.Device) *sysfs.Device {
	for element := range strings.SplitSeq(d.Path(), "/") {
		if strings.HasPrefix(element, "usb") {
			return nil
		}
	}
	for ; d != nil; d = d.Parent() {
		if pciAddress.MatchString(path.Base(d.Path())) {
			return d
		}
	}
	return nil
}

// describeForKubeVirt adds the device's address and VFIO nodes, where asked for.
func (f *finder) describeForKubeVirt(device *discovery.Device, d *sysfs.Device, suffix string) {
	if f.search.resource != "" {
		if property, value := address(d); property != "" {
			device.Properties[property+f.search.resource+suffix] = value
		}
	}
	if !f.search.vfio {
		return
	}
	pci := pciDevice(d)
	if pci == nil {
		return
	}
	group, ok := pci.Attr("iommu_group")
	if !ok {
		if !f.warnedOfGroup {
			f.warnedOfGroup = true
			f.warn("%s: %s has no IOMMU group, so that no virtual machine can take it: is the IOMMU on (intel_iommu=on, amd_iommu=on)?", Name, pci.Path())
		}
		return
	}
	for _, name := range []string{group, "vfio"} {
		node := vfioDir + "/" + name
		spec := discovery.DeviceSpec{ContainerPath: node, HostPath: f.tree.HostNode(node), Permissions: defaultPermissions}
		if !slices.Contains(device.DeviceSpecs, spec) {
			device.DeviceSpecs = append(device.DeviceSpecs, spec)
		}
	}
}

// joinAddresses adds the addresses of all members of a group, with commas between them,
// under the name that KubeVirt reads. Akri's handler has numbered names only.
func (f *finder) joinAddresses(device *discovery.Device, members []*sysfs.Device) {
	if f.search.resource == "" {
		return
	}
	addresses := map[string][]string{}
	for _, d := range members {
		property, value := address(d)
		if property != "" && !slices.Contains(addresses[property], value) {
			addresses[property] = append(addresses[property], value)
		}
	}
	for property, values := range addresses {
		device.Properties[property+f.search.resource] = strings.Join(values, ",")
	}
}
