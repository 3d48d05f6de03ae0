package configurationresources

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	policylisters "k8s.io/client-go/listers/policy/v1"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/preemption"
	"github.com/kubeslot/kubeslot/kube-scheduler/requeue"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotrequest"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
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
	for _, test := range []struct {
		what   string
		want   int64
		update func()
	}{
		{"a pod begins to end", nominees, func() { r.cache.SetPod(ending(holder)) }},
		{"updates of a pod that ends", 0, func() {
			for i := range updates {
				p := ending(holder)
				p.Status.Message = fmt.Sprint(i)
				r.cache.SetPod(p)
			}
		}},
		{"updates of a nominated pod's annotations", 0, func() {
			for i := range updates {
				p := waiting[0].DeepCopy()
				p.Annotations["example.com/note"] = fmt.Sprint(i)
				r.cache.SetPod(p)
			}
		}},
		{"a pod is nominated to another node", 1, func() { r.cache.SetPod(nominatedTo(waiting[0], "node-a")) }},
	} {
		if n := r.searches(test.update); n != test.want {
			t.Errorf("%s: %d searches for a preemption, want %d", test.what, n, test.want)
		}
	}
}

// Where every node would do, the best of MaxPreemptions is chosen, and that one confirmed. The
// budgets of the holders' namespace are listed once; nothing is looked at for a scheduler that ends, or
// where no holder is of lower priority.
func TestPreemptionLooksAtSoManyNodes(t *testing.T) {
	r := newRig(t)
	nodes := crowdOf("node", 3*preemption.MaxPreemptions)
	for i, node := range nodes {
		r.hold(camera(i), pod(fmt.Sprint("holder-", i), "1"), node)
	}
	vip := important("vip")
	r.know(vip)
	r.filter(vip, nodes[0])
	listed := []string{}
	r.preemption.PDBs = countedBudgets{r.preemption.PDBs, &listed}
	preempt := func(ctx context.Context, p *v1.Pod) (best *ledger.Preemption) {
		best, _, _ = r.preemption.Preempt(ctx, must(slotrequest.Of(p)), nodes, 0, ledger.Spread, time.Hour)
		return best
	}
	ended, end := context.WithCancel(r.ctx)
	end()
	if best := preempt(ended, vip); best != nil {
		t.Errorf("a scheduler that ends preempts %v", best.Victims)
	}
	n := r.searches(func() {
		if best := preempt(r.ctx, withPriority(vip.DeepCopy(), 0)); best != nil {
			t.Fatalf("preempts %v of its own priority", best.Victims)
		}
	})
	if n != 0 || len(listed) != 0 {
		t.Errorf("no holder is of lower priority: %d searches, budgets listed of %v", n, listed)
	}
	n = r.searches(func() {
		if best := preempt(r.ctx, vip); best == nil || len(best.Victims) != 1 {
			t.Fatalf("preempts %+v, want one pod", best)
		}
	})
	if want := int64(preemption.MaxPreemptions + 1); n != want || !slices.Equal(listed, []string{"default"}) {
		t.Errorf("%d searches on %d nodes that would do, want %d; budgets listed of %v", n, len(nodes), want, listed)
	}
}

// countedBudgets has the namespaces whose budgets were listed.
type countedBudgets struct {
	policylisters.PodDisruptionBudgetLister
	listed *[]string
}

func (c countedBudgets) PodDisruptionBudgets(namespace string) policylisters.PodDisruptionBudgetNamespaceLister {
	*c.listed = append(*c.listed, namespace)
	return c.PodDisruptionBudgetLister.PodDisruptionBudgets(namespace)
}

