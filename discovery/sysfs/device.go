package sysfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// maxFileBytes bounds what is read of one file. Attributes have at most a page, but
// binary ones, such as firmware, can have any size.
const maxFileBytes = 64 << 10

// Device is one device of the kernel as it was when it was read. Attributes are read
// when they are first asked for and are then kept. It is safe for concurrent use.
type Device struct {
	path       string
	subsystem  string
	driver     string
	properties map[string]string
	tags       []string

	// snapshot is where the device finds its parent.
	snapshot *Snapshot

	mu         sync.Mutex
	attributes map[string]attribute
}

type attribute struct {
	value string
	there bool
}

// load reads the device at a path below Sys.
func (s *Snapshot) load(devicePath string) (*Device, error) {
	d := &Device{path: devicePath, snapshot: s}
	uevent, err := readFile(d.file("uevent"))
	if err != nil {
		return nil, fmt.Errorf("read device %s: %w", devicePath, err)
	}
	d.properties = parseProperties(uevent, 8)
	d.subsystem = d.link("subsystem")
	d.driver = d.link("driver")
	d.properties["DEVPATH"] = devicePath
	if d.subsystem != "" {
		d.properties["SUBSYSTEM"] = d.subsystem
	}
	if node := d.nodeName(); node != "" {
		d.properties["DEVNAME"] = DefaultDev + "/" + node
	} else {
		delete(d.properties, "DEVNAME")
	}
	d.readUdevData()
	return d, nil
}

// Path is where the device is below Sys: "/devices/pci0000:00/…". It is what uevents
// and udev rules call DEVPATH.
func (d *Device) Path() string { return d.path }

// Name is the kernel's name of the device, such as "sda": the last element of its path,
// with "!" turned to "/", as udev rules see it in KERNEL.
func (d *Device) Name() string { return strings.ReplaceAll(path.Base(d.path), "!", "/") }

// Subsystem is the bus or class, such as "tty", or "" if the device has none.
func (d *Device) Subsystem() string { return d.subsystem }

// Driver is the name of the driver bound to the device, or "".
func (d *Device) Driver() string { return d.driver }

// Node is the device node as programs know it, such as "/dev/bus/usb/001/002", or "" if
// the device has none. It does not say whether the file is there.
func (d *Device) Node() string { return d.properties["DEVNAME"] }

// HostNode is where the node is on this machine: Node, but below Tree.Dev. It is ""
// when there is no node.
func (d *Device) HostNode() string {
	if d.Node() == "" {
		return ""
	}
	return d.snapshot.tree.HostNode(d.Node())
}

// nodeName is the node's path below /dev, or "". A path that leads out of /dev is none.
func (d *Device) nodeName() string {
	name := strings.TrimPrefix(d.properties["DEVNAME"], DefaultDev+"/")
	if name == "" || !filepath.IsLocal(name) {
		return ""
	}
	return path.Clean(name)
}

// DevNum is the device number, for example {188, 0}; ok is false for a device without.
func (d *Device) DevNum() (major, minor uint32, ok bool) {
	ma, err := strconv.ParseUint(d.properties["MAJOR"], 10, 32)
	mi, err2 := strconv.ParseUint(d.properties["MINOR"], 10, 32)
	if err != nil || err2 != nil {
		return 0, 0, false
	}
	return uint32(ma), uint32(mi), true
}

// Property is a property's value, from the kernel or from udevd's database, or "".
func (d *Device) Property(key string) string { return d.properties[key] }

// Properties are all properties. The caller must not change the map.
func (d *Device) Properties() map[string]string { return d.properties }

// Tags are the tags that udevd's rules gave the device, sorted. The caller must not
// change them.
func (d *Device) Tags() []string { return d.tags }

// Attr is the value of an attribute, without the newlines at its end. name may have
// slashes, such as "power/control". It is not there if the device has no such file, and
// also if the file cannot be read. Of links only driver, subsystem, module and
// iommu_group can be read; their value is the last element of where they lead.
func (d *Device) Attr(name string) (string, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a, ok := d.attributes[name]; ok {
		return a.value, a.there
	}
	var a attribute
	a.value, a.there = d.readAttr(name)
	if d.attributes == nil {
		d.attributes = map[string]attribute{}
	}
	d.attributes[name] = a
	return a.value, a.there
}

