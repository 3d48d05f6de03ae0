package configurationresources

import (
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/kube-scheduler/requeue"
	"github.com/kubeslot/kubeslot/kube-scheduler/waitreason"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// choosing is a node in device-plugin mode, whose kubelet advertises the amounts.
func choosing(r *rig, name string, allocatable map[string]string, pods ...*v1.Pod) fwk.NodeInfo {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.ModeLabel: v1alpha1.ModeDevicePlugin}},
		Status: v1.NodeStatus{Allocatable: v1.ResourceList{}}}
	for resourceName, n := range allocatable {
		node.Status.Allocatable[v1.ResourceName("akri.sh/"+resourceName)] = resource.MustParse(n)
	}
	r.cache.SetNode(node)
	return infoOf(node, pods...)
}

// A node in device-plugin mode is counted by what its kubelet advertises, and its pods
// are bound by whoever binds other pods, without an assignment.
func TestNodeThatChoosesSlots(t *testing.T) {
	r := cameraRig(t)
	p := pod("p", "1")
	state, status := r.filterOn(p, choosing(r, "node-a", map[string]string{"cam": "1"}))
	wantStatus(t, "Filter", status, fwk.Success)
	wantStatus(t, "Reserve", r.Reserve(r.ctx, state, p, "node-a"), fwk.Success)
	if r.cache.Holds(string(p.UID)) {
		t.Error("the ledger has given it slots")
	}
	if status := r.Bind(r.ctx, state, p, "node-a"); !status.IsSkip() || len(r.bindings()) > 0 {
		t.Errorf("Bind: %v, %v", status, r.bindings())
	}
	r.Unreserve(r.ctx, state, p, "node-a") // it has taken nothing

	for name, test := range map[string]struct {
		info     fwk.NodeInfo
		pod      *v1.Pod
		code     fwk.Code
		contains string
	}{
		"its kubelet has none": {choosing(r, "node-a", nil), p, fwk.UnschedulableAndUnresolvable, "0 of 0 in use, 1 requested"},
		"another pod has it":   {choosing(r, "node-a", map[string]string{"cam": "1"}, pod("other", "1")), p, fwk.Unschedulable, "akri.sh/cam: 1 of 1 in use, 1 requested"},
		"of an Instance":       {choosing(r, "node-a", map[string]string{"cam": "1"}), asks("instance", "cam-000001", "1"), fwk.UnschedulableAndUnresolvable, "akri.sh/cam-000001: 0 of 0 in use"},
	} {
		_, status := r.filterOn(test.pod, test.info)
		wantStatus(t, name, status, test.code, test.contains)
	}
	// The claims of nodes count, whatever the kubelet advertised ten seconds ago.
	device(r.cache, "cam-000001", map[string]string{"cam-000001-0": "C:cam-0:node-b"}, "node-a", "node-b")
	_, status = r.filterOn(p, choosing(r, "node-a", map[string]string{"cam": "1"}))
	wantStatus(t, "with the slot claimed by another node", status, fwk.Unschedulable, "0 of 1 slots free")
}

// A pod with an assignment never lands on such a node: not when the node changes its mode
// after the pod was given slots either.
func TestNodeBeginsToChooseSlots(t *testing.T) {
	r := cameraRig(t)
	p := pod("p", "1")
	state := r.schedule(p, "node-a")
	choosing(r, "node-a", map[string]string{"cam": "1"})
	wantStatus(t, "Bind", r.Bind(r.ctx, state, p, "node-a"), fwk.Unschedulable, "kubeslot.io/mode=device-plugin")
	if len(r.bindings()) > 0 {
		t.Errorf("bound: %v", r.bindings())
	}
	// And back.
	r.cache.SetNode(advertising("node-a", ""))
	if status := r.Bind(r.ctx, state, p, "node-a"); len(r.bindings()) != 1 {
		t.Errorf("Bind: %v, %v", status, r.bindings())
	}
}

// A pod without an assignment never lands on a node that leaves the slots to the scheduler: not when the node changes
// its mode after the pod was reserved there either. It is tried again.
func TestNodeChoosesSlotsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cameraRig(t)
		p := pod("p", "1")
		r.cache.SetPod(p)
		r.know(p)
		state, status := r.filterOn(p, choosing(r, "node-a", map[string]string{"cam": "1"}))
		wantStatus(t, "Filter", status, fwk.Success)
		wantStatus(t, "Reserve", r.Reserve(r.ctx, state, p, "node-a"), fwk.Success)
		r.cache.SetNode(advertising("node-a", ""))
		wantStatus(t, "Bind", r.Bind(r.ctx, state, p, "node-a"), fwk.Unschedulable, "without an assignment")
		r.Unreserve(r.ctx, state, p, "node-a")
		r.wantFree("given back", "cam", 1)
		r.wantActivatedWithin(requeue.RetryInterval, "later", "p")
	})
}

