package inject

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/discovery"
)

// configField is the number of CreateContainerRequest.config.
const configField = 2

// FromCRI reads the container of a CRI request, of which any part may be missing.
func FromCRI(request *runtimeapi.CreateContainerRequest) Container {
	c := Container{Users: usersFromCRI(request.GetSandboxConfig())}
	config := request.GetConfig()
	c.Privileged = config.GetLinux().GetSecurityContext().GetPrivileged()
	for _, env := range config.GetEnvs() {
		c.Env = append(c.Env, env.GetKey())
	}
	for _, m := range config.GetMounts() {
		c.Mounts = append(c.Mounts, m.GetContainerPath())
	}
	for _, d := range config.GetDevices() {
		c.Devices = append(c.Devices, discovery.DeviceSpec{
			ContainerPath: d.GetContainerPath(), HostPath: d.GetHostPath(), Permissions: d.GetPermissions()})
	}
	for _, d := range config.GetCDIDevices() {
		c.CDI = append(c.CDI, d.GetName())
	}
	return c
}

// CRI returns the bytes to send after a CreateContainerRequest so that its
// container gets the additions; nil for none.
//
// The request is never encoded again. Protobuf merges the repeated occurrences of
// an embedded message (https://protobuf.dev/programming-guides/encoding/#last-one-wins),
// so the request followed by a second `config` that holds the additions alone is
// the request with the additions: lists append, map keys are set, and fields
// that this binary has never heard of stay as the kubelet wrote them.
func (a Additions) CRI() ([]byte, error) {
	if a.None() {
		return nil, nil
	}
	message, err := proto.MarshalOptions{Deterministic: true}.Marshal(a.config())
	if err != nil {
		return nil, fmt.Errorf("encode what the container gets for its devices: %w", err)
	}
	extra := protowire.AppendTag(nil, configField, protowire.BytesType)
	return protowire.AppendBytes(extra, message), nil
}

// config returns a container that consists of the additions.
func (a Additions) config() *runtimeapi.ContainerConfig {
	c := &runtimeapi.ContainerConfig{Annotations: a.Annotations}
	for _, env := range a.Env {
		c.Envs = append(c.Envs, &runtimeapi.KeyValue{Key: env.Name, Value: []byte(env.Value)})
	}
	for _, m := range a.Mounts {
		c.Mounts = append(c.Mounts, &runtimeapi.Mount{ContainerPath: m.ContainerPath, HostPath: m.HostPath, Readonly: m.ReadOnly,
			UidMappings: a.Users.UIDs, GidMappings: a.Users.GIDs})
	}
	for _, d := range a.Devices {
		c.Devices = append(c.Devices, &runtimeapi.Device{ContainerPath: d.ContainerPath, HostPath: d.HostPath, Permissions: d.Permissions})
	}
	for _, name := range a.CDI {
		c.CDIDevices = append(c.CDIDevices, &runtimeapi.CDIDevice{Name: name})
	}
	return c
}
