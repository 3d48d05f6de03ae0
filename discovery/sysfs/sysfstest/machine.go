// Package sysfstest lays out recorded devices as the files of a sysfs, a udev database
// and a /dev, for tests of what reads devices. Recordings have the format of
// umockdev-record.
package sysfstest

import (
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubeslot/kubeslot/discovery/sysfs"
)

//go:embed recordings/*.umockdev
var recordings embed.FS

// Recording returns one of the recordings beside this file, by its name without
// ".umockdev": "camera" (two webcams beside each other, and one behind a hub), "serial"
// (a USB serial adapter), "pci" (a GPU and its audio function, in one IOMMU group).
func Recording(tb testing.TB, name string) string {
	tb.Helper()
	text, err := recordings.ReadFile("recordings/" + name + ".umockdev")
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

// Devices returns the tree's devices as they are now, sorted by Path.
func Devices(tb testing.TB, tree sysfs.Tree) []*sysfs.Device {
	tb.Helper()
	snapshot, err := tree.Snapshot()
	if err != nil {
		tb.Fatal(err)
	}
	return snapshot.Devices()
}

// Machine is a directory with the files of recorded devices.
type Machine struct {
	Tree sysfs.Tree
}

// New lays out recordings in a temporary directory.
func New(tb testing.TB, texts ...string) *Machine {
	tb.Helper()
	m := At(tb.TempDir())
	if err := os.MkdirAll(filepath.Join(m.Tree.Sys, "bus"), 0o755); err != nil {
		tb.Fatal(err)
	}
	m.Add(tb, texts...)
	return m
}

// At is the Machine in a directory, which need not exist.
func At(root string) *Machine {
	return &Machine{Tree: sysfs.Tree{
		Sys:      filepath.Join(root, "sys"),
		UdevData: filepath.Join(root, "run/udev/data"),
		Dev:      filepath.Join(root, "dev"),
	}}
}

// Add plugs in the devices of recordings.
func (m *Machine) Add(tb testing.TB, texts ...string) {
	tb.Helper()
	for _, text := range texts {
		for i, block := range strings.Split(text, "\n\n") {
			if strings.TrimSpace(block) == "" {
				continue
			}
			d, err := parse(block)
			if err == nil {
				err = m.write(d)
			}
			if err != nil {
				tb.Fatalf("recorded device %d: %v", i, err)
			}
		}
	}
}

// Remove unplugs the device at a path like "/devices/…", and all below it.
func (m *Machine) Remove(tb testing.TB, devicePath string) {
	tb.Helper()
	for _, d := range Devices(tb, m.Tree) {
		if d.Path() != devicePath && !d.IsBelow(devicePath) {
			continue
		}
		entry := m.entry(d.Subsystem(), path.Base(d.Path()))
		if err := errors.Join(os.Remove(entry), os.RemoveAll(m.data(d.Subsystem(), d.Path(), d.Properties()))); err != nil {
			tb.Fatal(err)
		}
		if node := d.HostNode(); node != "" {
			if err := os.Remove(node); err != nil {
				tb.Fatal(err)
			}
		}
	}
	if err := os.RemoveAll(m.Tree.Sys + devicePath); err != nil {
		tb.Fatal(err)
	}
}

// SetAttr changes an attribute, without an event.
func (m *Machine) SetAttr(tb testing.TB, devicePath, name, value string) {
	tb.Helper()
	if err := os.WriteFile(m.Tree.Sys+devicePath+"/"+name, []byte(value+"\n"), 0o644); err != nil {
		tb.Fatal(err)
	}
}

type device struct {
	path, node string
	properties [][2]string
	attributes map[string]string
	links      map[string]string
	nodeLinks  []string
}

func (d *device) property(key string) string {
	for _, p := range d.properties {
		if p[0] == key {
			return p[1]
		}
	}
	return ""
}

// parse reads one device: lines of a letter, ": " and a value.
func parse(block string) (*device, error) {
	d := &device{attributes: map[string]string{}, links: map[string]string{}}
	for line := range strings.Lines(block) {
		line = strings.TrimRight(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		kind, value, ok := strings.Cut(line, ": ")
		name, content, _ := strings.Cut(value, "=")
		switch {
		case !ok:
			return nil, fmt.Errorf("line %q: want a letter, a colon and a value", line)
		case kind == "P":
			d.path = value
		case kind == "N":
			d.node = name // What follows = is the node's content.
		case kind == "S":
			d.nodeLinks = append(d.nodeLinks, value)
		case kind == "E":
			d.properties = append(d.properties, [2]string{name, content})
		case kind == "A":
			d.attributes[name] = strings.NewReplacer(`\n`, "\n", `\\`, `\`).Replace(content)
		case kind == "H":
			binary, err := hex.DecodeString(content)
			if err != nil {
				return nil, fmt.Errorf("line %q: %w", line, err)
			}
			d.attributes[name] = string(binary)
		case kind == "L":
			d.links[name] = content
		default:
			return nil, fmt.Errorf("line %q: %s is none of P, N, S, E, A, H, L", line, kind)
		}
	}
	if !strings.HasPrefix(d.path, "/devices/") {
		return nil, fmt.Errorf("path %q: want one below /devices", d.path)
	}
	return d, nil
}

// buses are the subsystems that are no classes.
var buses = []string{"usb", "usb-serial", "pci", "hid", "serial", "platform", "acpi", "i2c", "virtio", "scsi", "spi"}

// fromUdevd reports whether udevd's rules made a property, and not the kernel.
func fromUdevd(key string) bool {
	return strings.HasPrefix(key, "ID_") || slices.Contains([]string{"TAGS", "CURRENT_TAGS", "USEC_INITIALIZED", "DEVLINKS"}, key)
}

func (m *Machine) entry(subsystem, name string) string {
	if slices.Contains(buses, subsystem) {
		return filepath.Join(m.Tree.Sys, "bus", subsystem, "devices", name)
	}
	return filepath.Join(m.Tree.Sys, "class", subsystem, name)
}

// data is the device's file in udevd's database.
func (m *Machine) data(subsystem, devicePath string, properties map[string]string) string {
	id := "+" + subsystem + ":" + path.Base(devicePath)
	if major := properties["MAJOR"]; major != "" {
		id = "c" + major + ":" + properties["MINOR"]
		if subsystem == "block" {
			id = "b" + id[1:]
		}
	} else if index := properties["IFINDEX"]; index != "" {
		id = "n" + index
	}
	return filepath.Join(m.Tree.UdevData, id)
}

func (m *Machine) write(d *device) error {
	dir := m.Tree.Sys + d.path
	subsystem := d.property("SUBSYSTEM")
	kernel := map[string]string{}
	var uevent, data strings.Builder
	for _, p := range d.properties {
		switch {
		case p[0] == "SUBSYSTEM" || p[0] == "DEVPATH" || p[0] == "DEVNAME":
		case p[0] == "TAGS":
			for _, tag := range strings.Split(strings.Trim(p[1], ":"), ":") {
				data.WriteString("G:" + tag + "\nQ:" + tag + "\n")
			}
		case p[0] == "DEVLINKS":
		case fromUdevd(p[0]):
			data.WriteString("E:" + p[0] + "=" + p[1] + "\n")
		default:
			kernel[p[0]] = p[1]
			uevent.WriteString(p[0] + "=" + p[1] + "\n")
		}
	}
	for _, link := range d.nodeLinks {
		data.WriteString("S:" + link + "\n")
	}
	if d.node != "" {
		uevent.WriteString("DEVNAME=" + d.node + "\n")
	}
	var errs []error
	file := func(name, content string) {
		errs = append(errs, os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(content), 0o644))
	}
	link := func(name, target string) {
		if _, err := os.Lstat(name); err == nil {
			return
		}
		errs = append(errs, os.MkdirAll(filepath.Dir(name), 0o755), os.Symlink(target, name))
	}
	for name, content := range d.attributes {
		file(filepath.Join(dir, name), content)
	}
	for name, target := range d.links {
		link(filepath.Join(dir, name), target)
	}
	up := strings.Repeat("../", strings.Count(d.path, "/"))
	if subsystem != "" {
		kind := "class/"
		if slices.Contains(buses, subsystem) {
			kind = "bus/"
		}
		link(filepath.Join(dir, "subsystem"), up+kind+subsystem)
	}
	if driver := kernel["DRIVER"]; driver != "" {
		link(filepath.Join(dir, "driver"), up+"bus/"+subsystem+"/drivers/"+driver)
	}
	if d.node != "" {
		file(filepath.Join(m.Tree.Dev, d.node), "")
	}
	if data.Len() > 0 {
		file(m.data(subsystem, d.path, kernel), data.String())
	}
	file(filepath.Join(dir, "uevent"), uevent.String())
	if subsystem != "" {
		entry := m.entry(subsystem, path.Base(d.path))
		if target, err := filepath.Rel(filepath.Dir(entry), dir); err != nil {
			errs = append(errs, err)
		} else {
			link(entry, target)
		}
	}
	return errors.Join(errs...)
}
