package configurations

import (
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// The first change is written soon, and at most one in 5 seconds; what does not
// change is not written.
func TestOneWriteInFiveSeconds(t *testing.T) {
	r := newRig(t, configuration(false))
	r.inv.SetConfiguration(configuration(false))
	due := start
	const every = 20 * time.Millisecond
	look := func() {
		if after := r.reconcile().RequeueAfter; after > 0 {
			due = r.clock.Now().Add(after)
		}
	}
	for i := range 1000 { // 20 s
		r.clock.SetTime(start.Add(time.Duration(i) * every))
		r.slice(fmt.Sprint("node-", i), 1)
		look()
	}
	for due.After(r.clock.Now()) {
		r.clock.SetTime(due)
		look()
	}
	for i := 1; i < len(r.writes); i++ {
		if r.writes[i].Sub(r.writes[i-1]) < Interval {
			t.Errorf("writes at %s and %s", r.writes[i-1], r.writes[i])
		}
	}
	if len(r.writes) < 4 || len(r.writes) > 6 || r.writes[0].Sub(start) > 2*lookInterval {
		t.Errorf("%d writes in 25 s, the first after %s", len(r.writes), r.writes[0].Sub(start))
	}
	if st := r.configuration().Status; st.Nodes != 1000 || st.Instances != 1 || st.Slots.Total != 2 {
		t.Errorf("in the end %+v", st)
	}
	before := len(r.writes)
	r.clock.SetTime(r.clock.Now().Add(time.Hour))
	if result := r.reconcile(); len(r.writes) != before || result.RequeueAfter != 0 {
		t.Errorf("an unchanged status is written, or looked at again: %+v", result)
	}
}

func TestFirstStatusWaits(t *testing.T) {
	c := configuration(true)
	r := newRig(t, c)
	r.inv.SetConfiguration(c)
	r.slice("a", 2)
	if result := r.reconcile(); len(r.writes) != 0 || result.RequeueAfter != lookInterval {
		t.Errorf("a new Configuration's first devices are not waited for: %+v", result)
	}
	r.clock.SetTime(start.Add(time.Second))
	if result := r.reconcile(); len(r.writes) != 0 || result.RequeueAfter != lookInterval {
		t.Errorf("its brokers are not waited for: %+v", result)
	}
	r.sum.Instances = 2
	r.clock.SetTime(start.Add(2 * time.Second))
	if r.reconcile(); len(r.writes) != 1 {
		t.Error("not written once all is known")
	}
	r = newRig(t, c)
	r.inv.SetConfiguration(c)
	r.slice("a", 2)
	for range 30 {
		r.clock.SetTime(r.clock.Now().Add(r.reconcile().RequeueAfter))
	}
	if len(r.writes) != 1 {
		t.Errorf("%d writes while the brokers of some Instances are never looked at, want 1", len(r.writes))
	}
}

func TestFailedWrites(t *testing.T) {
	r := newRig(t, configuration(false))
	r.inv.SetConfiguration(configuration(false))
	r.reconcile()
	r.clock.SetTime(start.Add(lookInterval))
	r.fail = apierrors.NewInternalError(errors.New("why"))
	if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err == nil {
		t.Error("a failed write is no error")
	}
	r.clock.SetTime(start.Add(lookInterval + Interval))
	if r.reconcile(); r.configuration().Status.ObservedGeneration != 3 {
		t.Error("it is not written later")
	}
	if err := r.api.Delete(t.Context(), r.configuration()); err != nil {
		t.Fatal(err)
	}
	if r.reconcile(); len(r.times) != 0 {
		t.Error("a Configuration that is gone is remembered")
	}
}
