package checkpoint

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/kubeslot/kubeslot/discovery"
)

// A device node that was taken out and put back, or is there since another boot, may be
// another device's under the same path. So a device's nodes are written down with it, and
// have to be the same ones for the device to be given to a container unseen.

// bootIDFile changes with each boot.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// NewDevice is the device as it is now. It reads the file system.
func NewDevice(handler string, device discovery.Device) (Device, error) {
	nodes, err := nodesOf(device)
	return Device{Handler: handler, Device: device, Nodes: nodes}, err
}

// Unchanged returns an error when a device node of the device is not the one that it was.
// It reads the file system.
func (d Device) Unchanged() error {
	now, err := nodesOf(d.Device)
	if err != nil {
		return err
	}
	if !maps.Equal(now, d.Nodes) {
		return fmt.Errorf("device nodes were %v and are %v", d.Nodes, now)
	}
	return nil
}

// nodesOf identifies what the device's paths of the node are, nil for a device without.
func nodesOf(device discovery.Device) (map[string]string, error) {
	if len(device.DeviceSpecs) == 0 {
		return nil, nil
	}
	boot, err := os.ReadFile(bootIDFile)
	if err != nil {
		return nil, err
	}
	nodes := make(map[string]string, len(device.DeviceSpecs))
	for _, spec := range device.DeviceSpecs {
		path, err := filepath.EvalSymlinks(spec.HostPath)
		if err != nil {
			return nil, err
		}
		var stat unix.Stat_t
		if err := unix.Stat(path, &stat); err != nil {
			return nil, &os.PathError{Op: "stat", Path: path, Err: err}
		}
		changed := int64(0)
		if stat.Mode&unix.S_IFMT == unix.S_IFDIR { // whose entries may have changed
			changed = stat.Mtim.Nano()
		}
		nodes[spec.HostPath] = fmt.Sprintf("%.36s %s %d:%d %d:%d %d", boot, path, stat.Dev, stat.Ino, unix.Major(stat.Rdev), unix.Minor(stat.Rdev), changed)
	}
	return nodes, nil
}