func (d *Device) readAttr(name string) (string, bool) {
	// The name comes from a Configuration's author, who is not to read other files.
	if !filepath.IsLocal(name) || path.Clean(name) != name {
		return "", false
	}
	info, err := os.Lstat(d.file(name))
	switch {
	case err != nil:
		return "", false
	case info.Mode()&fs.ModeSymlink != 0:
		switch name {
		case "driver", "subsystem", "module", "iommu_group":
			value := d.link(name)
			return value, value != ""
		}
		return "", false
	case !info.Mode().IsRegular() || info.Mode().Perm()&0o400 == 0:
		return "", false
	}
	value, err := readFile(d.file(name))
	if err != nil {
		return "", false
	}
	return strings.TrimRight(value, "\r\n"), true
}

// Parent is the nearest device above this one in the tree, or nil.
func (d *Device) Parent() *Device { return d.snapshot.parent(d) }

// IsBelow reports whether the device at path is an ancestor's: usb1/1-1 is not one of
// usb1/1-10.
func (d *Device) IsBelow(ancestor string) bool {
	return isBelow(d.path, ancestor)
}

func (d *Device) file(name string) string { return d.snapshot.tree.Sys + d.path + "/" + name }

// link is the last element of where a link of the device leads, or "".
func (d *Device) link(name string) string {
	target, err := os.Readlink(d.file(name))
	if err != nil {
		return ""
	}
	return path.Base(target)
}

// readUdevData adds what udevd knows: properties (E:) and tags (G:), see the file
// sd-device/device-private.c of systemd.
func (d *Device) readUdevData() {
	id := d.udevID()
	if id == "" {
		return
	}
	data, err := readFile(filepath.Join(d.snapshot.tree.UdevData, id))
	if err != nil {
		return
	}
	var links []string
	for line := range strings.Lines(data) {
		kind, value, ok := strings.Cut(strings.TrimRight(line, "\n"), ":")
		if !ok {
			continue
		}
		switch kind {
		case "E":
			key, value, ok := strings.Cut(value, "=")
			if ok && key != "" && key != "DEVPATH" && key != "DEVNAME" && key != "SUBSYSTEM" {
				d.properties[key] = value
			}
		case "G":
			d.tags = append(d.tags, value)
		case "S":
			links = append(links, DefaultDev+"/"+value)
		}
	}
	if len(d.tags) > 0 {
		slices.Sort(d.tags)
		d.tags = slices.Compact(d.tags)
		d.properties["TAGS"] = ":" + strings.Join(d.tags, ":") + ":"
	}
	if len(links) > 0 {
		slices.Sort(links)
		d.properties["DEVLINKS"] = strings.Join(links, " ")
	}
}

// udevID is the file's name in udevd's database.
func (d *Device) udevID() string {
	if major, minor, ok := d.DevNum(); ok && major > 0 {
		kind := "c"
		if d.subsystem == "block" {
			kind = "b"
		}
		return fmt.Sprintf("%s%d:%d", kind, major, minor)
	}
	if index, err := strconv.ParseUint(d.properties["IFINDEX"], 10, 31); err == nil && index > 0 {
		return "n" + strconv.FormatUint(index, 10)
	}
	if d.subsystem == "" {
		return ""
	}
	return "+" + d.subsystem + ":" + path.Base(d.path)
}

// parseProperties reads KEY=value lines.
func parseProperties(text string, extra int) map[string]string {
	properties := make(map[string]string, strings.Count(text, "\n")+extra)
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimRight(line, "\n"), "="); ok && key != "" {
			properties[key] = value
		}
	}
	return properties
}

// buffers are for readFile: most files have some 100 bytes of the page that each may have.
var buffers = sync.Pool{New: func() any { return new([maxFileBytes]byte) }}

// readFile reads the first maxFileBytes of a file. It does not block on a pipe.
func readFile(name string) (string, error) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return "", &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	buffer := buffers.Get().(*[maxFileBytes]byte)
	defer buffers.Put(buffer)
	length := 0
	for length < len(buffer) {
		n, err := unix.Read(fd, buffer[length:])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return "", &fs.PathError{Op: "read", Path: name, Err: err}
		case n == 0:
			return string(buffer[:length]), nil
		}
		length += n
	}
	return string(buffer[:length]), nil
}
