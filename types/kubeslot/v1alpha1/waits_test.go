package v1alpha1

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A slot waits for a node that is not Ready when its pod is gone or going, or is not known.
func TestWaits(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*ReleaseFacts)
		want   bool
	}{
		"its pod runs":          {change: func(f *ReleaseFacts) { f.PodRuns = true }},
		"its pod is gone":       {want: true},
		"its pod cannot go":     {change: func(f *ReleaseFacts) { f.PodRuns, f.PodGoing = true, true }, want: true},
		"it names no pod":       {change: func(f *ReleaseFacts) { f.Claim.Spec.Pod = nil }, want: true},
		"the node is Ready":     {change: func(f *ReleaseFacts) { f.Node.Status.Conditions[0].Status = corev1.ConditionTrue }},
		"the node is gone":      {change: func(f *ReleaseFacts) { f.Node = nil }},
		"the node is another":   {change: func(f *ReleaseFacts) { f.Node.UID = "new" }},
		"pods may not be read":  {change: func(f *ReleaseFacts) { f.PodRuns, f.Claim.Spec.Pod = true, nil }, want: true},
		"the kubelet is silent": {change: func(f *ReleaseFacts) { f.Node.Status.Conditions[0].Status = corev1.ConditionUnknown }, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := ReleaseFacts{
				Claim: &SlotClaim{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{NodeOwner("a", "uid")}},
					Spec: SlotClaimSpec{NodeName: "a", Pod: &PodReference{Namespace: "default", Name: "p", UID: "p"}}},
				Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "uid"},
					Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}}},
			}
			if tc.change != nil {
				tc.change(&f)
			}
			if got := f.Waits(); got != tc.want {
				t.Errorf("Waits() = %v, want %v", got, tc.want)
			}
		})
	}
}
