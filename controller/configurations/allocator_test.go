package configurations

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubeslot/kubeslot/controller/brokers"
	"github.com/kubeslot/kubeslot/controller/inventory"
	"github.com/kubeslot/kubeslot/controller/limits"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

func TestAllocatorCondition(t *testing.T) {
	slots, dra := akriv0.AllocatorSlots, akriv0.AllocatorDRA
	for name, tc := range map[string]struct {
		spec   akriv0.Allocator
		status *akriv0.AllocatorStatus
		want   string // status reason: message
	}{
		"always slots":          {slots, nil, ""},
		"not handed to DRA yet": {dra, nil, "False WaitsForScheduler: Slots gives the devices, until"},
		"DRA, but for what pods hold": {dra, akriv0.NewAllocatorStatus(dra, []string{"cam-1", "cam-2"}),
			"False InstancesHeld: DRA gives the devices, but for 2 Instances that pods hold"},
		"DRA": {dra, akriv0.NewAllocatorStatus(dra, nil), "True AllocatorGivesAll: DRA gives all devices"},
		"not handed to slots yet": {slots, akriv0.NewAllocatorStatus(dra, nil),
			"False WaitsForScheduler: DRA gives the devices, until"},
		"slots, but for what DRA gave": {slots, akriv0.NewAllocatorStatus(slots, []string{"cam-1"}),
			"False InstancesHeld: Slots gives the devices, but for 1 Instance"},
	} {
		t.Run(name, func(t *testing.T) {
			c := configuration(false)
			c.Spec.Allocator, c.Status.Allocator = tc.spec, tc.status
			st := status(c, Disabled{}, "", nil, inventory.Summary{}, limits.Sum{}, brokers.Sum{}, start)
			if diff := cmp.Diff(tc.status, st.Allocator); diff != "" {
				t.Errorf("status.allocator is kube-scheduler's (-was +is):\n%s", diff)
			}
			got := ""
			if condition := meta.FindStatusCondition(st.Conditions, akriv0.ConditionAllocatorReady); condition != nil {
				got = string(condition.Status) + " " + condition.Reason + ": " + condition.Message
			}
			if !strings.HasPrefix(got, tc.want) || tc.want == "" && got != "" {
				t.Errorf("the condition is %q, want %q", got, tc.want)
			}
		})
	}
}

// A status that the controller writes keeps what kube-scheduler has written meanwhile.
func TestStatusKeepsTheAllocator(t *testing.T) {
	c := configuration(false)
	c.Spec.Allocator = akriv0.AllocatorDRA
	r := newRig(t, c)
	r.inv.SetConfiguration(c)
	for range 2 { // the first status waits
		r.reconcile()
		r.clock.SetTime(r.clock.Now().Add(Interval))
	}
	before := r.configuration()
	now := before.DeepCopy()
	now.Status.Allocator = akriv0.NewAllocatorStatus(akriv0.AllocatorDRA, []string{"cam-1"})
	if err := r.api.Status().Update(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	r.stale = before
	r.slice("a", 1)
	r.clock.SetTime(r.clock.Now().Add(Interval))
	r.reconcile()
	r.stale = nil
	got := r.configuration().Status
	if got.Instances != 1 || got.Allocator == nil || got.Allocator.Current != akriv0.AllocatorDRA {
		t.Errorf("the status is %+v", got)
	}
}

// Where nobody else writes who gives the devices this status does, and not by what was so before: a spec that
// has changed meanwhile is decided anew.
func TestStatusHandsOver(t *testing.T) {
	c := configuration(false)
	c.Spec.Allocator = akriv0.AllocatorDRA
	r := newRig(t, c)
	r.inv.SetConfiguration(c)
	held := []string{"cam-1"}
	r.Allocator = func(_ context.Context, c *akriv0.Configuration) (*akriv0.AllocatorStatus, error) {
		return c.AllocatorStatusFor(held), nil
	}
	look := func() (reconcile.Result, error) {
		r.clock.SetTime(r.clock.Now().Add(Interval))
		return r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
	}
	for range 2 { // the first status waits
		if _, err := look(); err != nil {
			t.Fatal(err)
		}
	}
	dra := r.configuration()
	if a := dra.Status.Allocator; a == nil || a.Current != akriv0.AllocatorDRA || len(a.Held) != 1 {
		t.Fatalf("status.allocator is %+v", a)
	}
	condition := meta.FindStatusCondition(dra.Status.Conditions, akriv0.ConditionAllocatorReady)
	if condition.Reason != instancesHeld {
		t.Errorf("the condition is %+v", condition)
	}
	back := dra.DeepCopy()
	back.Spec.Allocator = akriv0.AllocatorSlots
	if err := r.api.Update(t.Context(), back); err != nil {
		t.Fatal(err)
	}
	r.stale, held = dra, nil
	if _, err := look(); !apierrors.IsConflict(err) {
		t.Errorf("decided by what was so before: %v, %+v", err, r.configuration().Status.Allocator)
	}
	r.stale, held = nil, []string{"cam-1"}
	if result, err := look(); err != nil || result.RequeueAfter != Interval {
		t.Errorf("what DRA has is looked at again after %s: %v", result.RequeueAfter, err)
	}
	held = nil
	if result, err := look(); err != nil || result.RequeueAfter != 0 || r.configuration().Status.Allocator != nil {
		t.Errorf("%+v, %v; the status is %+v", result, err, r.configuration().Status.Allocator)
	}
}
