// Package inject says what a container gets for the slots that it was granted:
// environment, mounts, device nodes and the annotations that name the slots. It
// computes; it neither reads nor writes anything.
//
// A CreateContainerRequest is never encoded again. Protobuf merges the repeated
// occurrences of an embedded message (https://protobuf.dev/programming-guides/encoding/#last-one-wins),
// so the request followed by a second `config` that holds the additions alone is
// the request with the additions: lists append, map keys are set, and fields
// that this binary has never heard of stay as the kubelet wrote them.
package inject

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

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

// configField is the number of CreateContainerRequest.config.
const configField = 2

// Extra returns the bytes to send after a CreateContainerRequest so that its
// container gets what the grants bring, in their order; nil for no grants.
// config is the container as requested and is only read. Equal arguments give
// equal bytes.
func Extra(config *runtimeapi.ContainerConfig, grants []Grant) ([]byte, error) {
	if len(grants) == 0 {
		return nil, nil
	}
	add, err := Additions(config, grants)
	if err != nil {
		return nil, err
	}
	message, err := proto.MarshalOptions{Deterministic: true}.Marshal(add)
	if err != nil {
		return nil, fmt.Errorf("encode what the container gets for its devices: %w", err)
	}
	extra := protowire.AppendTag(nil, configField, protowire.BytesType)
	return protowire.AppendBytes(extra, message), nil
}

// Additions returns what the grants add to config.
func Additions(config *runtimeapi.ContainerConfig, grants []Grant) (*runtimeapi.ContainerConfig, error) {
	envs, err := environment(config, grants)
	if err != nil {
		return nil, err
	}
	add := &runtimeapi.ContainerConfig{Annotations: make(map[string]string, len(grants)), Envs: envs}
	for _, g := range grants {
		key, value := slot.Annotation(g.Slot, g.Holder)
		add.Annotations[key] = value
	}
	add.Mounts, add.Devices, err = paths(config, grants)
	if err != nil {
		return nil, err
	}
	named := map[string]bool{}
	for _, g := range grants {
		if g.CDI != "" && !named[g.CDI] {
			named[g.CDI] = true
			add.CDIDevices = append(add.CDIDevices, &runtimeapi.CDIDevice{Name: g.CDI})
		}
	}
	return add, nil
}
