package configurationresources

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubeslot/kubeslot/kube-scheduler/requeue"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotcache"
	"github.com/kubeslot/kubeslot/kube-scheduler/waitreason"
	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// inPod is a node whose kubecri is to run in a pod.
func inPod(name, slots string) *v1.Node {
	node := advertising(name, slots)
	node.Annotations = map[string]string{v1alpha1.KubecriNamespaceAnnotation: "kubeslot-system"}
	return node
}

// kubecriOn is kubecri's pod on the node.
func kubecriOn(node string, ready v1.ConditionStatus) *v1.Pod {
	p := &v1.Pod{Spec: v1.PodSpec{NodeName: node}, Status: v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: ready}}}}
	p.Name, p.Namespace, p.UID, p.Labels = "kubecri-"+node, "kubeslot-system", types.UID("kubecri-"+node), map[string]string{"app.kubernetes.io/name": "kubecri"}
	return p
}

// A node from which kubecri is away is refused, and the pod's record says so.
func TestFilterWhileKubecriIsAway(t *testing.T) {
	for name, test := range map[string]struct {
		node   fwk.NodeInfo
		holder bool
		code   fwk.Code
		met    waitreason.Reason
	}{
		"on the host":           {nodeInfo("node-a"), false, fwk.Success, waitreason.SlotsFree},
		"ready":                 {infoOf(inPod("node-a", "100"), kubecriOn("node-a", v1.ConditionTrue)), false, fwk.Success, waitreason.SlotsFree},
		"not ready":             {infoOf(inPod("node-a", "100"), kubecriOn("node-a", v1.ConditionFalse)), false, fwk.UnschedulableAndUnresolvable, waitreason.KubecriAway},
		"not there":             {infoOf(inPod("node-a", "100")), false, fwk.UnschedulableAndUnresolvable, waitreason.KubecriAway},
		"the slot is held, too": {infoOf(inPod("node-a", "100")), true, fwk.Unschedulable, waitreason.Held},
	} {
		t.Run(name, func(t *testing.T) {
			r, p := newRig(t), pod("p", "1")
			shared(r.cache, "cam-000001")
			if test.holder {
				r.hold("cam-000001", pod("holder", "1"), "node-a", "node-b")
			}
			r.cache.SetPod(p)
			r.know(p)
			_, status := r.filterOn(p, test.node)
			wantStatus(t, "Filter", status, test.code)
			if record, _ := r.cache.Queue.Get(p.UID); record.Reason() != test.met {
				t.Errorf("the pod waits for reason %v, want %v", record.Reason(), test.met)
			}
		})
	}
}

// A pod that could run where others go, were kubecri there, is tried when it is Ready.
func TestFilterImaginesOthersAwayWhileKubecriIsAway(t *testing.T) {
	r, p, victim := newRig(t), important("p"), pod("victim", "1")
	r.hold("cam-000001", victim, "node-a")
	r.cache.SetPod(p)
	r.know(p)
	node := infoOf(inPod("node-a", "100"))
	state, status := r.filterOn(p, node)
	wantStatus(t, "Filter", status, fwk.Unschedulable)
	imagined := state.Clone()
	r.RemovePod(r.ctx, imagined, p, must(framework.NewPodInfo(victim)), node)
	wantStatus(t, "Filter without the victim", r.Filter(r.ctx, imagined, p, node), fwk.UnschedulableAndUnresolvable)
	if hint, err := hintFor(r.Plugin, fwk.Pod, fwk.Add)(klog.Background(), p, nil, kubecriOn("node-a", v1.ConditionTrue)); hint != fwk.Queue || err != nil {
		t.Errorf("kubecri is Ready: hint %v, %v", hint, err)
	}
}

