package nri

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/inject"
)

// What NRI lets a container do with the device nodes that it adds
// (api.LinuxDevice.AccessString), whatever was asked for.
const charAccess, blockAccess = "rw", "rwm"

// addDevice adds a device node, or all that are in a directory. In CRI the runtime
// looks what is there; here it is for us to do. Rules after NRI's own take away
// what is not permitted, and add mknod where it is.
func addDevice(a *api.ContainerAdjustment, spec discovery.DeviceSpec, owner string, c *api.Container) error {
	nodes, err := deviceNodes(spec.HostPath, spec.ContainerPath, c.GetUser())
	if err != nil {
		return fmt.Errorf("device node %s of %s: %w", spec.HostPath, owner, err)
	}
	for _, node := range nodes {
		for _, has := range c.GetLinux().GetDevices() {
			if has.GetPath() == node.Path && (has.GetMajor() != node.Major || has.GetMinor() != node.Minor) {
				return &inject.Conflict{First: inject.OwnDevice, Second: owner, Field: "the path " + node.Path}
			}
		}
		same := func(d *api.LinuxDevice) bool { return proto.Equal(d, node) }
		if slices.ContainsFunc(a.GetLinux().GetDevices(), same) { // it is in a directory, too: NRI takes each path once
			addRule(a, node, true, spec.Permissions)
			continue
		}
		a.AddDevice(node)
		access := charAccess
		if node.Type == "b" {
			access = blockAccess
		}
		addRule(a, node, true, without(spec.Permissions, access))
		if !seesAllDevices(c) {
			addRule(a, node, false, without(access, spec.Permissions))
		}
	}
	return nil
}

// addRule permits or takes away an access to a device node that was added; none if there are no letters.
func addRule(a *api.ContainerAdjustment, node *api.LinuxDevice, allow bool, access string) {
	if access == "" {
		return
	}
	if a.Linux.Resources == nil {
		a.Linux.Resources = &api.LinuxResources{}
	}
	a.Linux.Resources.Devices = append(a.Linux.Resources.Devices, &api.LinuxDeviceCgroup{Allow: allow, Type: node.Type,
		Major: api.Int64(node.Major), Minor: api.Int64(node.Minor), Access: access})
}

// without returns the letters of access that are not in other.
func without(access, other string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(other, r) {
			return -1
		}
		return r
	}, access)
}

// seesAllDevices reports whether the container may use every device of the node,
// as privileged ones may.
func seesAllDevices(c *api.Container) bool {
	return slices.ContainsFunc(c.GetLinux().GetResources().GetDevices(), func(d *api.LinuxDeviceCgroup) bool {
		return d.GetAllow() && (d.GetType() == "a" || d.GetType() == "") && d.GetMajor() == nil && d.GetMinor() == nil
	})
}

// deviceNodes returns the device node at a path of the host, links followed, or
// those in the directory there. Directories are searched to the bottom; what is no device
// in them is passed over.
func deviceNodes(hostPath, containerPath string, user *api.User) (nodes []*api.LinuxDevice, err error) {
	real, err := filepath.EvalSymlinks(hostPath)
	if err != nil {
		return nil, err
	}
	err = filepath.WalkDir(real, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rest, err := filepath.Rel(real, path)
		if err != nil {
			return err
		}
		node, err := deviceNode(path, filepath.Join(containerPath, rest), user)
		if errors.Is(err, errNoDevice) {
			return nil
		}
		nodes = append(nodes, node)
		return err
	})
	if err == nil && len(nodes) == 0 {
		err = errNoDevice
	}
	return nodes, err
}

var errNoDevice = errors.New("there is no device node")

// deviceNode describes the device node at a path of the host, with its mode there. Its owner and group are the user's
// unless that is root, as CDI has it, and containerd with device_ownership_from_security_context: one that is root's on
// the node could not be opened. For root they are as on the host.
func deviceNode(path, containerPath string, user *api.User) (*api.LinuxDevice, error) {
	var stat unix.Stat_t
	if err := unix.Lstat(path, &stat); err != nil {
		return nil, &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	kind := map[uint32]string{unix.S_IFBLK: "b", unix.S_IFCHR: "c"}[stat.Mode&unix.S_IFMT]
	if kind == "" {
		return nil, errNoDevice
	}
	return &api.LinuxDevice{
		Path: containerPath, Type: kind,
		Major: int64(unix.Major(stat.Rdev)), Minor: int64(unix.Minor(stat.Rdev)),
		FileMode: api.FileMode(os.FileMode(stat.Mode &^ unix.S_IFMT)),
		Uid:      api.UInt32(cmp.Or(user.GetUid(), stat.Uid)), Gid: api.UInt32(cmp.Or(user.GetGid(), stat.Gid)),
	}, nil
}
