package slotcache

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	testclock "k8s.io/utils/clock/testing"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotrequest"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

func resourceSlice(name, driver string, instances ...string) *resourceapi.ResourceSlice {
	s := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + "-uid")}}
	s.Spec.Driver = driver
	for _, instance := range instances {
		s.Spec.Devices = append(s.Spec.Devices, resourceapi.Device{Name: instance})
	}
	return s
}

func resourceClaim(name, driver string, instances ...string) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + "-uid")}}
	if len(instances) > 0 {
		c.Status.Allocation = &resourceapi.AllocationResult{}
		for _, instance := range instances {
			c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results,
				resourceapi.DeviceRequestAllocationResult{Driver: driver, Device: instance})
		}
	}
	return c
}

// handoverRig has one camera of one slot, which node-a reaches.
type handoverRig struct {
	*testing.T
	*Cache
	camera string
}

func newHandoverRig(t *testing.T, sources ...cache.InformerSynced) *handoverRig {
	hash := slot.InstanceHash("one", true, "", slot.ShortHash)
	r := &handoverRig{T: t, Cache: New(klog.Background(), testclock.NewFakeClock(time.Now()), nil, sources...),
		camera: slot.InstanceName("cam", hash)}
	r.Lead()
	r.SetConfiguration(configuration("cam"))
	r.SetSlice(&v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}, Spec: v1alpha1.DeviceSliceSpec{
		NodeName: "node-a", Devices: []v1alpha1.Device{{ID: "one", Hash: hash, Shared: true,
			Configuration: v1alpha1.ConfigurationReference{Namespace: "default", Name: "cam"}}}}})
	return r
}

// assume reports whether a pod gets a slot.
func (r *handoverRig) assume(pod *v1.Pod) bool {
	req, err := slotrequest.Of(pod)
	if err != nil {
		r.Fatal(err)
	}
	_, shortfall, err := r.Assume(req, "node-a", ledger.Spread, nil)
	if err != nil {
		r.Fatal(err)
	}
	return shortfall == nil
}

// wantHeld wants the Configuration to be handed over, or not, while these are held.
func (r *handoverRig) wantHeld(what string, handed bool, want ...string) {
	r.Helper()
	var held []string
	all := r.Handovers()
	if len(all) > 0 {
		held = all[0].Held
	}
	if (len(all) > 0) != handed || !slices.Equal(held, want) {
		r.Errorf("%s: %+v; want it to be one: %v, of %v", what, all, handed, want)
	}
}

// To DRA: no pod gets a slot, and the one that has one keeps it until it is gone.
func TestHandOverToDRA(t *testing.T) {
	r := newHandoverRig(t)
	holder := asking("holder", "cam")
	if !r.assume(holder) {
		t.Fatal("no slot is free")
	}
	r.wantHeld("before", false)
	toDRA := configuration("cam")
	toDRA.Spec.Allocator = akriv0.AllocatorDRA
	r.SetConfiguration(toDRA)
	r.wantHeld("assumed", true, r.camera)
	r.Forget(holder)
	r.wantHeld("forgotten", true)
	if r.assume(asking("p", "cam")) {
		t.Error("a pod was given a slot")
	}
	if amounts := r.Advertisable(holder); len(amounts) > 0 {
		t.Errorf("nodes are to advertise %v", amounts)
	}
}

// Back to slots: the camera is given once no ResourceSlice and no allocation has it. Objects of others count
// for nothing.
func TestHandOverToSlots(t *testing.T) {
	r := newHandoverRig(t)
	resources, claims := r.ResourceSliceHandler(), r.ResourceClaimHandler()
	byNode := resourceSlice("by-node", v1alpha1.DRADriver, r.camera)
	byNode.Spec.NodeName = new(string)
	resources.OnAdd(byNode, true)
	resources.OnAdd(resourceSlice("other", "gpu.example.com", r.camera), true)
	claims.OnAdd(resourceClaim("other", "gpu.example.com", r.camera), true)
	claims.OnAdd(resourceClaim("pending", v1alpha1.DRADriver), true)
	r.wantHeld("of others", false)

	published := resourceSlice("published", v1alpha1.DRADriver, r.camera)
	resources.OnAdd(published, true)
	r.wantHeld("published", true, r.camera)
	pending, has := resourceClaim("claim", v1alpha1.DRADriver), resourceClaim("claim", v1alpha1.DRADriver, r.camera)
	claims.OnAdd(pending, false)
	claims.OnUpdate(pending, has)
	reserved := has.DeepCopy()
	reserved.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Name: "pod"}}
	claims.OnUpdate(has, reserved)
	resources.OnUpdate(published, resourceSlice("published", v1alpha1.DRADriver))
	r.wantHeld("allocated", true, r.camera)
	if r.assume(asking("p", "cam")) {
		t.Error("a pod was given a slot that DRA has allocated")
	}
	claims.OnDelete(cache.DeletedFinalStateUnknown{Key: "claim", Obj: reserved})
	r.wantHeld("deallocated", false)
	if !r.assume(asking("p", "cam")) {
		t.Error("a pod gets no slot of a camera that nobody has")
	}
}

// A scheduler that has not read what there is, or does not lead, says nothing.
func TestHandoverIsNotKnownAtFirst(t *testing.T) {
	synced := false
	r := newHandoverRig(t, func() bool { return synced })
	toDRA := configuration("cam")
	toDRA.Spec.Allocator = akriv0.AllocatorDRA
	r.SetConfiguration(toDRA)
	r.wantHeld("before the ledger is in step", false)
	synced = true
	r.wantHeld("in step", true)
	r.leads = false
	r.wantHeld("of who does not lead", false)
}
