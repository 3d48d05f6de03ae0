package claims

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ktypes "k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

func slotOfAResourceClaim(share ktypes.UID) *v1alpha1.SlotClaim {
	return v1alpha1.NewSlotClaim(slot.Name{Instance: "cam-8120fe"}, v1alpha1.SlotClaimSpec{
		NodeName: "node-a", Level: v1alpha1.ConfigurationLevel, Holder: v1alpha1.DRAHolder("rc-uid", &share),
		ResourceClaim: &v1alpha1.ResourceClaimReference{Namespace: "yard", Name: "rc", UID: "rc-uid"},
	}, v1alpha1.NodeOwner("node-a", "n1"))
}

// The claim of a node that is gone is released when its ResourceClaim no longer has the slot.
func TestSlotOfAResourceClaim(t *testing.T) {
	share := ktypes.UID("share")
	result := resourceapi.DeviceRequestAllocationResult{
		Driver: v1alpha1.DRADriver, Pool: "cam-8120fe", Device: "cam-8120fe", ShareID: &share}
	of := func(change func(*resourceapi.DeviceRequestAllocationResult)) *resourceapi.ResourceClaim {
		c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "yard", Name: "rc", UID: "rc-uid"}}
		changed := result
		change(&changed)
		c.Status.Allocation = &resourceapi.AllocationResult{}
		c.Status.Allocation.Devices.Results = []resourceapi.DeviceRequestAllocationResult{changed}
		return c
	}
	allocated := of(func(*resourceapi.DeviceRequestAllocationResult) {})
	deallocated := allocated.DeepCopy()
	deallocated.Status.Allocation = nil
	another := allocated.DeepCopy()
	another.UID = "another-uid"
	other := ktypes.UID("other")
	foreign := of(func(r *resourceapi.DeviceRequestAllocationResult) { r.Driver = "gpu.example.com" })
	for name, tc := range map[string]struct {
		claim *resourceapi.ResourceClaim
		kept  bool
	}{
		"allocated":        {allocated, true},
		"gone":             {nil, false},
		"deallocated":      {deallocated, false},
		"another's of it":  {another, false},
		"another device":   {of(func(r *resourceapi.DeviceRequestAllocationResult) { r.Device = "cam-f30c78" }), false},
		"another driver":   {foreign, false},
		"another's share":  {of(func(r *resourceapi.DeviceRequestAllocationResult) { r.ShareID = &other }), false},
		"no share, as was": {of(func(r *resourceapi.DeviceRequestAllocationResult) { r.ShareID = nil }), false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.see()
			r.add(slotOfAResourceClaim(share))
			if tc.claim != nil {
				if err := r.api.Create(t.Context(), tc.claim.DeepCopy()); err != nil {
					t.Fatal(err)
				}
			}
			if tc.kept {
				r.keeps(allocationAgain)
			} else {
				r.deletesFor("SlotClaimNodeGone")
			}
		})
	}
}

// A node does not keep the claim of a device that it does not reach by naming the ResourceClaim that has the device on
// another node.
func TestResourceClaimOfAnotherNode(t *testing.T) {
	share := ktypes.UID("share")
	byName := func(node string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}
	}
	byLabel := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: "reach", Operator: corev1.NodeSelectorOpExists}}} // node-a may have had it then
	for name, tc := range map[string]struct {
		on   corev1.NodeSelectorTerm
		kept bool
	}{"node-a": {byName("node-a"), true}, "node-b": {byName("node-b"), false}, "by label": {byLabel, true}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.seenBy("node-b")
			r.began = true // what is claimed from now on has not counted before
			r.add(nodeOf("n1", corev1.ConditionTrue), slotOfAResourceClaim(share))
			c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "yard", Name: "rc", UID: "rc-uid"}}
			c.Status.Allocation = &resourceapi.AllocationResult{NodeSelector: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{tc.on}}}
			c.Status.Allocation.Devices.Results = []resourceapi.DeviceRequestAllocationResult{
				{Driver: v1alpha1.DRADriver, Pool: "cam-8120fe", Device: "cam-8120fe", ShareID: &share}}
			if err := r.api.Create(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			if tc.kept {
				r.keeps(allocationAgain)
			} else {
				r.deletesFor("SlotClaimNeverCounted")
			}
		})
	}
}
