package e2e

import (
	"context"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/test/history"
)

// A pod of higher priority on node-a takes the slot of a shared device from a
// pod on node-b, which our plugin preempts.
func TestPreemptionAcrossNodes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.preempts("prio", nodeB, func(*v1.Pod) string {
		return r.ns + "/vip on node node-a, which needs its device slots"
	})
}

// A pod of higher priority takes the slot from a pod on its own node, where upstream's
// DefaultPreemption preempts.
func TestPreemptionOnItsNode(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.preempts("ownprio", nodeA, func(vip *v1.Pod) string { return string(vip.UID) + " on node node-a" })
}

// preempts checks that a pod on node-a takes a slot from the less important of two
// pods on the node, and that a third one, on the other node, does not get it in
// between, but when the first is gone.
func (r *rig) preempts(name, node string, event func(vip *v1.Pod) string) {
	r.Helper()
	recorder, err := history.Record(r.ctx, kube, akri, r.ns)
	r.check(err)
	staff, vip := r.priorityClass(500), r.priorityClass(1000)
	r.debugEcho(name, 3, nil, name+"0")
	for pod, class := range map[string]string{"victim": "", "senior": staff} {
		p := newPod(pod, node, map[string]int64{name: 1})
		p.Spec.PriorityClassName = class
		r.create(p)
		r.agree(pod, name, 1)
	}
	// The last slot's holder is nobody's victim. With it on node-b, node-a advertises
	// more than its own pods use: what preemption frees there, the ledger has to say.
	peer := newPod("peer", nodeB, map[string]int64{name: 1})
	peer.Spec.PriorityClassName = vip
	r.create(peer)
	r.agree("peer", name, 1)
	r.create(newPod("thief", nodeB, map[string]int64{name: 1}))
	r.awaitPending("thief", "0 of 3 slots free")

	p := newPod("vip", nodeA, map[string]int64{name: 1})
	p.Spec.PriorityClassName = vip
	p = r.create(p)
	r.agree("vip", name, 1)
	r.agree("senior", name, 1)
	r.agree("peer", name, 1)
	r.awaitEvent("victim", "Preempted", event(p))
	if p := r.pod("thief"); p.Spec.NodeName != "" {
		r.Errorf("the pod of lower priority was bound to %s", p.Spec.NodeName)
	}
	r.ledgersAgree(name)
	if report := r.judge(recorder, history.Rules{}); report.Bound != 4 || report.Preempted != 1 {
		r.Errorf("%d pods were bound and %d preempted, want 4 and 1", report.Bound, report.Preempted)
	}
	r.delete("vip")
	r.logWait(recorder, "vip", "thief", r.agree("thief", name, 1)[0])
	r.delete("senior")
	r.ledgersAgree(name)
}

// priorityClass makes a PriorityClass for the test, which pods can use at once, and
// returns its name.
func (r *rig) priorityClass(value int32) string {
	r.Helper()
	name := fmt.Sprint(r.ns, "-", value)
	classes := kube.SchedulingV1().PriorityClasses()
	_, err := classes.Create(r.ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}, metav1.CreateOptions{})
	r.check(err)
	r.Cleanup(func() { r.check(classes.Delete(context.Background(), name, metav1.DeleteOptions{})) })
	r.await("the API server to know PriorityClass "+name, func() (bool, string) {
		p := newPod("probe", "", nil)
		p.Spec.PriorityClassName = name
		_, err := kube.CoreV1().Pods(r.ns).Create(r.ctx, p, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil, fmt.Sprint(err)
	})
	return name
}
