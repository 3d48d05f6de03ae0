package claims

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/controller/inventory"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// A node in device-plugin mode claims without a pod. Its claims count, and are deleted, as
// others are: no pod that was assigned the slot speaks for them, but what the node lists.
func TestClaimWithoutAPod(t *testing.T) {
	listing := func(node string, gone bool) *v1alpha1.DeviceSlice {
		return &v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-0"}, Spec: v1alpha1.DeviceSliceSpec{NodeName: node,
			Devices: []v1alpha1.Device{{Configuration: v1alpha1.ConfigurationReference{Namespace: "default", Name: "cam"}, ID: "foo0", Shared: true,
				Hash: slot.InstanceHash("foo0", true, "", slot.ShortHash), Unschedulable: gone, Gone: gone}}}}
	}
	newRig := func(t *testing.T) (*rig, *v1alpha1.SlotClaim) {
		r := newRig(t)
		node := nodeOf("n1", corev1.ConditionTrue)
		node.Labels = map[string]string{v1alpha1.ModeLabel: v1alpha1.ModeDevicePlugin}
		r.add(node)
		r.inv.SetConfiguration(&akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cam"}})
		r.inv.SetSlice(listing("node-b", false))
		r.began = r.clock.Now()
		r.clock.SetTime(r.clock.Now().Add(grace))
		claim := claimBy("cam-0", "n1")
		claim.Spec.Pod = nil
		return r, claim
	}
	t.Run("of a device of another node", func(t *testing.T) {
		r, claim := newRig(t)
		r.add(claim)
		r.deletesFor("NeverCounted")
	})
	t.Run("of a device that no node sees", func(t *testing.T) {
		r, claim := newRig(t)
		r.inv.DeleteSlice("node-b-0")
		r.add(claim)
		r.deletesFor("NeverCounted")
	})
	t.Run("the cache of DeviceSlices is behind", func(t *testing.T) {
		r, claim := newRig(t)
		if err := r.api.Create(t.Context(), listing("node-a", false)); err != nil {
			t.Fatal(err)
		}
		r.add(claim)
		r.keeps(grace)
		r.inv.SetSlice(listing("node-a", false))
		r.keeps(0)
	})
	t.Run("of a device that is gone", func(t *testing.T) {
		r, claim := newRig(t)
		r.inv.SetSlice(listing("node-a", false))
		r.add(claim)
		r.keeps(0)
		r.inv.SetSlice(listing("node-a", true))
		r.keeps(0)
		r.inv.DeleteSlice("node-b-0")
		r.keeps(0)
		r.inv.DeleteSlice("node-a-0") // nobody can have the slot
		r.keeps(0)
		r.inv.SetSlice(listing("node-b", false))
		r.keeps(grace)
		r.clock.SetTime(r.clock.Now().Add(grace))
		r.deletesFor("DoesNotCount")
	})
	t.Run("without its Configuration", func(t *testing.T) {
		r, claim := newRig(t)
		r.inv.SetSlice(listing("node-a", false))
		r.add(claim)
		r.keeps(0)
		r.inv.DeleteConfiguration("default", "cam")
		r.keeps(0)
	})
	for name, selector := range map[string]map[string]string{"that discovers": {v1alpha1.ModeLabel: v1alpha1.ModeDevicePlugin}, "that does not": {"net": "shop"}} {
		t.Run("of a node "+name, func(t *testing.T) {
			r, claim := newRig(t)
			r.inv.SetConfiguration(&akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cam"},
				Spec: akriv0.ConfigurationSpec{Discovery: &akriv0.Discovery{NodeSelector: selector}}})
			r.inv.SetNode("node-b", inventory.Node{Labels: selector})
			r.add(claim) // node-a is not in the cache of Nodes yet
			if name == "that discovers" {
				r.keeps(grace)
			} else {
				r.deletesFor("NeverCounted")
			}
		})
	}
}
