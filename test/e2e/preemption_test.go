package e2e

import (
	"testing"

	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A pod of higher priority on node-a takes the slot of a shared device from a
// pod on node-b, and a third pod does not get it in between.
func TestPreemptionAcrossNodes(t *testing.T) {
	r := newRig(t)
	_, err := kube.SchedulingV1().PriorityClasses().Create(r.ctx, &schedulingv1.PriorityClass{
		ObjectMeta: metav1.ObjectMeta{Name: "vip"}, Value: 1000}, metav1.CreateOptions{})
	r.check(err)
	t.Cleanup(func() {
		r.check(kube.SchedulingV1().PriorityClasses().Delete(r.ctx, "vip", metav1.DeleteOptions{}))
	})
	r.debugEcho("prio", 1, nil, "prio0")
	r.create(newPod("victim", nodeB, map[string]int64{"prio": 1}))
	r.agree("victim", "prio", 1)
	r.create(newPod("thief", nodeB, map[string]int64{"prio": 1}))
	r.awaitPending("thief", "0 of 1 slots free")

	vip := newPod("vip", nodeA, map[string]int64{"prio": 1})
	vip.Spec.PriorityClassName = "vip"
	r.create(vip)
	r.agree("vip", "prio", 1)
	r.awaitEvent("victim", "Preempted", "needs its device slots")
	if p := r.pod("thief"); p.Spec.NodeName != "" {
		t.Errorf("the pod of lower priority was bound to %s", p.Spec.NodeName)
	}
}
