package scheduler

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const perSlice = 100 // devices, of the 128 that the API allows

// resourceSlices are as many devices as the run has slots or, where a device's capacity is
// consumed, as many as ours has, with as many slots each.
func (r run) resourceSlices(reach []v1.Node) []*resourceapi.ResourceSlice {
	devices, capacity := r.instances()
	if !r.consumable {
		devices, capacity = devices*capacity, 1
	}
	var slices []*resourceapi.ResourceSlice
	if r.shared {
		all := true
		for i := range devices / perSlice {
			s := r.resourceSlice(fmt.Sprintf("shared-%d", i), perSlice, capacity)
			s.Spec.AllNodes = &all
			slices = append(slices, s)
		}
		return slices
	}
	for i := range reach {
		s := r.resourceSlice(reach[i].Name, devices/len(reach), capacity)
		s.Spec.NodeName = &reach[i].Name
		slices = append(slices, s)
	}
	return slices
}

func (r run) resourceSlice(name string, devices, capacity int) *resourceapi.ResourceSlice {
	s := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: driverName, Pool: resourceapi.ResourcePool{Name: name, ResourceSliceCount: 1},
		},
	}
	model, several, one := "A100", true, resource.NewQuantity(1, resource.DecimalSI)
	for i := range devices {
		d := resourceapi.Device{
			Name:       fmt.Sprintf("instance-%d", i),
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"model": {StringValue: &model}},
		}
		if r.consumable {
			d.AllowMultipleAllocations = &several
			d.Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"slots": {
				Value:         *resource.NewQuantity(int64(capacity), resource.DecimalSI),
				RequestPolicy: &resourceapi.CapacityRequestPolicy{Default: one, ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: one, Step: one}},
			}}
		}
		s.Spec.Devices = append(s.Spec.Devices, d)
	}
	return s
}
