package scheduler

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubescheduler "k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/test/utils/client-go/ktesting"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// createDRA makes the devices of a Configuration with allocator DRA: what nodes report and, once the
// scheduler has handed the devices over, their ResourceSlices.
func (r run) createDRA(tCtx ktesting.TContext, scheduler *kubescheduler.Scheduler, reach []v1.Node) error {
	if _, err := r.createSlices(tCtx, reach); err != nil {
		return err
	}
	client, err := ourClient(tCtx)
	if err != nil {
		return err
	}
	if err := poll(tCtx, func(ctx context.Context) (bool, error) {
		c, err := client.AkriV0().Configurations(namespace).Get(ctx, kindName, metav1.GetOptions{})
		return err == nil && c.Publishes(""), err
	}); err != nil {
		return fmt.Errorf("wait until the scheduler has handed the devices to DRA: %w", err)
	}
	return createResourceSlices(tCtx, scheduler, r.publishedSlices(reach))
}

// publishedSlices are as the controller publishes the devices: a pool for each shared one, which all nodes
// reach by spec.discovery, and else one for each node.
func (r run) publishedSlices(reach []v1.Node) []*resourceapi.ResourceSlice {
	var all []*resourceapi.ResourceSlice
	for i, s := range r.deviceSlices(reach) {
		if r.shared && i > 0 {
			break // the other nodes report the same
		}
		if !r.shared {
			all = append(all, published(fmt.Sprintf("%s-%d", kindName, i), kindName+"/"+s.Spec.NodeName))
			all[len(all)-1].Spec.PerDeviceNodeSelection = new(true)
		}
		for _, d := range s.Spec.Devices {
			if r.shared {
				all = append(all, published(d.Instance(), d.Instance()))
				all[len(all)-1].Spec.AllNodes = new(true)
			}
			spec := &all[len(all)-1].Spec
			spec.Devices = append(spec.Devices, r.publishedDevice(d))
			if !r.shared {
				spec.Devices[len(spec.Devices)-1].NodeName = &s.Spec.NodeName
			}
		}
	}
	return all
}

func published(name, pool string) *resourceapi.ResourceSlice {
	return &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.ResourceSliceSpec{
		Driver: v1alpha1.DRADriver, Pool: resourceapi.ResourcePool{Name: pool, ResourceSliceCount: 1}}}
}

func (r run) publishedDevice(d v1alpha1.Device) resourceapi.Device {
	_, capacity := r.instances()
	one := resource.NewQuantity(1, resource.DecimalSI)
	text := func(s string) resourceapi.DeviceAttribute { return resourceapi.DeviceAttribute{StringValue: &s} }
	attributes := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		v1alpha1.DRAConfiguration: text(d.Configuration.Name), v1alpha1.DRAInstance: text(d.Instance())}
	for name, value := range d.Properties {
		attributes[resourceapi.QualifiedName(name)] = text(value)
	}
	return resourceapi.Device{Name: d.Instance(), Attributes: attributes, AllowMultipleAllocations: new(true),
		BindsToNode: new(true),
		Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{v1alpha1.DRASlots: {
			Value: *resource.NewQuantity(int64(capacity), resource.DecimalSI),
			RequestPolicy: &resourceapi.CapacityRequestPolicy{Default: one,
				ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: one, Step: one}}}}}
}

// publishedClass is the controller's DeviceClass, and publishedRequest what a user writes: n different devices.
func publishedClass() *resourceapi.DeviceClass {
	c := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.DeviceClassName(kindName)}}
	c.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: fmt.Sprintf(
		"device.driver == '%[1]s' && device.attributes['%[1]s'].%[2]s == '%[3]s'",
		v1alpha1.DRADriver, v1alpha1.DRAConfiguration, kindName)}}}
	return c
}

func publishedRequest(n int) resourceapi.DeviceClaim {
	distinct := resourceapi.FullyQualifiedName(v1alpha1.DRADriver + "/" + v1alpha1.DRAInstance)
	claim := resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{Name: "devices",
		Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: v1alpha1.DeviceClassName(kindName),
			AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: int64(n),
			Capacity: &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{
				v1alpha1.DRASlots: *resource.NewQuantity(1, resource.DecimalSI)}}}}}}
	if n > 1 {
		claim.Constraints = []resourceapi.DeviceConstraint{{DistinctAttribute: &distinct}}
	}
	return claim
}

// checkClaims checks that each pod's claim is allocated, and no device for more than it has slots.
func (r run) checkClaims(claims []resourceapi.ResourceClaim) error {
	var errs []error
	used := map[string]int64{}
	for i := range claims {
		a := claims[i].Status.Allocation
		if a == nil {
			errs = append(errs, fmt.Errorf("claim %s is not allocated", claims[i].Name))
			continue
		}
		for _, result := range a.Devices.Results {
			n := result.ConsumedCapacity[v1alpha1.DRASlots]
			used[result.Device] += n.Value()
		}
	}
	_, capacity := r.instances()
	for device, n := range used {
		if n > int64(capacity) {
			errs = append(errs, fmt.Errorf("%d slots of Instance %s are allocated, of %d", n, device, capacity))
		}
	}
	if len(claims) != r.fill+r.pods {
		errs = append(errs, fmt.Errorf("there are %d claims instead of %d", len(claims), r.fill+r.pods))
	}
	return errors.Join(errs...)
}

// allocator is that of the Configurations.
func (a arm) allocator() akriv0.Allocator {
	if a.allocatorDRA {
		return akriv0.AllocatorDRA
	}
	return akriv0.AllocatorSlots
}
