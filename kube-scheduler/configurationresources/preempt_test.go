package configurationresources

import (
	"errors"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	policylisters "k8s.io/client-go/listers/policy/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// nodesHandle adds what PostFilter needs of the framework.
type nodesHandle struct {
	fakeHandle
	fwk.SharedLister
	nodes []fwk.NodeInfo
}

func (h nodesHandle) SnapshotSharedLister() fwk.SharedLister    { return h }
func (h nodesHandle) NodeInfos() fwk.NodeInfoLister             { return nodeLister{nodes: h.nodes} }
func (h nodesHandle) GetWaitingPod(types.UID) fwk.WaitingPod    { return nil }
func (h nodesHandle) EventRecorder() events.EventRecorderLogger { return noEvents{} }

type noEvents struct{ events.EventRecorderLogger }

func (noEvents) Eventf(_, _ runtime.Object, _, _, _, _ string, _ ...any) {}

type nodeLister struct {
	fwk.NodeInfoLister
	nodes []fwk.NodeInfo
}

func (l nodeLister) List() ([]fwk.NodeInfo, error) { return l.nodes, nil }
func (l nodeLister) Get(name string) (fwk.NodeInfo, error) {
	i := slices.IndexFunc(l.nodes, func(n fwk.NodeInfo) bool { return n.Node().Name == name })
	return l.nodes[i], nil
}

// preemptionRig has a shared camera with one slot, which a pod on node-b holds.
func preemptionRig(t *testing.T) (*rig, *v1.Pod) {
	r := newRig(t)
	budgets := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	r.pdbs = policylisters.NewPodDisruptionBudgetLister(budgets)
	r.handle = nodesHandle{fakeHandle: fakeHandle{client: r.client}, nodes: []fwk.NodeInfo{nodeInfo("node-a"), nodeInfo("node-b")}}
	r.instance("cam-1", nil, "node-a", "node-b")
	holder := pod("holder", "1")
	state := r.schedule(t, holder, "node-b")
	c, _ := readCycle(state)
	holder = bound(t, holder, "node-b", c.assignment)
	r.book.setPod(holder)
	if err := r.known.Add(holder); err != nil {
		t.Fatal(err)
	}
	if err := r.client.Tracker().Add(holder); err != nil {
		t.Fatal(err)
	}
	return r, holder
}

func important(name string) *v1.Pod {
	p, priority := pod(name, "1"), int32(100)
	p.Spec.Priority = &priority
	return p
}

// postFilter is what the framework does when node-a is short of slots only.
func (r *rig) postFilter(t *testing.T, p *v1.Pod) (string, *fwk.Status) {
	t.Helper()
	state, status := r.filter(p, "node-a")
	if status.Code() != fwk.Unschedulable {
		t.Fatalf("Filter: %v", status)
	}
	statuses := framework.NewDefaultNodeToStatus()
	statuses.Set("node-a", status.WithPlugin(Name))
	statuses.Set("node-b", fwk.NewStatus(fwk.Unschedulable, "no CPU").WithPlugin("NodeResourcesFit"))
	result, status := r.PostFilter(r.ctx, state, p, statuses)
	if result == nil {
		return "", status
	}
	return result.NominatedNodeName, status
}

// deleted returns the names of the pods deleted, each by its UID.
func (r *rig) deleted() []string {
	var names []string
	for _, a := range r.client.Actions() {
		d, ok := a.(clienttesting.DeleteActionImpl)
		if !ok {
			continue
		}
		name := d.GetName()
		if pre := d.DeleteOptions.Preconditions; pre == nil || pre.UID == nil || *pre.UID != types.UID(name+"-uid") {
			name += ", or another of its name"
		}
		names = append(names, name)
	}
	return names
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited 30s for %s", what)
		}
	}
}

// A pod on node-a takes the slot of a pod on node-b, and nobody takes it in
// between.
func TestPreemptsAcrossNodes(t *testing.T) {
	r, holder := preemptionRig(t)
	vip := important("vip")
	r.book.setPod(vip)
	if node, status := r.postFilter(t, vip); node != "node-a" || !status.IsSuccess() {
		t.Fatalf("nominated to %q, %v", node, status)
	}
	eventually(t, "the holder's eviction", func() bool { return slices.Equal(r.deleted(), []string{"holder"}) })
	// While the victim ends, nothing more is evicted.
	if node, status := r.postFilter(t, vip); node != "node-a" || !status.IsSuccess() || len(r.deleted()) != 1 {
		t.Errorf("the second time: nominated to %q, %v; deleted %v", node, status, r.deleted())
	}
	r.activated = nil
	r.book.deletePod(holder)
	if !slices.Contains(r.activated, "vip") {
		t.Errorf("the victim gone: activated %v", r.activated)
	}
	if _, status := r.filter(pod("thief", "1"), "node-b"); status.Code() != fwk.Unschedulable {
		t.Errorf("a pod of lower priority may take the slot: %v", status)
	}
	state := r.schedule(t, vip, "node-a")
	c, _ := readCycle(state)
	r.book.setPod(bound(t, vip, "node-a", c.assignment))
	if r.book.nominatedNode("vip-uid") != "" || len(r.book.deadlines) != 0 {
		t.Error("the nomination outlives the bind")
	}
}