// A gang's pod is reserved a second time in its cycle. If its node has changed its mode in between,
// nothing is left of the slots that it was given first.
func TestNodeBeginsToChooseSlotsOfAGang(t *testing.T) {
	r := cameraRig(t)
	p := gang("g", "p")[0]
	state := r.schedule(p, "node-a")
	r.Unreserve(r.ctx, state, p, "node-a")
	choosing(r, "node-a", map[string]string{"cam": "1"})
	wantStatus(t, "Reserve", r.Reserve(r.ctx, state, p, "node-a"), fwk.Success)
	wantStatus(t, "Bind", r.Bind(r.ctx, state, p, "node-a"), fwk.Skip)
}

// Two nodes in device-plugin mode share two cameras of one slot. What a node's pod asks for is
// kept until the node has claimed as much, whichever slot it chooses.
func TestSlotsAreKeptUntilTheNodeClaims(t *testing.T) {
	r := newRig(t)
	shared(r.cache, "cam-000001", "cam-000002")
	amount := map[string]string{"cam": "2"}
	infos := map[string]fwk.NodeInfo{"node-a": choosing(r, "node-a", amount), "node-b": choosing(r, "node-b", amount)}
	reserve := func(name, node string) (*v1.Pod, fwk.CycleState, *fwk.Status) {
		p := pod(name, "1")
		r.cache.SetPod(p)
		state, status := r.filterOn(p, infos[node])
		if status.IsSuccess() {
			status = r.Reserve(r.ctx, state, p, node)
		}
		return p, state, status
	}
	must := func(name, node string) (*v1.Pod, fwk.CycleState) {
		p, state, status := reserve(name, node)
		if !status.IsSuccess() {
			t.Fatalf("%s on %s: %v", name, node, status)
		}
		return p, state
	}
	refused := func(when string) {
		t.Helper()
		for node := range infos {
			_, _, status := reserve("another", node)
			wantStatus(t, when+", another pod on "+node, status, fwk.Unschedulable)
		}
	}
	bound := func(p *v1.Pod, node string, phase v1.PodPhase) {
		p = p.DeepCopy()
		p.Spec.NodeName, p.Status.Phase = node, phase
		r.cache.SetPod(p)
	}

	late := pod("late", "1")
	before, _ := r.filterOn(late, infos["node-a"])
	a, state := must("a", "node-a")
	must("b", "node-b")
	wantStatus(t, "others were faster", r.Reserve(r.ctx, before, late, "node-a"), fwk.Unschedulable)
	refused("with two pods reserved")
	r.Unreserve(r.ctx, state, a, "node-a")
	other, state := must("other", "node-b")
	r.Unreserve(r.ctx, state, other, "node-b")
	a, state = must("a", "node-a")
	bound(a, "node-a", v1.PodPending)
	r.Unreserve(r.ctx, state, a, "node-a") // its Binding's answer was lost
	refused("with a pod that is bound")

	// Each node claims what was kept for the other's pod.
	takes := func(node, slot string) *v1alpha1.SlotClaim {
		c := claim(slot, "C:id:"+node)
		r.cache.SetClaim(c)
		return c
	}
	takes("node-a", "cam-000002-0")
	refused("while a claim is yet to come")
	last := takes("node-b", "cam-000001-0")
	refused("with both claimed")
	r.cache.DeleteClaim(last)
	c, _ := must("c", "node-b")
	refused("with another pod reserved")

	// A pod that ends, or that the kubelet refuses, needs none any more.
	bound(c, "node-b", v1.PodFailed)
	d, _ := must("d", "node-a")
	bound(d, "node-a", v1.PodPending)
	refused("with a pod that has not started")
	bound(d, "node-a", v1.PodRunning) // without a claim: its kubelet knew nothing of the resource
	must("e", "node-b")
}

// An Instance is advertised by nodes in device-plugin mode alone. A pod that waits for that runs once its node
// has another mode.
func TestTriedWhenANodeChoosesSlotsNoMore(t *testing.T) {
	node := advertising("node-a", "1")
	node.Labels[v1alpha1.ModeLabel] = v1alpha1.ModeDevicePlugin
	q := newRealScheduler(t, nil, node)
	q.cache.SetNode(node)
	shared(q.cache, "cam-000001")
	check(q.client.Tracker().Add(asks("p", "cam-000001", "1")))
	q.eventually("the pod to wait for what its node advertises", func() bool {
		record, waits := q.cache.Queue.Get("p-uid")
		return waits && record.Met(waitreason.NotAdvertised)
	})
	q.rest()
	node = node.DeepCopy()
	delete(node.Labels, v1alpha1.ModeLabel)
	q.cache.SetNode(node)
	q.updateNode(node)
	q.eventuallyBound("p", "node-a")
}

// For a node that chooses slots itself this plugin preempts nobody. A pod that could preempt for it is tried when the
// node ceases to.
func TestTriedToPreemptWhenANodeChoosesSlotsNoMore(t *testing.T) {
	r, _ := preemptionRig(t)
	choosing(r, "node-a", map[string]string{"cam": "1"})
	r.await(important("vip"))
	r.await(pod("as-important-as-the-holder", "1"))
	r.requeued()
	r.cache.SetNode(advertising("node-a", "1"))
	r.wantActivated("the node leaves slots to the scheduler", "vip")
}
