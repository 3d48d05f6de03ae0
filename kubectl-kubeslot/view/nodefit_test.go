package view

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// A taint keeps off the pods that the scheduler would keep off.
func TestUntolerated(t *testing.T) {
	slow := corev1.Taint{Key: "speed", Value: "5", Effect: corev1.TaintEffectNoSchedule}
	for name, tc := range map[string]struct {
		taint      corev1.Taint
		toleration corev1.Toleration
		keepsOff   bool
	}{
		"nothing is tolerated": {slow, corev1.Toleration{Key: "other", Operator: corev1.TolerationOpExists}, true},
		"its value":            {slow, corev1.Toleration{Key: "speed", Value: "5"}, false},
		"another value":        {slow, corev1.Toleration{Key: "speed", Value: "6"}, true},
		"another effect": {slow, corev1.Toleration{Key: "speed", Value: "5", Effect: corev1.TaintEffectNoExecute},
			true},
		"all":            {slow, corev1.Toleration{Operator: corev1.TolerationOpExists}, false},
		"higher numbers": {slow, corev1.Toleration{Key: "speed", Operator: corev1.TolerationOpGt, Value: "4"}, false},
		"lower numbers":  {slow, corev1.Toleration{Key: "speed", Operator: corev1.TolerationOpLt, Value: "4"}, true},
		"only a wish": {corev1.Taint{Key: "speed", Effect: corev1.TaintEffectPreferNoSchedule}, corev1.Toleration{},
			false},
	} {
		node := &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{tc.taint}}}
		if got := untolerated(node, []corev1.Toleration{tc.toleration}); (got != nil) != tc.keepsOff {
			t.Errorf("%s: kept off by %v, want that it is: %v", name, got, tc.keepsOff)
		}
	}
	cordoned := &corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}}
	if got := untolerated(cordoned, nil); got == nil || got.Key != corev1.TaintNodeUnschedulable {
		t.Errorf("a node that is cordoned keeps off by %v", got)
	}
}

// Where the kubelet gives out slots it takes no pod for an Instance of which it advertises too few: the scheduler says
// so, and nothing else is in the pod's way.
func TestInstanceNotAdvertised(t *testing.T) {
	o := cluster()
	for i := range o.Nodes {
		o.Nodes[i].Labels = map[string]string{v1alpha1.ModeLabel: v1alpha1.ModeDevicePlugin}
	}
	waits := pod("waits", yard, 1)
	waits.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
		Message: "0/2 nodes are available: 2 node(s) whose kubelet has too few akri.sh/" + yard +
			": 0 of 0 in use, 1 requested."}}
	o.Pods = []corev1.Pod{waits}
	if p, _ := New(o).Pod("default", "waits"); len(p.Waits) != 1 || p.Waits[0].Reason != "NotAdvertised" {
		t.Errorf("it waits for %+v, want NotAdvertised alone", p.Waits)
	}
}

// Pods that ask for the same slots, and of which one needs more of its node besides, wait for different things.
func TestWaitsOfPodsThatNeedMoreOfTheirNode(t *testing.T) {
	for name, more := range map[string]func(p *corev1.PodSpec, list corev1.ResourceList){
		"overhead": func(s *corev1.PodSpec, list corev1.ResourceList) { s.Overhead = list },
		"the pod's request": func(s *corev1.PodSpec, list corev1.ResourceList) {
			s.Resources = &corev1.ResourceRequirements{Requests: list}
		},
	} {
		o := cluster()
		for i := range o.Nodes {
			o.Nodes[i].Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("4"),
				"akri.sh/cam": resource.MustParse("4")}
		}
		o.Pods = []corev1.Pod{pod("small", "cam", 1), pod("large", "cam", 1)}
		for i := range o.Pods {
			o.Pods[i].Status.Conditions = []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}}
		}
		more(&o.Pods[1].Spec, corev1.ResourceList{"cpu": resource.MustParse("9")})
		v := New(o)
		for _, want := range []struct{ pod, reason string }{
			{"small", "TriedAgain"}, {"large", "InsufficientResource"}} {
			p, _ := v.Pod("default", want.pod)
			if !slices.ContainsFunc(p.Waits, func(w Wait) bool { return w.Reason == want.reason }) {
				t.Errorf("%s: pod %s waits for %+v, want %s", name, want.pod, p.Waits, want.reason)
			}
		}
	}
}