func TestDoesNotPreempt(t *testing.T) {
	never := v1.PreemptNever
	for name, change := range map[string]func(*v1.Pod){
		"same priority":          func(p *v1.Pod) { p.Spec.Priority = nil },
		"preemptionPolicy Never": func(p *v1.Pod) { p.Spec.PreemptionPolicy = &never },
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := preemptionRig(t)
			p := important("vip")
			change(p)
			if node, status := r.postFilter(t, p); node != "" || status.Code() != fwk.Unschedulable {
				t.Errorf("nominated to %q, %v", node, status)
			}
			if _, ok := r.book.deadlines["vip-uid"]; ok {
				t.Error("slots are kept for it")
			}
		})
	}
}

// What was kept is let go when the time is over, and others are tried again.
func TestNominationEnds(t *testing.T) {
	r, holder := preemptionRig(t)
	r.args.NominationTimeout = metav1.Duration{Duration: 50 * time.Millisecond}
	other := pod("other", "1")
	r.book.setPod(other)
	vip := important("vip")
	if node, _ := r.postFilter(t, vip); node != "node-a" {
		t.Fatalf("nominated to %q", node)
	}
	r.book.deletePod(holder)
	eventually(t, "the nomination to end", func() bool { return r.book.nominatedNode("vip-uid") == "" })
	if _, status := r.filter(other, "node-b"); !status.IsSuccess() {
		t.Errorf("the slot is still kept: %v", status)
	}
}

// A pod that DefaultPreemption nominated has its slots kept as well.
func TestFollowsOthersNominations(t *testing.T) {
	r, holder := preemptionRig(t)
	vip := important("vip")
	vip.Status.NominatedNodeName = "node-b"
	r.book.setPod(vip)
	if r.book.nominatedNode("vip-uid") != "" {
		t.Error("nominated before any victim ends")
	}
	ending := holder.DeepCopy()
	ending.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	r.book.setPod(ending)
	if got := r.book.nominatedNode("vip-uid"); got != "node-b" {
		t.Fatalf("slots are kept on node %q", got)
	}
	r.book.deletePod(ending)
	if _, status := r.filter(pod("thief", "1"), "node-a"); status.Code() != fwk.Unschedulable {
		t.Errorf("a pod on another node may take the slot: %v", status)
	}
	given := vip.DeepCopy()
	given.Status.NominatedNodeName = ""
	r.book.setPod(given)
	if _, status := r.filter(pod("next", "1"), "node-a"); !status.IsSuccess() {
		t.Errorf("the slot is kept after the nomination was cleared: %v", status)
	}
}

// Two pods hold one slot after a late bind of a former leader: the later goes. The
// leader sees to it at once, and another scheduler when nobody has for a while: it
// may lead without anything to schedule.
func TestContestedSlot(t *testing.T) {
	for name, leads := range map[string]bool{"leader": true, "standby": false} {
		t.Run(name, func(t *testing.T) {
			r, holder := preemptionRig(t)
			late := bound(t, pod("late", "1"), "node-a", cam1)
			late.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: metav1.Now()}}
			if err := errors.Join(r.known.Add(late), r.client.Tracker().Add(late)); err != nil {
				t.Fatal(err)
			}
			r.book.leads = false
			if !leads {
				r.book.patience = 50 * time.Millisecond
			}
			r.book.setPod(late)
			if leads {
				if len(r.deleted()) != 0 {
					t.Fatalf("a standby deletes %v at once", r.deleted())
				}
				r.lead()
			}
			eventually(t, "the later pod's eviction", func() bool { return slices.Equal(r.deleted(), []string{"late"}) })
			if !r.book.holds(string(holder.UID)) {
				t.Error("the first holder lost its slot")
			}
		})
	}
}

func TestBudgetsProtect(t *testing.T) {
	r, holder := preemptionRig(t)
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: holder.Namespace},
		Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}}}
	for allowed, protected := range map[int32]bool{0: true, 1: false} {
		budget.Status.DisruptionsAllowed = allowed
		budgets := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
		if err := budgets.Add(budget); err != nil {
			t.Fatal(err)
		}
		r.pdbs = policylisters.NewPodDisruptionBudgetLister(budgets)
		req, _ := requestOf(important("vip"))
		if got := r.protect(r.book.ledger.Holders("node-a", req)); len(got) != 1 || got[0].Protected != protected {
			t.Errorf("with %d disruptions allowed: %+v", allowed, got)
		}
	}
}
