package inject

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// allPermissions of a device node: read, write, mknod.
const allPermissions = "rwm"

// Owners of what the container has by itself.
const (
	OwnVolume = "a volume of the pod"
	OwnDevice = "a device of the pod"
)

// Conflict is the error for two owners that want different things of one field: the
// container would run with what only one of them gives.
type Conflict struct {
	// First and Second are the owners, in the order in which they were merged.
	First, Second string
	// Field says what both want, such as "the path /dev/x".
	Field string
}

func (c *Conflict) Error() string {
	return fmt.Sprintf("%s and %s both want %s in the container: give the container only one of them", c.First, c.Second, c.Field)
}

// Merge returns what the edits add to the container, in their order. Callers pass
// those of slots in the order of the assignment, and then those of device plugins in
// the order of the plugins. A *Conflict is returned when two owners want different
// things of one field; when they want the same, the container gets it once. Paths
// that are not absolute and permissions that do not exist are errors, too.
func Merge(container Container, edits ...Edits) (Additions, error) {
	m := merger{container: container, content: map[string]string{},
		add: Additions{Users: container.Users, Owners: Owners{
			Env: map[string]string{}, Paths: map[string]string{}, CDI: map[string]string{}, Annotations: map[string]string{}}}}
	for _, mounted := range container.Mounts {
		m.add.Owners.Paths[path.Clean(mounted)] = OwnVolume
	}
	for _, d := range container.Devices {
		clean := path.Clean(d.ContainerPath)
		m.add.Owners.Paths[clean], m.content[clean] = OwnDevice, deviceText(d.HostPath, d.Permissions)
	}
	if err := m.environment(edits); err != nil {
		return Additions{}, err
	}
	for i := range edits {
		for _, merge := range []func(*Edits) error{m.mounts, m.devices, m.annotations, m.names} {
			if err := merge(&edits[i]); err != nil {
				return Additions{}, err
			}
		}
	}
	return m.add, nil
}

// merger is a Merge under way.
type merger struct {
	container Container
	add       Additions
	// content describes what is at a path of the container: what has equal
	// descriptions is one and the same. A volume of the pod has none, and is never
	// the same as anything of ours.
	content map[string]string
}

// environment merges the variables. Those that are no defaults win over the
// container's own: they may say what it is allowed to use, as NVIDIA_VISIBLE_DEVICES
// does.
func (m *merger) environment(edits []Edits) error {
	owners, values := m.add.Owners.Env, map[string]string{}
	for _, e := range edits {
		for _, v := range e.Env {
			if v.Default {
				continue
			}
			owner, set := owners[v.Name]
			if set && values[v.Name] != v.Value {
				return &Conflict{owner, e.Owner, fmt.Sprintf("the variable %s, with different values,", v.Name)}
			}
			if !set {
				owners[v.Name], values[v.Name] = e.Owner, v.Value
			}
		}
	}
	added := map[string]bool{}
	for _, e := range edits {
		for _, v := range e.Env {
			if _, set := owners[v.Name]; added[v.Name] || v.Default && (set || slices.Contains(m.container.Env, v.Name)) {
				continue
			}
			if v.Default {
				owners[v.Name] = e.Owner
			}
			added[v.Name] = true
			m.add.Env = append(m.add.Env, Variable{Name: v.Name, Value: v.Value})
		}
	}
	return nil
}

func (m *merger) mounts(e *Edits) error {
	for _, mount := range e.Mounts {
		text := fmt.Sprintf("mount of %s (read-only %t)", mount.HostPath, mount.ReadOnly)
		fresh, err := m.place(mount.ContainerPath, mount.HostPath, text, e.Owner)
		if err != nil {
			return err
		}
		if fresh && !e.ByCDI {
			m.add.Mounts = append(m.add.Mounts, mount)
		}
	}
	return nil
}

func (m *merger) devices(e *Edits) error {
	for _, d := range e.Devices {
		if d.Permissions == "" {
			d.Permissions = allPermissions
		}
		if strings.Trim(d.Permissions, allPermissions) != "" {
			return fmt.Errorf("%s wants permissions %q on %s: want a subset of rwm", e.Owner, d.Permissions, d.HostPath)
		}
		if m.container.Users.Own() && path.Clean(d.ContainerPath) != path.Clean(d.HostPath) {
			// runc binds the node's file of the name that the container is to have,
			// which is another device or none.
			return fmt.Errorf("%s puts the device node %s at %s, and a pod with hostUsers: false can have a device node at its own path only: run the pod with the node's users",
				e.Owner, d.HostPath, d.ContainerPath)
		}
		fresh, err := m.place(d.ContainerPath, d.HostPath, deviceText(d.HostPath, d.Permissions), e.Owner)
		if err != nil {
			return err
		}
		if fresh && !e.ByCDI {
			m.add.Devices = append(m.add.Devices, d)
		}
	}
	return nil
}

// place takes the path of the container for the owner, and reports whether nobody
// had it.
func (m *merger) place(containerPath, hostPath, content, owner string) (bool, error) {
	for _, p := range []string{containerPath, hostPath} {
		if !path.IsAbs(p) || strings.Contains(p, "\x00") || !utf8.ValidString(p) {
			return false, fmt.Errorf("%s has %s with path %q, which is not an absolute path: its discovery handler or plugin reports it wrongly",
				owner, content, p)
		}
	}
	clean := path.Clean(containerPath)
	before, used := m.add.Owners.Paths[clean]
	if used {
		if m.content[clean] != content {
			return false, &Conflict{before, owner, "the path " + clean}
		}
		return false, nil
	}
	m.add.Owners.Paths[clean], m.content[clean] = owner, content
	return true, nil
}

func (m *merger) annotations(e *Edits) error {
	for _, key := range slices.Sorted(maps.Keys(e.Annotations)) {
		value := e.Annotations[key]
		if owner, set := m.add.Owners.Annotations[key]; set && m.add.Annotations[key] != value {
			return &Conflict{owner, e.Owner, fmt.Sprintf("the annotation %s, with different values,", key)}
		} else if set {
			continue
		}
		if m.add.Annotations == nil {
			m.add.Annotations = map[string]string{}
		}
		m.add.Annotations[key], m.add.Owners.Annotations[key] = value, e.Owner
	}
	return nil
}

func (m *merger) names(e *Edits) error {
	for _, name := range e.CDI {
		if m.container.NoCDI {
			return fmt.Errorf("%s gives CDI device %q, which the runtime would leave out without a word: containerd "+
				"2.2, CRI-O 1.34 and newer take CDI devices by NRI", e.Owner, name)
		}
		if _, named := m.add.Owners.CDI[name]; !named {
			m.add.Owners.CDI[name] = e.Owner
			m.add.CDI = append(m.add.CDI, name)
		}
	}
	return nil
}

func deviceText(hostPath, permissions string) string {
	return fmt.Sprintf("device node %s (%s)", hostPath, permissions)
}