// No pod is preempted for a node that could not give the slot: kubecri is away from it. Another
// node that reaches the same device is taken, and a pod that finds none waits for kubecri.
func TestDoesNotPreemptWhileKubecriIsAway(t *testing.T) {
	for name, test := range map[string]struct {
		nodes []fwk.NodeInfo
		vip   *v1.Pod
		want  string
		waits bool // for kubecri
	}{
		"ready":                 {[]fwk.NodeInfo{infoOf(inPod("node-a", "100"), kubecriOn("node-a", v1.ConditionTrue))}, important("vip"), "node-a", false},
		"away":                  {[]fwk.NodeInfo{infoOf(inPod("node-a", "100"))}, important("vip"), "", true},
		"away from one":         {[]fwk.NodeInfo{infoOf(inPod("node-a", "100")), nodeInfo("node-b")}, important("vip"), "node-b", false},
		"away, nobody to evict": {[]fwk.NodeInfo{infoOf(inPod("node-a", "100"))}, pod("vip", "1"), "", false},
	} {
		synctestRun(t, name, func(t *testing.T) {
			r, _ := preemptionRig(t)
			r.know(test.vip)
			r.handle.nodes = test.nodes
			state, statuses := r.refuseWith(test.vip, fwk.Unschedulable, test.nodes...)
			result, _ := r.PostFilter(r.ctx, state, test.vip, statuses)
			node, _ := nominated(result, nil)
			if test.want == "" && result != nil {
				t.Errorf("what another plugin has nominated it to is changed: %v", result)
			}
			synctest.Wait() // for the eviction
			if node != test.want || (len(r.deleted()) > 0) != (test.want != "") {
				t.Errorf("nominated to %q, deleted %v; want %q", node, r.deleted(), test.want)
			}
			r.wantKept("after PostFilter", test.want)
			if record, _ := r.cache.Queue.Get(test.vip.UID); record.Met(waitreason.KubecriAway) != test.waits {
				t.Errorf("waits for kubecri: %v, want %v", !test.waits, test.waits)
			}
		})
	}
}

// What is known of a node's kubecri follows the node's pods from try to try.
func TestKubecriGoesBetweenTries(t *testing.T) {
	r, p, kubecri := newRig(t), pod("p", "1"), kubecriOn("node-a", v1.ConditionTrue)
	shared(r.cache, "cam-000001")
	r.know(p)
	node := infoOf(inPod("node-a", "100"), kubecri)
	nodes := []fwk.NodeInfo{node}
	filter := func(what string, want fwk.Code) {
		for range 2 {
			state := framework.NewCycleState()
			r.answered(p)
			_, status := r.PreFilter(r.ctx, state, p, nodes)
			wantStatus(t, "PreFilter", status, fwk.Success)
			wantStatus(t, what, r.Filter(r.ctx, state, p, node), want)
		}
	}
	filter("ready", fwk.Success)
	check(node.RemovePod(klog.Background(), kubecri))
	filter("gone", fwk.UnschedulableAndUnresolvable)
	node.AddPodInfo(must(framework.NewPodInfo(kubecri)))
	filter("back", fwk.Success)
}

// Kubecri goes from the node for which slots are kept: they are kept no longer, and the pod
// gets them on another node.
func TestNominationEndsWhenKubecriGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, holder := preemptionRig(t)
		vip := important("vip")
		r.know(vip)
		r.handle.nodes = []fwk.NodeInfo{infoOf(inPod("node-a", "100"), kubecriOn("node-a", v1.ConditionTrue))}
		state, statuses := r.refuseWith(vip, fwk.Unschedulable, r.handle.nodes...)
		r.PostFilter(r.ctx, state, vip, statuses)
		synctest.Wait() // for the eviction
		r.wantKept("preempted for node-a", "node-a")
		r.cache.DeletePod(holder)
		r.requeued()
		r.handle.nodes = []fwk.NodeInfo{infoOf(inPod("node-a", "100")), nodeInfo("node-b")}
		state, statuses = r.refuseWith(vip, fwk.UnschedulableAndUnresolvable, r.handle.nodes[0])
		statuses.Set("node-b", fwk.NewStatus(fwk.Unschedulable).WithPlugin(Name)) // the slot was kept
		if result, status := r.PostFilter(r.ctx, state, vip, statuses); result == nil || result.Mode() != fwk.ModeOverride || result.NominatedNodeName != "" {
			t.Errorf("its nomination stays in the API: %v, %v", result, status)
		}
		r.wantKept("kubecri is away", "")
		r.wantActivatedWithin(2*requeue.RetryInterval, "its slot is free", "vip")
		r.fits(vip, "node-b")
		r.wantDeleted("in all", "holder")
	})
}

