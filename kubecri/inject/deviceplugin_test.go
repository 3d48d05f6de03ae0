package inject

import (
	"maps"
	"slices"
	"testing"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/types/slot"
)

// The kubelet merges what the plugins of all of a container's resources answer, in random
// order: no two may say one thing differently.
func TestAllocateResponse(t *testing.T) {
	east := Grant{Slot: slot.Name{Instance: "akri-onvif-8120fe", Index: 1}, Holder: "akri-onvif-0", Device: discovery.Device{
		Properties: map[string]string{"URL": "rtsp://east"}, Mounts: []discovery.Mount{{HostPath: "/h", ContainerPath: "/c", ReadOnly: true}},
		DeviceSpecs: []discovery.DeviceSpec{{HostPath: "/dev/h", ContainerPath: "/dev/c", Permissions: "r"}}}}
	west := Grant{Slot: slot.Name{Instance: "akri-onvif-a19705", Index: 0}, Holder: "akri-onvif-1", CDI: "akri.sh/akri-onvif=a19705",
		Device: discovery.Device{Properties: map[string]string{"URL": "rtsp://west"}}}
	add, err := merge(Container{}, "akri-onvif", []Grant{east, west})
	if err != nil {
		t.Fatal(err)
	}
	r := add.AllocateResponse()
	if want := map[string]string{"URL_8120FE": "rtsp://east", "URL_A19705": "rtsp://west",
		"AKRI_DEVICES_AKRI_ONVIF": `[{"instance":"akri-onvif-8120fe","slot":"akri-onvif-8120fe-1","properties":{"URL":"rtsp://east"}},` +
			`{"instance":"akri-onvif-a19705","slot":"akri-onvif-a19705-0","properties":{"URL":"rtsp://west"}}]`}; !maps.Equal(r.Envs, want) {
		t.Errorf("environment %v, want %v", r.Envs, want)
	}
	if want := map[string]string{"akri.agent.slot-akri-onvif-8120fe-1": "C:akri-onvif-0:akri-onvif-8120fe-1",
		"akri.agent.slot-akri-onvif-a19705-0": "C:akri-onvif-1:akri-onvif-a19705-0"}; !maps.Equal(r.Annotations, want) {
		t.Errorf("annotations %v", r.Annotations)
	}
	if len(r.Mounts) != 1 || !r.Mounts[0].ReadOnly || r.Mounts[0].HostPath != "/h" || r.Mounts[0].ContainerPath != "/c" {
		t.Errorf("mounts %v", r.Mounts)
	}
	if len(r.Devices) != 1 || r.Devices[0].Permissions != "r" || r.Devices[0].HostPath != "/dev/h" || r.Devices[0].ContainerPath != "/dev/c" {
		t.Errorf("devices %v", r.Devices)
	}
	if len(r.CdiDevices) != 1 || r.CdiDevices[0].Name != west.CDI {
		t.Errorf("CDI devices %v", r.CdiDevices)
	}
	other, err := merge(Container{}, "akri-onvif-8120fe", []Grant{{Slot: slot.Name{Instance: "akri-onvif-8120fe", Index: 0}, Device: east.Device}})
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range other.AllocateResponse().Envs {
		if there, both := r.Envs[name]; both && there != value {
			t.Errorf("%s is %q of one resource and %q of the other", name, value, there)
		}
	}
	if !slices.Contains(slices.Collect(maps.Keys(other.AllocateResponse().Envs)), "AKRI_DEVICES_AKRI_ONVIF_8120FE") {
		t.Errorf("environment %v", other.AllocateResponse().Envs)
	}
}
