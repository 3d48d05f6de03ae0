package view

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// Ready says what kubectl get configurations says, once that is of the last change.
func TestReadyIsTheCondition(t *testing.T) {
	condition := func(status metav1.ConditionStatus, generation int64) []metav1.Condition {
		return []metav1.Condition{{Type: akriv0.ConditionReady, Status: status, ObservedGeneration: generation}}
	}
	for name, tc := range map[string]struct {
		conditions []metav1.Condition
		problem    string
		want       bool
	}{
		"no condition yet":                  {nil, "", true},
		"no condition yet, and a problem":   {nil, "InvalidConfiguration", false},
		"brokers are not ready":             {condition(metav1.ConditionFalse, 3), "", false},
		"nobody knows":                      {condition(metav1.ConditionUnknown, 3), "", false},
		"all is well":                       {condition(metav1.ConditionTrue, 3), "", true},
		"a problem that keeps no device":    {condition(metav1.ConditionTrue, 3), "PropertiesWithheld", true},
		"of the Configuration as it was":    {condition(metav1.ConditionFalse, 2), "", true},
		"as it was, and there is a problem": {condition(metav1.ConditionTrue, 2), "InvalidConfiguration", false},
	} {
		t.Run(name, func(t *testing.T) {
			o := cluster()
			c := &o.Configurations[0]
			c.Generation, c.Status.Conditions = 3, tc.conditions
			if tc.problem != "" {
				c.Status.Problems = []akriv0.ConfigurationProblem{{Reason: tc.problem}}
			}
			if rows := New(o).Configurations(); len(rows) != 1 || rows[0].Ready != tc.want {
				t.Errorf("Configurations() = %+v, want Ready %v", rows, tc.want)
			}
		})
	}
}
