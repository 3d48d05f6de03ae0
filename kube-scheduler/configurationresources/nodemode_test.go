package configurationresources

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

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
	info := framework.NewNodeInfo(pods...)
	info.SetNode(node)
	return info
}

// A node in device-plugin mode is counted by what its kubelet advertises, and its pods
// are bound by whoever binds other pods, without an assignment.
func TestNodeThatChoosesSlots(t *testing.T) {
	r := newRig(t)
	device(r.cache, "cam-000001", nil, "node-a", "node-b")
	filter := func(p *v1.Pod, info fwk.NodeInfo) (fwk.CycleState, *fwk.Status) {
		state := framework.NewCycleState()
		if _, status := r.PreFilter(r.ctx, state, p, []fwk.NodeInfo{info}); !status.IsSuccess() {
			t.Fatalf("PreFilter: %v", status)
		}
		return state, r.Filter(r.ctx, state, p, info)
	}
	p := pod("p", "1")
	state, status := filter(p, choosing(r, "node-a", map[string]string{"cam": "1"}))
	if !status.IsSuccess() {
		t.Fatalf("Filter: %v", status)
	}
	if status := r.Reserve(r.ctx, state, p, "node-a"); !status.IsSuccess() {
		t.Fatalf("Reserve: %v", status)
	}
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
		"of an Instance": {choosing(r, "node-a", map[string]string{"cam": "1"}), func() *v1.Pod {
			p := pod("instance", "1")
			amount := v1.ResourceList{"akri.sh/cam-000001": resource.MustParse("1")}
			p.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: amount, Limits: amount}
			return p
		}(), fwk.UnschedulableAndUnresolvable, "akri.sh/cam-000001: 0 of 0 in use"},
	} {
		if _, status := filter(test.pod, test.info); status.Code() != test.code || !strings.Contains(status.Message(), test.contains) {
			t.Errorf("%s: %v, want %v with %q", name, status, test.code, test.contains)
		}
	}
	// The claims of nodes count, whatever the kubelet advertised ten seconds ago.
	device(r.cache, "cam-000001", map[string]string{"cam-000001-0": "C:cam-0:node-b"}, "node-a", "node-b")
	if _, status := filter(p, choosing(r, "node-a", map[string]string{"cam": "1"})); status.Code() != fwk.Unschedulable || !strings.Contains(status.Message(), "0 of 1 slots free") {
		t.Errorf("with the slot claimed by another node: %v", status)
	}
}

// A pod with an assignment never lands on such a node: not when the node changes its mode
// after the pod was given slots either.
func TestNodeBeginsToChooseSlots(t *testing.T) {
	r := newRig(t)
	device(r.cache, "cam-000001", nil, "node-a")
	p := pod("p", "1")
	state := r.schedule(t, p, "node-a")
	choosing(r, "node-a", map[string]string{"cam": "1"})
	if status := r.Bind(r.ctx, state, p, "node-a"); status.Code() != fwk.Unschedulable || !strings.Contains(status.Message(), "kubeslot.io/mode=device-plugin") || len(r.bindings()) > 0 {
		t.Errorf("Bind: %v, %v", status, r.bindings())
	}
	// And back.
	r.cache.SetNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}})
	if status := r.Bind(r.ctx, state, p, "node-a"); len(r.bindings()) != 1 {
		t.Errorf("Bind: %v, %v", status, r.bindings())
	}
}

// A pod that waits for an Instance's resource is tried again when such a node's kubelet
// advertises it.
func TestActivatesForInstances(t *testing.T) {
	r := newRig(t)
	p := pod("p", "1")
	amount := v1.ResourceList{"akri.sh/cam-000001": resource.MustParse("1")}
	p.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: amount, Limits: amount}
	before := choosing(r, "node-a", nil).Node()
	after := choosing(r, "node-a", map[string]string{"cam-000001": "1"}).Node()
	if hint, err := r.afterAdvertisement(klog.Background(), p, before, after); err != nil || hint != fwk.Queue {
		t.Errorf("got %v, %v", hint, err)
	}
	if hint, err := r.afterAdvertisement(klog.Background(), p, after, after); err != nil || hint != fwk.QueueSkip {
		t.Errorf("without a change: got %v, %v", hint, err)
	}
}

// Two nodes in device-plugin mode share two cameras of one slot. What a node's pod asks for is
// kept until the node has claimed as much, whichever slot it chooses.
func TestSlotsAreKeptUntilTheNodeClaims(t *testing.T) {
	r := newRig(t)
	device(r.cache, "cam-000001", nil, "node-a", "node-b")
	device(r.cache, "cam-000002", nil, "node-a", "node-b")
	amount := map[string]string{"cam": "2"}
	infos := map[string]fwk.NodeInfo{"node-a": choosing(r, "node-a", amount), "node-b": choosing(r, "node-b", amount)}
	reserve := func(name, node string) (*v1.Pod, fwk.CycleState, *fwk.Status) {
		p, state := pod(name, "1"), framework.NewCycleState()
		r.cache.SetPod(p)
		if _, status := r.PreFilter(r.ctx, state, p, []fwk.NodeInfo{infos[node]}); !status.IsSuccess() {
			t.Fatalf("PreFilter of %s: %v", name, status)
		}
		if status := r.Filter(r.ctx, state, p, infos[node]); !status.IsSuccess() {
			return p, state, status
		}
		return p, state, r.Reserve(r.ctx, state, p, node)
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
			if _, _, status := reserve("another", node); status.Code() != fwk.Unschedulable {
				t.Errorf("%s a pod more fits %s: %v", when, node, status)
			}
		}
	}
	bound := func(p *v1.Pod, node string, phase v1.PodPhase) {
		p = p.DeepCopy()
		p.Spec.NodeName, p.Status.Phase = node, phase
		r.cache.SetPod(p)
	}

	a, state := must("a", "node-a")
	must("b", "node-b")
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
		r.cache.SetClaim(c, false)
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
