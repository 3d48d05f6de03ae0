package deviceplugins

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// kubecriOn is kubecri's pod on the node.
func kubecriOn(node string, ready v1.ConditionStatus) *v1.Pod {
	p := &v1.Pod{Spec: v1.PodSpec{NodeName: node}, Status: v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: ready}}}}
	p.Name, p.Namespace, p.Labels = "kubecri", "kubeslot-system", map[string]string{"app.kubernetes.io/name": "kubecri"}
	return p
}

// A node from which kubecri is away is refused, whoever else may go.
func TestFilterWhileKubecriIsAway(t *testing.T) {
	for name, test := range map[string]struct {
		namespace string // of kubecri's pod, as the node says it
		pods      []*v1.Pod
		want      fwk.Code
	}{
		"on the host": {"", nil, fwk.Success},
		"ready":       {"kubeslot-system", []*v1.Pod{kubecriOn("a", v1.ConditionTrue)}, fwk.Success},
		"not ready":   {"kubeslot-system", []*v1.Pod{kubecriOn("a", v1.ConditionFalse)}, fwk.UnschedulableAndUnresolvable},
		"not there":   {"kubeslot-system", nil, fwk.UnschedulableAndUnresolvable},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, newMoody())
			node, p := r.addNode(t, "a", "1x1").DeepCopy(), widgets(t, "p", 1)
			if test.namespace != "" {
				node.Annotations[v1alpha1.KubecriNamespaceAnnotation] = test.namespace
			}
			r.create(t, p)
			info, state := framework.NewNodeInfo(test.pods...), framework.NewCycleState()
			info.SetNode(node)
			if _, status := r.PreFilter(r.ctx, state, p, nil); !status.IsSuccess() {
				t.Fatal(status)
			}
			if status := r.Filter(r.ctx, state, p, info); status.Code() != test.want {
				t.Errorf("Filter: %v, want %v", status, test.want)
			}
		})
	}
}

// A pod that fits a node but for its kubecri, which is away, is tried when kubecri has come, and when a node's
// is to be no pod any more. One that waits for something else is not: kubecri may be updated on all nodes.
func TestHintsOfKubecri(t *testing.T) {
	r := newRig(t, newMoody())
	waits, full := widgets(t, "p", 1), widgets(t, "full", 2)
	away := framework.NewNodeInfo()
	node := r.addNode(t, "a", "1x1").DeepCopy()
	node.Annotations[v1alpha1.KubecriNamespaceAnnotation] = "kubeslot-system"
	away.SetNode(node)
	for _, p := range []*v1.Pod{waits, full} {
		r.create(t, p)
		state := framework.NewCycleState()
		if _, status := r.PreFilter(r.ctx, state, p, nil); !status.IsSuccess() {
			t.Fatal(status)
		}
		if status := r.Filter(r.ctx, state, p, away); status.IsSuccess() {
			t.Fatal("it fits")
		}
	}
	registered, err := r.EventsToRegister(r.ctx)
	if err != nil {
		t.Fatal(err)
	}
	host, inPod := &v1.Node{}, &v1.Node{}
	inPod.Annotations = map[string]string{v1alpha1.KubecriNamespaceAnnotation: "kubeslot-system"}
	gives := gives(&v1.Node{}, "example.com/widget")
	ready := kubecriOn("a", v1.ConditionTrue)
	podAdded := fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Add}
	podChanged := fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Update}
	annotated := fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.UpdateNodeAnnotation}
	for name, test := range map[string]struct {
		event    fwk.ClusterEvent
		old, now any
		all      bool
	}{
		"a pod becomes Ready":           {podChanged, kubecriOn("a", v1.ConditionFalse), ready, false},
		"a Ready pod is seen":           {podAdded, nil, ready, false},
		"it is on the host now":         {annotated, inPod, host, false},
		"it gives out another resource": {annotated, host, gives, true},
		"it gives it out no more":       {annotated, gives, host, true},
	} {
		queued := map[*v1.Pod]bool{}
		for _, e := range registered {
			for _, p := range []*v1.Pod{waits, full} {
				if e.Event.Resource == test.event.Resource && e.Event.ActionType&test.event.ActionType != 0 {
					hint, err := e.QueueingHintFn(r.cache.logger, p, test.old, test.now)
					queued[p] = queued[p] || hint == fwk.Queue && err == nil
				}
			}
		}
		if !queued[waits] || queued[full] != test.all {
			t.Errorf("%s: tried are %v and, of one that waits for a device, %v", name, queued[waits], queued[full])
		}
	}
}
