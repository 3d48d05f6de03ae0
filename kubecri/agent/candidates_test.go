package agent

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"
)

// watchers counts the watches of Leases that are open.
type watchers struct{ atomic.Int32 }

func (w *watchers) of(a *api) clienttesting.WatchReactionFunc {
	return func(action clienttesting.Action) (bool, watch.Interface, error) {
		is, err := a.kube.Tracker().Watch(action.GetResource(), action.GetNamespace())
		w.Add(1)
		return true, &counted{Interface: is, open: w}, err
	}
}

type counted struct {
	watch.Interface
	open   *watchers
	closed atomic.Bool
}

func (c *counted) Stop() {
	if !c.closed.Swap(true) {
		c.open.Add(-1)
	}
	c.Interface.Stop()
}

// Of the nodes that are selected those watch the Leases that hold one, to discover or to be the next. The
// others look now and then, so that there are discoverers again also when all of these die at once.
func TestOnlyCandidatesWatchLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open watchers
		s := openShop(t, 1)
		s.kube.PrependWatchReactor("leases", open.of(s.api))
		for _, name := range []string{"n1", "n2", "n3", "n4", "n5"} {
			n := node(name)
			n.Labels = map[string]string{"net": "shop"}
			if err := s.kube.Tracker().Add(n); err != nil {
				t.Fatal(err)
			}
			s.handlers[name] = seeing("foo0")
			s.nodes[name] = s.start(t, name, s.handlers[name])
		}
		pass(3 * time.Second)
		s.want(t, time.Minute, 1, 1)
		if n := open.Load(); n != 2 {
			t.Errorf("%d nodes watch the Leases, want the one that discovers and the next", n)
		}
		holder := s.discover()[0]
		leases := s.kube.CoordinationV1().Leases(ns)
		lease, err := leases.Get(t.Context(), "kubeslot-discovery-cam-1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s.outage(0)
		s.nodes[holder].stop()
		s.nodes[*lease.Spec.HolderIdentity].stop()
		s.outage(-1)
		s.want(t, leaseDuration+4*lookAfter, 1, anyNumber) // two looks
		s.want(t, 2*lookAfter, 1, 2)                       // what the dead one has reported stands
		if n := open.Load(); n != 2 {
			t.Errorf("%d nodes watch the Leases after two have died, want 2", n)
		}
	})
}
