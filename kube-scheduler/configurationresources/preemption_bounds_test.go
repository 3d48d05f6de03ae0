package configurationresources

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/preemption"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotrequest"
)

// searches is how many preemptions were looked for while f ran.
func (r *rig) searches(f func()) int64 {
	before := ledgerOf(r.cache).PreemptionSearches()
	f()
	return ledgerOf(r.cache).PreemptionSearches() - before
}

// A pod that ends has its status changed many times, and others annotate pods as often as they
// like. Of 50 pods that DefaultPreemption nominated, and for which too little is freed, each is
// looked at once when the pod begins to end, and not again for any of that.
func TestUpdatesOfPodsDoNotPreemptAgain(t *testing.T) {
	const nominees, updates = 50, 100
	r, holder := preemptionRig(t)
	var waiting []*v1.Pod
	for i := range nominees {
		p := nominatedTo(withPriority(pod(fmt.Sprint("vip-", i), "2"), 100), holder.Spec.NodeName)
		waiting = append(waiting, p)
		r.cache.SetPod(p)
	}
	if n := r.searches(func() { r.cache.SetPod(ending(holder)) }); n != nominees {
		t.Errorf("a pod begins to end: %d searches for a preemption, want one for each of %d nominated pods", n, nominees)
	}
	if n := r.searches(func() {
		for i := range updates {
			p := ending(holder)
			p.Status.Message = fmt.Sprint(i)
			r.cache.SetPod(p)
		}
	}); n != 0 {
		t.Errorf("%d updates of a pod that ends: %d searches for a preemption, want none", updates, n)
	}
	if n := r.searches(func() {
		for i := range updates {
			p := waiting[0].DeepCopy()
			p.Annotations["example.com/note"] = fmt.Sprint(i)
			r.cache.SetPod(p)
		}
	}); n != 0 {
		t.Errorf("%d updates of a nominated pod's annotations: %d searches for a preemption, want none", updates, n)
	}
	moved := waiting[0].DeepCopy()
	moved.Status.NominatedNodeName = "node-a"
	if n := r.searches(func() { r.cache.SetPod(moved) }); n != 1 {
		t.Errorf("the pod is nominated to another node: %d searches, want 1", n)
	}
}

// Where every node would do, the best of MaxPreemptions is chosen, and that one confirmed.
func TestPreemptionLooksAtSoManyNodes(t *testing.T) {
	r := newRig(t)
	r.mayPreempt(t)
	nodes := crowdOf("node", 3*preemption.MaxPreemptions)
	for i, node := range nodes {
		r.hold(t, camera(i), pod(fmt.Sprint("holder-", i), "1"), node)
	}
	vip := important("vip")
	if err := r.known.Add(vip); err != nil {
		t.Fatal(err)
	}
	r.filter(vip, nodes[0])
	var best *ledger.Preemption
	n := r.searches(func() {
		best, _ = r.preemption.Preempt(r.ctx, must(slotrequest.Of(vip)), nodes, ledger.Spread, time.Hour)
	})
	if best == nil || len(best.Victims) != 1 {
		t.Fatalf("preempts %+v, want one pod", best)
	}
	if want := int64(preemption.MaxPreemptions + 1); n != want {
		t.Errorf("%d searches on %d nodes that would do, want %d", n, len(nodes), want)
	}
}
