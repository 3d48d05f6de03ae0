package configurationresources

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/preemption"
	"github.com/kubeslot/kubeslot/kube-scheduler/requeue"
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
	r.know(vip)
	r.filter(vip, nodes[0])
	var best *ledger.Preemption
	n := r.searches(func() {
		best, _, _ = r.preemption.Preempt(r.ctx, must(slotrequest.Of(vip)), nodes, 0, ledger.Spread, time.Hour)
	})
	if best == nil || len(best.Victims) != 1 {
		t.Fatalf("preempts %+v, want one pod", best)
	}
	if want := int64(preemption.MaxPreemptions + 1); n != want {
		t.Errorf("%d searches on %d nodes that would do, want %d", n, len(nodes), want)
	}
}

// Nodes that counts rule out cost nothing, however many they are. Of the others a try looks at
// so many nodes and pods; when that finds nothing the pod is tried again, on those that follow.
func TestPreemptionHasALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ruledOut, others = 1000, 30
		r := newRig(t)
		r.mayPreempt(t)
		names := crowdOf("node", ruledOut+others)
		for i, node := range names {
			holder := pod(fmt.Sprint("holder-", i), "1")
			if i < ruledOut {
				holder = important(holder.Name)
			}
			r.hold(t, camera(i), holder, node)
			if i >= ruledOut && i < len(names)-1 { // the claim of another stays when the holder goes: counts do not tell
				r.cache.SetClaim(claim(camera(i)+"-0", "C:stranger:"+node), false)
			}
		}
		vip := important("vip")
		r.know(vip)
		r.preemption.Limit = others / 3 * 2 // a node and its holder each
		for try, searches := range []int{others / 3, others / 3, others/3 + 1} {
			node, status := "", (*fwk.Status)(nil)
			n := r.searches(func() { node, status = r.postFilterOn(t, vip, names...) })
			found := node == names[len(names)-1]
			if found != (try == 2) || n != int64(searches) {
				t.Fatalf("try %d: nominated to %q, %v, after %d searches, want %d", try, node, status, n, searches)
			}
			if !found && (!strings.Contains(status.Message(), "tried again") || !slices.Contains(r.requeuedWithin(10*requeue.RetryInterval), "vip")) {
				t.Fatalf("try %d: %v, and the pod is not tried again", try, status)
			}
		}
	})
}

// A try that goes on where the last one ended looks at the nodes before that, too: they may do by now.
func TestPreemptionGoesRound(t *testing.T) {
	r := newRig(t)
	r.mayPreempt(t)
	r.hold(t, camera(0), pod("holder-0", "1"), "node-a")
	r.hold(t, camera(1), important("holder-1"), "node-b")
	vip := important("vip")
	r.know(vip)
	r.filter(vip, "node-a")
	for _, from := range []int{0, 1, 7} { // of two nodes
		best, _, err := r.preemption.Preempt(r.ctx, must(slotrequest.Of(vip)), []string{"node-a", "node-b"}, from, ledger.Spread, time.Hour)
		if err != nil || best == nil || best.Node != "node-a" {
			t.Errorf("from node %d: %+v, %v, want a preemption for node-a", from, best, err)
		}
	}
}
