package claims

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The alert counts what waits for a node that is not Ready: pods that are gone, that cannot go,
// and claims that name none. It costs no read of the API server.
func TestSlotsThatWaitForTheirNode(t *testing.T) {
	for name, tc := range map[string]struct {
		node   corev1.ConditionStatus
		pod    string // gone, going, runs, none
		reads  bool
		metric float64
	}{
		"gone":              {corev1.ConditionUnknown, "gone", true, 1},
		"going":             {corev1.ConditionUnknown, "going", false, 1},
		"none":              {corev1.ConditionUnknown, "none", false, 1},
		"runs":              {corev1.ConditionUnknown, "runs", false, 0},
		"going, node Ready": {corev1.ConditionTrue, "going", false, 0},
		"none, node Ready":  {corev1.ConditionTrue, "none", false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			unreachableSlots.Set(0)
			r := newRig(t)
			r.see()
			claim := claimBy("u1", "n1")
			if tc.pod == "none" {
				claim.Spec.Pod = nil
			}
			r.add(nodeOf("n1", tc.node), claim)
			if tc.pod == "going" || tc.pod == "runs" {
				pod := podOn(t, "u1", "node-a", claimed)
				pod.Finalizers = []string{"example.com/keep"}
				r.add(pod)
				if tc.pod == "going" {
					for _, c := range []client.Client{r.cached, r.api} {
						if err := c.DeleteAllOf(t.Context(), pod, client.InNamespace(pod.Namespace)); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			r.reads = 0
			r.keeps(0)
			if got := testutil.ToFloat64(unreachableSlots); got != tc.metric {
				t.Errorf("%v slots wait, want %v", got, tc.metric)
			}
			if (r.reads > 0) != tc.reads {
				t.Errorf("%d reads of the API server", r.reads)
			}
		})
	}
}
