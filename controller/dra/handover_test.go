package dra

import (
	"fmt"
	"reflect"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kubeslot/kubeslot/controller/inventory"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Without kube-scheduler of Kubeslot the status follows from the SlotClaims, and from what DRA still has.
func TestHandover(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := resourceapi.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	instance := func(id string) string {
		return slot.InstanceName("cam", slot.InstanceHash(id, true, "", slot.ShortHash))
	}
	dra := func(held ...string) *akriv0.AllocatorStatus {
		return akriv0.NewAllocatorStatus(akriv0.AllocatorDRA, held)
	}
	slots := func(held ...string) *akriv0.AllocatorStatus {
		return akriv0.NewAllocatorStatus(akriv0.AllocatorSlots, held)
	}
	claimed := func(id, holder string) *v1alpha1.SlotClaim {
		c := &v1alpha1.SlotClaim{ObjectMeta: metav1.ObjectMeta{Name: instance(id) + "-0"}}
		c.Spec.NodeName, c.Spec.Holder = "a", holder
		if holder == "" {
			c.Spec.ResourceClaim = &v1alpha1.ResourceClaimReference{Namespace: "default", Name: "mine", UID: "u"}
			c.Spec.Holder = v1alpha1.DRAHolder("u", nil)
		}
		return c
	}
	published := func(driver, node string, ids ...string) client.Object {
		s := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(driver, node, ids)}}
		if s.Spec.Driver = driver; node != "" {
			s.Spec.NodeName = &node
		}
		for _, id := range ids {
			s.Spec.Devices = append(s.Spec.Devices, resourceapi.Device{Name: instance(id)})
		}
		return s
	}
	allocated := func(driver, device string) client.Object {
		c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: device}}
		c.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
			Results: []resourceapi.DeviceRequestAllocationResult{{Driver: driver, Device: device}}}}
		return c
	}
	for name, tc := range map[string]struct {
		spec    akriv0.Allocator
		now     *akriv0.AllocatorStatus
		claims  []*v1alpha1.SlotClaim
		objects []client.Object
		taken   bool
		want    *akriv0.AllocatorStatus
	}{
		"slots as ever": {spec: akriv0.AllocatorSlots,
			objects: []client.Object{allocated(v1alpha1.DRADriver, instance("x"))}},
		"to DRA": {spec: akriv0.AllocatorDRA, want: dra()},
		"to DRA, some are held": {spec: akriv0.AllocatorDRA, claims: []*v1alpha1.SlotClaim{claimed("x", "cam-0")},
			want: dra(instance("x"))},
		"DRA's own hold nothing": {spec: akriv0.AllocatorDRA, now: dra(),
			claims: []*v1alpha1.SlotClaim{claimed("x", "")}, want: dra()},
		"another has the name": {spec: akriv0.AllocatorDRA, taken: true},
		"to slots":             {spec: akriv0.AllocatorSlots, now: dra()},
		"to slots, published": {spec: akriv0.AllocatorSlots, now: dra(), want: slots(instance("x")),
			objects: []client.Object{published(v1alpha1.DRADriver, "", "x"), published("other", "", "y"),
				published(v1alpha1.DRADriver, "a", "z")}},
		"to slots, allocated": {spec: akriv0.AllocatorSlots, now: slots(), want: slots(instance("y")),
			objects: []client.Object{allocated(v1alpha1.DRADriver, instance("y")), allocated("other", instance("x")),
				allocated(v1alpha1.DRADriver, "lamp-123456")}},
	} {
		t.Run(name, func(t *testing.T) {
			c := draConfiguration("cam")
			c.Spec.Allocator, c.Status.Allocator = tc.spec, tc.now
			inv := inventory.New()
			inv.SetConfiguration(c)
			if tc.taken {
				c = c.DeepCopy()
				c.UID = types.UID("another")
			}
			for _, claim := range tc.claims {
				inv.SetClaim(claim)
			}
			index := func(o client.Object) []string { return []string{o.(*resourceapi.ResourceSlice).Spec.Driver} }
			live := fake.NewClientBuilder().WithScheme(scheme).WithObjects(tc.objects...).
				WithIndex(&resourceapi.ResourceSlice{}, resourceapi.ResourceSliceSelectorDriver, index).Build()
			got, err := (&Handover{Live: live, Inventory: inv}).Status(t.Context(), c)
			if err != nil || !reflect.DeepEqual(got, tc.want) {
				t.Errorf("%+v, %v; want %+v", got, err, tc.want)
			}
		})
	}
}
