package scheduler

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// resourceSlices are as many devices as the run has slots.
func (r run) resourceSlices(reach []v1.Node) []*resourceapi.ResourceSlice {
	newSlice := func(name string, devices int) *resourceapi.ResourceSlice {
		s := &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: driverName, Pool: resourceapi.ResourcePool{Name: name, ResourceSliceCount: 1},
			},
		}
		model := "A100"
		for i := range devices {
			s.Spec.Devices = append(s.Spec.Devices, resourceapi.Device{
				Name:       fmt.Sprintf("instance-%d", i),
				Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"model": {StringValue: &model}},
			})
		}
		return s
	}
	var slices []*resourceapi.ResourceSlice
	if r.shared {
		const perSlice = 100 // of the 128 that the API allows
		all := true
		for i := range r.nodes * r.slots / perSlice {
			s := newSlice(fmt.Sprintf("shared-%d", i), perSlice)
			s.Spec.AllNodes = &all
			slices = append(slices, s)
		}
		return slices
	}
	for i := range reach {
		s := newSlice(reach[i].Name, r.slots)
		s.Spec.NodeName = &reach[i].Name
		slices = append(slices, s)
	}
	return slices
}