// A pod for which a node has slots whose kubecri is away runs once kubecri is Ready there.
func TestTriedWhenKubecriIsReady(t *testing.T) {
	q := newRealScheduler(t, nil, inPod("node-a", "1"), kubecriOn("node-a", v1.ConditionFalse))
	shared(q.cache, "cam-000001")
	q.add("node-a", "p")
	before := q.rest()
	check(q.client.Tracker().Update(podsResource, kubecriOn("node-a", v1.ConditionTrue), "kubeslot-system"))
	q.eventuallyBound("p", "node-a")
	if tries := q.rest() - before; tries != 1 {
		t.Errorf("%d tries, want 1", tries)
	}
}

// A pod for which a node has slots whose kubecri was to be a pod runs once it is not to be one.
func TestTriedWhenKubecriIsOnTheHost(t *testing.T) {
	q := newRealScheduler(t, nil, inPod("node-a", "1"))
	shared(q.cache, "cam-000001")
	q.add("node-a", "p")
	q.rest()
	check(q.client.Tracker().Update(nodesResource, advertising("node-a", "1"), ""))
	q.eventuallyBound("p", "node-a")
}

// Nearly all changes of pods have nothing to do with kubecri. Of them each waiting pod is told, and
// the Queue is not locked for that.
func TestOtherPodsLockNothing(t *testing.T) {
	r, p := newRig(t), pod("p", "1")
	r.cache.SetPod(p)
	told := make(chan fwk.QueueingHint, 1)
	r.cache.Queue.Each(func(*v1.Pod, *slotcache.Waiting, []string) { // it has the lock
		go func() {
			hint, _ := hintFor(r.Plugin, fwk.Pod, fwk.Add)(klog.Background(), p, nil, bound(pod("other", "1"), "node-a", cam1))
			told <- hint
		}()
		if hint := await.Next(t, "the hint, without the lock", told); hint != fwk.QueueSkip {
			t.Errorf("hint %v", hint)
		}
	})
}

// hintFor is the hint that the plugin registers for the action.
func hintFor(p *Plugin, on fwk.EventResource, action fwk.ActionType) fwk.QueueingHintFn {
	registered := must(p.EventsToRegister(context.Background()))
	i := slices.IndexFunc(registered, func(e fwk.ClusterEventWithHint) bool { return e.Event.Resource == on && e.Event.ActionType&action != 0 })
	return registered[i].QueueingHintFn
}

// A pod that could preempt for a node whose kubecri is away evicts nobody, until kubecri is Ready there.
func TestPreemptsWhenKubecriIsReady(t *testing.T) {
	q := newRealScheduler(t, nil, inPod("node-a", "1"), advertising("node-b", "1"))
	shared(q.cache, "cam-000001")
	q.add("node-b", "holder")
	q.eventuallyBound("holder", "node-b")
	vip := withPriority(pod("vip", "1"), 2000)
	vip.Spec.NodeSelector = map[string]string{v1.LabelHostname: "node-a"}
	check(q.client.Tracker().Add(vip))
	q.eventually("the pod to wait for kubecri", func() bool {
		record, waits := q.cache.Queue.Get(vip.UID)
		return waits && record.Met(waitreason.KubecriAway)
	})
	q.rest()
	q.wantKept("while kubecri is away", "")
	q.wantDeleted("while kubecri is away")
	check(q.client.Tracker().Create(podsResource, kubecriOn("node-a", v1.ConditionTrue), "kubeslot-system"))
	q.eventuallyBound("vip", "node-a")
	q.wantDeleted("then", "holder")
}
