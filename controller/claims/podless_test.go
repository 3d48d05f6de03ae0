package claims

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ktypes "k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

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
		r.began = true
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
	t.Run("of a scheduler, before the pod is bound, and that cache is behind", func(t *testing.T) {
		r, _ := newRig(t)
		if err := r.api.Create(t.Context(), listing("node-a", false)); err != nil {
			t.Fatal(err)
		}
		r.add(podOn(t, "u1", "", ""), claimBy("u1", "n1"))
		r.keeps(grace)
		r.inv.SetSlice(listing("node-a", false))
		r.keeps(0)
	})
	t.Run("the cache has no Configuration yet", func(t *testing.T) {
		r, claim := newRig(t)
		r.inv.DeleteConfiguration("default", "cam")
		c := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cam"}}
		if err := r.api.Create(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		r.add(claim)
		r.keeps(0)
	})
	t.Run("of a Configuration that is not there", func(t *testing.T) {
		r, claim := newRig(t)
		r.inv.DeleteConfiguration("default", "cam")
		r.add(claim)
		r.deletesFor("NeverCounted")
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
		r.inv.SetSlice(listing("node-b", false)) // a container of node-a may use it
		r.keeps(0)
		r.restart()
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
	// The claim is of slot 0, the only one of capacity 1: another of the device is beyond it.
	capacity := func(n int32) *akriv0.Configuration {
		return &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cam"}, Spec: akriv0.ConfigurationSpec{Capacity: n}}
	}
	second := func(claim *v1alpha1.SlotClaim) *v1alpha1.SlotClaim {
		other := v1alpha1.NewSlotClaim(slot.Name{Instance: "cam-8120fe", Index: 1}, claim.Spec, claim.OwnerReferences[0])
		other.UID = claim.UID
		return other
	}
	reconcileOf := func(r *rig, name string) (gone bool) {
		t.Helper()
		result, err := r.Reconcile(r.Context(), reconcile.Request{NamespacedName: ktypes.NamespacedName{Name: name}})
		if err != nil || result.RequeueAfter != 0 {
			r.Fatalf("%+v %v", result, err)
		}
		return apierrors.IsNotFound(r.api.Get(r.Context(), client.ObjectKey{Name: name}, &v1alpha1.SlotClaim{}))
	}
	t.Run("whose capacity is lowered and raised", func(t *testing.T) {
		r, claim := newRig(t)
		r.inv.SetConfiguration(capacity(2))
		r.inv.SetSlice(listing("node-a", false))
		claim = second(claim)
		r.add(claim)
		for _, n := range []int32{2, 1, 1, 2, 1} {
			r.inv.SetConfiguration(capacity(n))
			for range 2 {
				if reconcileOf(r, claim.Name) {
					t.Fatalf("with capacity %d the claim of a slot that is in use is deleted", n)
				}
				r.clock.SetTime(r.clock.Now().Add(grace))
			}
			if why := r.inv.DoesNotCount(claim); (why == nil) != (n == 2) {
				t.Errorf("with capacity %d it counts not: %v", n, why)
			}
		}
	})
	t.Run("before the controller began, and looked at late", func(t *testing.T) {
		r, claim := newRig(t)
		r.restart()
		r.inv.DeleteSlice("node-b-0")
		late := second(claim)
		late.UID = "late"
		r.add(claim, late)
		r.keeps(0)
		r.clock.SetTime(r.clock.Now().Add(grace)) // the API server is slow, or they are many
		if reconcileOf(r, late.Name) {
			t.Error("deleted as one that never counted, though it may have before the controller began")
		}
	})
	t.Run("beyond the capacity from the first", func(t *testing.T) {
		r, claim := newRig(t)
		r.inv.SetConfiguration(capacity(1))
		slice := listing("node-a", false)
		r.inv.SetSlice(slice)
		for _, o := range []client.Object{slice, capacity(1)} { // as the API server has them
			if err := r.api.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
		r.add(second(claim))
		if !reconcileOf(r, "cam-8120fe-1") {
			t.Error("kept: it would count when the capacity grows")
		}
	})
	t.Run("the cache of Configurations is behind", func(t *testing.T) {
		r, claim := newRig(t)
		r.inv.SetConfiguration(capacity(1))
		r.inv.SetSlice(listing("node-a", false))
		if err := r.api.Create(t.Context(), capacity(2)); err != nil {
			t.Fatal(err)
		}
		r.add(second(claim))
		if reconcileOf(r, "cam-8120fe-1") {
			t.Error("deleted, though the capacity has grown")
		}
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
