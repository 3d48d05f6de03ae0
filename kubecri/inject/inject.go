// Package inject says what a container gets for the slots that it was granted, and
// from device plugins: environment, mounts, device nodes and the annotations that
// name the slots. It
// computes; it neither reads nor writes anything. What it says is a value in the
// words of no protocol, which each way to the runtime encodes: cri.go as bytes of
// a CRI request.
package inject

import (
	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Grant is a slot given to the container and the device behind it.
type Grant struct {
	Slot slot.Name
	// Holder is the pod's UID when the slot is held through a request for any
	// device of its Configuration, and "" when through one for its Instance.
	Holder string
	// Device is the Instance's device. Its Properties are what the container is
	// to see: those of the Configuration are merged in already.
	Device discovery.Device
	// CDI is the name by which the runtime knows the device and gives its mounts
	// and device nodes itself; "" when the request is to have them.
	CDI string
}

// Container is what matters here of a container as it is requested.
type Container struct {
	// Env are the names of its variables.
	Env []string
	// Mounts are the paths in the container at which it has something mounted.
	Mounts []string
	// Devices are its device nodes.
	Devices []discovery.DeviceSpec
	// Users are those of its pod.
	Users UserNamespace
	// Resource is set for what a device plugin of the kubelet answers: the Configuration or
	// the Instance that is requested. See Additions.AllocateResponse.
	Resource string
}

// Additions are what a container gets beyond what it is requested with. The zero
// value is nothing. Equal arguments of Add make equal Additions.
type Additions struct {
	// Env are in order; no name is twice in it, nor among the container's own but
	// for DevicesEnv and those of device plugins, which are to win.
	Env []Variable
	// Mounts and Devices are where no other of the container's is. Permissions are
	// never empty.
	Mounts  []discovery.Mount
	Devices []discovery.DeviceSpec
	// Users are to be mapped in all Mounts, so that a file belongs to the same user
	// inside as on the node.
	Users UserNamespace
	// CDI are names of CDI devices, each once.
	CDI []string
	// Annotations are the container's, and name its slots.
	Annotations map[string]string
}

// None reports whether there are none.
func (a Additions) None() bool {
	return len(a.Env)+len(a.Mounts)+len(a.Devices)+len(a.CDI)+len(a.Annotations) == 0
}

// Variable is one of the environment. Its value is any bytes but NUL.
type Variable struct{ Name, Value string }

// Add returns what the grants add to the container, in their order, and then the
// device plugins' answers in theirs.
func Add(container Container, grants []Grant, answers ...Answer) (Additions, error) {
	add := Additions{Users: container.Users}
	given, err := variables(answers)
	if err != nil {
		return Additions{}, err
	}
	if len(grants) > 0 {
		if add.Env, err = environment(container, grants, given); err != nil {
			return Additions{}, err
		}
		add.Annotations = make(map[string]string, len(grants))
	}
	add.Env = append(add.Env, given...)
	if add.Mounts, add.Devices, err = paths(container, grants, answers); err != nil {
		return Additions{}, err
	}
	named := map[string]bool{"": true}
	name := func(device string) {
		if !named[device] {
			named[device] = true
			add.CDI = append(add.CDI, device)
		}
	}
	for _, g := range grants {
		key, value := slot.Annotation(g.Slot, g.Holder)
		add.Annotations[key] = value
		name(g.CDI)
	}
	for _, a := range answers {
		for _, device := range a.CDI {
			name(device)
		}
	}
	return add, nil
}