// Nodes that counts rule out cost nothing, however many they are. Of the others a try looks at
// so many nodes and pods; when that finds nothing the pod is tried again, on those that follow.
func TestPreemptionHasALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ruledOut, others = 1000, 30
		r := newRig(t)
		names := crowdOf("node", ruledOut+others)
		for i, node := range names {
			holder := pod(fmt.Sprint("holder-", i), "1")
			if i < ruledOut {
				holder = important(holder.Name)
			}
			r.hold(camera(i), holder, node)
			if i >= ruledOut && i < len(names)-1 { // the claim of another stays when the holder goes: counts do not tell
				r.cache.SetClaim(claim(camera(i)+"-0", "C:stranger:"+node))
			}
		}
		vip := important("vip")
		r.know(vip)
		r.preemption.Limit = others / 3 * 3 // a node, its holder, and the node with the holder gone
		for try, searches := range []int{others / 3, others / 3, others/3 + 1} {
			node, status := "", (*fwk.Status)(nil)
			n := r.searches(func() { node, status = r.postFilterOn(vip, names...) })
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

// Pods that are being deleted count, too, where a node that reaches what they hold is looked at.
func TestPreemptionLooksAtSoManyEndingPods(t *testing.T) {
	const nodes, going = 30, 9
	r := newRig(t)
	perNode := cameras(1)
	perNode.Spec.UniqueScope = akriv0.UniquePerNode // then no two nodes are alike
	r.cache.SetConfiguration(perNode)
	names := crowdOf("node", nodes)
	for i := range going {
		r.cache.SetPod(ending(r.hold(camera(i), pod(fmt.Sprint("holder-", i), "1"), names...)))
		r.cache.SetClaim(claim(camera(i)+"-0", "C:stranger:"+names[0])) // it stays when the holder goes
	}
	vip := important("vip")
	r.know(vip)
	r.preemption.Limit = 10 * (1 + going)
	if n := r.searches(func() { r.postFilterOn(vip, names...) }); n != 10 {
		t.Errorf("%d nodes were looked at, with %d pods each, want 10", n, going)
	}
}

// While a preemption is looked for, a node ceases to reach the device that another one reaches, too. If the
// search has missed that device's holder for that, the pod is tried again: no event would have it.
func TestPreemptionWhileReachChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.hold(camera(0), pod("holder-0", "1"), "node-a")
		r.cache.SetClaim(claim(camera(0)+"-0", "C:stranger:node-a")) // it stays when the holder goes
		r.hold(camera(1), important("holder-1"), "node-b")
		r.hold(camera(2), pod("holder-2", "1"), "node-c", "node-b")
		vip := important("vip")
		r.know(vip)
		r.preemption.PDBs = changingBudgets{r.preemption.PDBs, func() { device(r.cache, camera(2), nil, "node-b") }}
		node, status := r.postFilterOn(vip, "node-a", "node-b")
		activated := r.requeuedWithin(2 * requeue.RetryInterval)
		if node != "node-b" && !slices.Contains(activated, "vip") {
			t.Errorf("nominated to %q, %v, and not tried again", node, status)
		}
	})
}

// changingBudgets has something change when budgets are listed.
type changingBudgets struct {
	policylisters.PodDisruptionBudgetLister
	change func()
}

func (c changingBudgets) PodDisruptionBudgets(namespace string) policylisters.PodDisruptionBudgetNamespaceLister {
	c.change()
	return c.PodDisruptionBudgetLister.PodDisruptionBudgets(namespace)
}

