package inject

import (
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// AllocateResponse returns the additions as a device plugin of the kubelet answers them.
//
// Of a container that requests several resources, the kubelet puts the answers of all
// their plugins together in the order of a map, and of two that set one variable either
// may win (pkg/kubelet/cm/devicemanager/pod_devices.go). So the additions are to be made
// of SlotEdits of one resource: they have each property K as K_<HASH> alone, and the list
// of devices as AKRI_DEVICES_<RESOURCE>.
func (a Additions) AllocateResponse() *pluginapi.ContainerAllocateResponse {
	r := &pluginapi.ContainerAllocateResponse{Envs: make(map[string]string, len(a.Env)), Annotations: a.Annotations}
	for _, env := range a.Env {
		r.Envs[env.Name] = env.Value
	}
	for _, m := range a.Mounts {
		r.Mounts = append(r.Mounts, &pluginapi.Mount{ContainerPath: m.ContainerPath, HostPath: m.HostPath, ReadOnly: m.ReadOnly})
	}
	for _, d := range a.Devices {
		r.Devices = append(r.Devices, &pluginapi.DeviceSpec{ContainerPath: d.ContainerPath, HostPath: d.HostPath, Permissions: d.Permissions})
	}
	for _, name := range a.CDI {
		r.CdiDevices = append(r.CdiDevices, &pluginapi.CDIDevice{Name: name})
	}
	return r
}
