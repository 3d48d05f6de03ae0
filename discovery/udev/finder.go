package udev

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/sysfs"
	"github.com/kubeslot/kubeslot/discovery/uevent"
)

// Properties of found devices: Akri's names.
const (
	// devnodeProperty is the device node. Of a group, each has its number behind it.
	devnodeProperty = "UDEV_DEVNODE"

	// devpathProperty is the device's path in sysfs, without /sys.
	devpathProperty = "UDEV_DEVPATH"
)

// finder knows which devices a search selects. Not safe for concurrent use.
type finder struct {
	tree   sysfs.Tree
	search *search

	// warn tells the Configuration's author something, once.
	warn func(format string, args ...any)

	// selected are the devices that a rule selects, by path.
	selected map[string]*sysfs.Device

	// numbers are those of each group's members, by the paths of both, so that a member
	// keeps its number while others come and go.
	numbers map[string]map[string]int

	warnedOfGroup bool // that a PCI device has no IOMMU group
}

func newFinder(tree sysfs.Tree, s *search, warn func(format string, args ...any)) *finder {
	return &finder{tree: tree, search: s, warn: warn, selected: map[string]*sysfs.Device{}, numbers: map[string]map[string]int{}}
}

// apply looks at the devices that changed, and reports whether one that is or was
// selected is among them. It stops early when ctx ends.
func (f *finder) apply(ctx context.Context, change uevent.Change) (changed bool) {
	if change.All {
		changed = true
		clear(f.selected)
	}
	for _, path := range change.Gone {
		changed = changed || f.selected[path] != nil
		delete(f.selected, path)
	}
	for _, d := range change.Devices {
		if ctx.Err() != nil {
			return changed
		}
		if slices.ContainsFunc(f.search.rules, func(r *rule) bool { return r.matches(d) }) {
			changed = true
			f.selected[d.Path()] = d
		} else {
			changed = changed || f.selected[d.Path()] != nil
			delete(f.selected, d.Path())
		}
	}
	return changed
}

// devices returns what to report, sorted by ID.
func (f *finder) devices() []discovery.Device {
	members := f.members()
	var groups [][]*sysfs.Device
	for _, d := range members {
		// Sorted by path, so that the topmost device of a group comes first.
		if last := len(groups) - 1; f.search.group && last >= 0 && d.IsBelow(groups[last][0].Path()) {
			groups[last] = append(groups[last], d)
		} else {
			groups = append(groups, []*sysfs.Device{d})
		}
	}
	devices := make([]discovery.Device, 0, len(groups))
	numbers := map[string]map[string]int{}
	for _, group := range groups {
		top := group[0]
		device := discovery.Device{ID: top.Path(), Properties: map[string]string{devpathProperty: top.Path()}}
		if !f.search.group {
			f.describe(&device, top, "")
		} else {
			numbers[top.Path()] = assignNumbers(group, f.numbers[top.Path()])
			f.describeGroup(&device, group, numbers[top.Path()])
		}
		devices = append(devices, device)
	}
	f.numbers = numbers
	return devices
}

// members are the selected devices, sorted so that a device comes right before all
// below it. One without a device node stands for its nearest parent that has one, unless
// a device below it has the node.
func (f *finder) members() []*sysfs.Device {
	members := make(map[string]*sysfs.Device, len(f.selected))
	nodeBelow := f.withNodeBelow()
	for path, d := range f.selected {
		if !nodeBelow[path] {
			d = withNode(d)
			members[d.Path()] = d
		}
	}
	return slices.SortedFunc(maps.Values(members), func(a, b *sysfs.Device) int {
		return sysfs.ComparePaths(a.Path(), b.Path())
	})
}

// withNode is the device or its nearest parent that has a device node; the device, if
// there is none.
func withNode(d *sysfs.Device) *sysfs.Device {
	for parent := d; parent != nil; parent = parent.Parent() {
		if parent.Node() != "" {
			return parent
		}
	}
	return d
}

// withNodeBelow are the paths of selected devices without a device node below which a
// selected device of the same name has one. The kernel has both for one thing, such as
// usb-serial's ttyUSB0 and tty's: the latter is reported. A group has both anyway.
func (f *finder) withNodeBelow() map[string]bool {
	paths := map[string]bool{}
	if f.search.group {
		return paths
	}
	for _, d := range f.selected {
		if d.Node() == "" {
			continue
		}
		for parent := d.Parent(); parent != nil; parent = parent.Parent() {
			if parent.Name() == d.Name() && parent.Node() == "" {
				paths[parent.Path()] = true
			}
		}
	}
	return paths
}

// describeGroup adds what containers get of all members.
func (f *finder) describeGroup(device *discovery.Device, group []*sysfs.Device, numbers map[string]int) {
	inOrder := slices.SortedFunc(slices.Values(group), func(a, b *sysfs.Device) int {
		return cmp.Compare(numbers[a.Path()], numbers[b.Path()])
	})
	for _, d := range inOrder {
		if i, ok := numbers[d.Path()]; ok {
			f.describe(device, d, "_"+strconv.Itoa(i))
		} else {
			f.describe(device, d, "")
		}
	}
	f.joinAddresses(device, inOrder)
}

// describe adds what containers get of one device: its node, and what KubeVirt needs.
// suffix goes behind the names of properties.
func (f *finder) describe(device *discovery.Device, d *sysfs.Device, suffix string) {
	if node := d.Node(); node != "" {
		device.Properties[devnodeProperty+suffix] = node
		device.DeviceSpecs = append(device.DeviceSpecs, discovery.DeviceSpec{
			ContainerPath: node, HostPath: d.HostNode(), Permissions: f.search.permissions,
		})
	}
	f.describeForKubeVirt(device, d, suffix)
}

// assignNumbers returns the members' numbers: those that had one keep it, and the others take
// the lowest that are free, in the order of their paths. A member without a node has no
// number.
func assignNumbers(group []*sysfs.Device, before map[string]int) map[string]int {
	numbers, used := make(map[string]int, len(group)), map[int]bool{}
	for _, d := range group {
		if i, ok := before[d.Path()]; ok && d.Node() != "" {
			numbers[d.Path()], used[i] = i, true
		}
	}
	next := 0
	for _, d := range group {
		if _, ok := numbers[d.Path()]; ok || d.Node() == "" {
			continue
		}
		for used[next] {
			next++
		}
		numbers[d.Path()], used[next] = next, true
	}
	return numbers
}