// A try that goes on where the last one ended looks at the nodes before that, too: they may do by now.
func TestPreemptionGoesRound(t *testing.T) {
	r := newRig(t)
	r.hold(camera(0), pod("holder-0", "1"), "node-a")
	r.hold(camera(1), important("holder-1"), "node-b")
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

// While upstream puts pods back one by one that it might have preempted, the search for slots comes to its limit. Then
// nobody knows whether the next one may stay: no pod is preempted for that. The plugin's own preemption has a
// budget of its own.
func TestPreemptionGivesUpRatherThanEvictMore(t *testing.T) {
	const devices = 600
	r := newRig(t)
	for i := range devices - 1 {
		device(r.cache, camera(i), nil, "node-a")
	}
	holder := r.hold(camera(devices), pod("holder", "1"), "node-a")
	vip := withPriority(pod("vip", fmt.Sprint(devices)), 100)
	r.know(vip)
	other, on := must(framework.NewPodInfo(holder)), infoOf(advertising("node-a", fmt.Sprint(devices)))
	r.handle.nodes = []fwk.NodeInfo{on}
	state, statuses := r.refuseWith(vip, fwk.Unschedulable, on)
	gaveUp := false
	for i := 0; i < 10_000 && !gaveUp; i++ {
		wantStatus(t, "removed", r.RemovePod(r.ctx, state, vip, other, on), fwk.Success)
		status := r.Filter(r.ctx, state, vip, on)
		if i == 0 {
			wantStatus(t, "without the holder", status, fwk.Success)
		}
		gaveUp = !r.AddPod(r.ctx, state, vip, other, on).IsSuccess()
	}
	if !gaveUp {
		t.Error("the search goes on for ever")
	}
	if node, status := nominated(r.PostFilter(r.ctx, state, vip, statuses)); node != "node-a" {
		t.Errorf("nominated to %q, %v", node, status)
	}
}

// Victims are evicted side by side: one may wait long for the API server, or for a webhook. When one cannot be, those
// that are left stay.
func TestEvictsInParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var victims []ledger.Victim
		for i := range 40 {
			holder := r.hold(camera(i), pod(fmt.Sprint("holder-", i), "1"), "node-a")
			victims = append(victims, ledger.Victim{Pod: slotrequest.PodOf(holder)})
		}
		var asked atomic.Int32
		both := make(chan struct{})
		r.preemption.Pods = watchedPods{r.preemption.Pods, func() {
			if asked.Add(1) == 2 {
				close(both)
			}
			select {
			case <-both:
			case <-time.After(time.Minute):
				t.Error("they are evicted one after the other")
			}
		}}
		evict := func(some []ledger.Victim) {
			r.preemption.Evict(r.ctx, important("vip"), &ledger.Preemption{Node: "node-a", Victims: some}, nil)
		}
		evict(victims[:2])
		if n := len(r.deleted()); n != 2 {
			t.Errorf("%d are deleted, want 2", n)
		}
		r.client.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("a webhook denied the request")
		})
		evict(victims[2:])
		if n := len(r.deleted()) - 2; n > 2 { // as many as at once
			t.Errorf("%d more are to be deleted after the first could not be", n)
		}
	})
}

// Filter gives up before it comes to the one node that has what a pod asks for, and would again, for it begins with the
// same nodes. The pod is nominated to that node: the framework looks there first the next time.
func TestSlotsBehindTheSearchLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const devices = 39
		r := newRig(t)
		perNode := cameras(devices + 1)
		perNode.Spec.UniqueScope = akriv0.UniquePerNode // then no two nodes are alike
		r.cache.SetConfiguration(perNode)
		nodes := append(crowdOf("hard", 12), "last")
		for i := range 3 * devices {
			if i < devices {
				device(r.cache, camera(i), nil, nodes...)
			} else {
				device(r.cache, camera(i), nil, "last")
			}
		}
		p := pod("p", "1")
		p.Spec.Containers = nil
		for i := range devices + 1 { // one of these devices too few, which only a search can tell
			c := pod("p", "1").Spec.Containers[0]
			c.Name = fmt.Sprint("c", i)
			for at := range devices {
				if (at*7+i*11)%5 == 0 {
					c.Resources.Requests["akri.sh/"+v1.ResourceName(camera(at))] = resource.MustParse("1")
				}
			}
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
		r.know(p)
		node, status := r.postFilterOn(p, nodes...)
		if node != "last" {
			t.Fatalf("nominated to %q, %v", node, status)
		}
		r.wantActivatedWithin(requeue.RetryInterval, "nominated", "p")
		r.postFilterOn(p, nodes...) // the nomination has not reached the API yet
		r.wantActivatedWithin(2*requeue.RetryInterval, "nominated still", "p")
		r.schedule(p, "last")
	})
}
