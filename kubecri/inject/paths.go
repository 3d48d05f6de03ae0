package inject

import (
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/kubeslot/kubeslot/discovery"
)

// allPermissions of a device node: read, write, mknod.
const allPermissions = "rwm"

// source is what is put at a path of the container, and by whom.
type source struct {
	what  string // comparable description: two equal ones are one and the same
	owner string
}

// paths returns the mounts and device nodes of the grants and the answers, each once, without those
// that the runtime has from a CDI spec. Two that want the same path of the container
// for different things are an error: the container would run with only one of its
// devices.
func paths(container Container, grants []Grant, answers []Answer) ([]discovery.Mount, []discovery.DeviceSpec, error) {
	at := map[string]source{}
	for _, mounted := range container.Mounts {
		at[path.Clean(mounted)] = source{owner: "a volume of the pod"}
	}
	for _, d := range container.Devices {
		at[path.Clean(d.ContainerPath)] = source{
			what: deviceText(d.HostPath, d.Permissions), owner: "a device of the pod"}
	}
	// place reports whether the path is new.
	place := func(containerPath, hostPath, what, owner string) (bool, error) {
		for _, p := range []string{containerPath, hostPath} {
			if !path.IsAbs(p) || strings.Contains(p, "\x00") || !utf8.ValidString(p) {
				return false, fmt.Errorf("%s has %s with path %q, which is not an absolute path: its discovery handler or plugin reports it wrongly",
					owner, what, p)
			}
		}
		clean := path.Clean(containerPath)
		before, used := at[clean]
		if used && before.what != what {
			return false, fmt.Errorf("%s and %s both want the path %s in the container: give the container only one of them",
				before.owner, owner, clean)
		}
		at[clean] = source{what, owner}
		return !used, nil
	}

	var mounts []discovery.Mount
	var devices []discovery.DeviceSpec
	for _, g := range grants {
		owner := fmt.Sprintf("the device of slot %s", g.Slot)
		for _, m := range g.Device.Mounts {
			fresh, err := place(m.ContainerPath, m.HostPath, mountText(m), owner)
			if err != nil {
				return nil, nil, err
			}
			if fresh && g.CDI == "" {
				mounts = append(mounts, m)
			}
		}
		for _, d := range g.Device.DeviceSpecs {
			permissions := d.Permissions
			if permissions == "" {
				permissions = allPermissions
			}
			if strings.Trim(permissions, allPermissions) != "" {
				return nil, nil, fmt.Errorf("%s wants permissions %q on %s: want a subset of rwm", owner, permissions, d.HostPath)
			}
			if container.Users.Own() && path.Clean(d.ContainerPath) != path.Clean(d.HostPath) {
				// runc binds the node's file of the name that the container is to have,
				// which is another device or none.
				return nil, nil, fmt.Errorf("%s puts the device node %s at %s, and a pod with hostUsers: false can have a device node at its own path only: run the pod with the node's users",
					owner, d.HostPath, d.ContainerPath)
			}
			fresh, err := place(d.ContainerPath, d.HostPath, deviceText(d.HostPath, permissions), owner)
			if err != nil {
				return nil, nil, err
			}
			if fresh && g.CDI == "" {
				devices = append(devices, discovery.DeviceSpec{ContainerPath: d.ContainerPath, HostPath: d.HostPath, Permissions: permissions})
			}
		}
	}
	for _, a := range answers {
		for _, m := range a.Mounts {
			fresh, err := place(m.ContainerPath, m.HostPath, mountText(m), a.owner())
			if err != nil {
				return nil, nil, err
			}
			if fresh {
				mounts = append(mounts, m)
			}
		}
		for _, node := range a.Devices {
			fresh, err := place(node, node, deviceText(node, allPermissions), a.owner())
			if err != nil {
				return nil, nil, err
			}
			if fresh {
				devices = append(devices, discovery.DeviceSpec{ContainerPath: node, HostPath: node, Permissions: allPermissions})
			}
		}
	}
	return mounts, devices, nil
}

func mountText(m discovery.Mount) string {
	return fmt.Sprintf("mount of %s (read-only %t)", m.HostPath, m.ReadOnly)
}

func deviceText(hostPath, permissions string) string {
	return fmt.Sprintf("device node %s (%s)", hostPath, permissions)
}
