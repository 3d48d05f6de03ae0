package sysfs

import (
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Snapshot is the devices of a Tree, read at one time and, where a caller hears of
// changes, read again one by one. It is safe for concurrent use.
type Snapshot struct {
	tree Tree

	mu sync.Mutex
	// listed are the devices of all buses and classes, by path.
	listed map[string]*Device
	// others are devices that no bus and no class lists but that are parents, such as a
	// PCI root; nil where there is known to be none.
	others map[string]*Device
}

// Snapshot reads every device that a bus or a class lists. It fails when there is no
// sysfs.
func (t Tree) Snapshot() (*Snapshot, error) {
	t = t.withDefaults()
	paths, err := t.paths()
	if err != nil {
		return nil, err
	}
	s := &Snapshot{tree: t, listed: make(map[string]*Device, len(paths)), others: map[string]*Device{}}
	for _, p := range paths {
		// A device that cannot be read has vanished, or it is none.
		if device, err := s.load(p); err == nil {
			s.listed[p] = device
		}
	}
	return s, nil
}

// Keep adds the devices of an earlier snapshot that are there, though they could not be listed or read
// this time: only the kernel's word that a device is gone counts.
func (s *Snapshot) Keep(before *Snapshot) {
	for _, old := range before.Devices() {
		if s.listed[old.path] != nil {
			continue
		}
		if d, err := s.load(old.path); err == nil && d.subsystem != "" {
			s.listed[d.path] = d
		} else if err != nil && !isGone(err) {
			s.listed[old.path] = old
		}
	}
}

// isGone reports whether an error of load means that the device is not there.
func isGone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) }

// Devices returns the devices, sorted by Path.
func (s *Snapshot) Devices() []*Device {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.listed), func(a, b *Device) int { return strings.Compare(a.path, b.path) })
}

// Reload reads the device at a path again. It returns those whose rules may give another
// answer now: that device and all below it; and the paths that are gone.
func (s *Snapshot) Reload(devicePath string) (touched []*Device, gone []string) {
	var device *Device
	var err error = fs.ErrNotExist
	if strings.HasPrefix(devicePath, "/devices/") {
		device, err = s.load(devicePath)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.others {
		if p == devicePath || isBelow(p, devicePath) {
			delete(s.others, p)
		}
	}
	if err != nil && !isGone(err) {
		return nil, nil // It is there, but could not be read: what was read before stands.
	}
	if err != nil {
		for p := range s.listed {
			if p == devicePath || isBelow(p, devicePath) {
				delete(s.listed, p)
				gone = append(gone, p)
			}
		}
		slices.Sort(gone)
		return nil, gone
	}
	if device.subsystem != "" {
		s.listed[devicePath] = device
		touched = append(touched, device)
	}
	for p, below := range s.listed {
		if isBelow(p, devicePath) {
			touched = append(touched, below)
		}
	}
	return touched, nil
}

// Below returns the paths of the devices below a path, sorted.
func (s *Snapshot) Below(devicePath string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var below []string
	for p := range s.listed {
		if isBelow(p, devicePath) {
			below = append(below, p)
		}
	}
	slices.Sort(below)
	return below
}

func (s *Snapshot) parent(d *Device) *Device {
	for p := path.Dir(d.path); len(p) > len("/devices"); p = path.Dir(p) {
		s.mu.Lock()
		parent, known := s.listed[p]
		if !known {
			parent, known = s.others[p]
		}
		s.mu.Unlock()
		if !known {
			var err error
			if parent, err = s.load(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
				continue // Perhaps readable the next time.
			}
			s.mu.Lock()
			s.others[p] = parent
			s.mu.Unlock()
		}
		if parent != nil {
			return parent
		}
	}
	return nil
}

// isBelow reports whether p is a path below ancestor: usb1/1-10 is not below usb1/1-1.
func isBelow(p, ancestor string) bool {
	return len(p) > len(ancestor) && p[len(ancestor)] == '/' && strings.HasPrefix(p, ancestor)
}
