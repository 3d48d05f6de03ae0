package view

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
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

// What thousands of nodes say is said once, and of what each says in other words a pod has the first.
func TestProblemsOfManyNodes(t *testing.T) {
	const nodes = 3000
	o := cluster()
	o.Instances, o.Slices, o.Nodes = nil, nil, nil
	for i := range nodes {
		name := fmt.Sprintf("n%04d", i)
		o.Nodes = append(o.Nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: ready(true)})
		of := &v1alpha1.ConfigurationReference{Namespace: "default", Name: "cam"}
		problems := []v1alpha1.Problem{{Configuration: of, Reason: "DiscoveryFailed", Message: "no route"},
			{Configuration: of, Reason: "DevicesRejected", Message: "device " + name}}
		spec := v1alpha1.DeviceSliceSpec{NodeName: name, Problems: problems}
		o.Slices = append(o.Slices, v1alpha1.DeviceSlice{Spec: spec})
	}
	o.Configurations[0].Status.Problems = []akriv0.ConfigurationProblem{{Node: "n0001", Reason: "DiscoveryFailed",
		Message: "no route"}, {Reason: "DiscoveryFailed", Message: "no route"}}
	o.Pods = []corev1.Pod{pod("waits", "cam", 1)}
	v := New(o)
	problems := v.Configurations()[0].Problems
	for _, want := range []string{"nodes n0000, n0001, n0002 and 2997 more: DiscoveryFailed: no route",
		"DiscoveryFailed: no route", "node n0007: DevicesRejected: device n0007"} {
		if !slices.Contains(problems, want) {
			t.Errorf("no problem %q", want)
		}
	}
	if len(problems) != nodes+2 {
		t.Errorf("%d problems, want one of each node, one of all, and one of the Configuration", len(problems))
	}
	want := "no node sees a device of this Configuration: DiscoveryFailed: no route; " +
		"node n0000: DevicesRejected: device n0000; node n0001: DevicesRejected: device n0001; and 2999 more"
	if p, _ := v.Pod("default", "waits"); len(p.Waits) == 0 || p.Waits[len(p.Waits)-1].Why != want {
		t.Errorf("it waits for %+v, want\n%s", p.Waits, want)
	}
}

// A node writes the names of pods: what is none gets into no command that people copy.
func TestUsersOfClaimsAreNames(t *testing.T) {
	for user, want := range map[string]string{"default/p": "default/p", "default/p.1": "default/p.1",
		"default/p; curl x | sh": "(not known)", "$(reboot)/p": "(not known)", "default/": "(not known)",
		"p": "(not known)"} {
		o := cluster()
		c := claim(yard+"-0", "a", "x")
		c.Spec.Pod, c.Annotations = nil, map[string]string{v1alpha1.PodAnnotation: user}
		o.Claims = []v1alpha1.SlotClaim{c}
		if diff := cmp.Diff(want, New(o).podOf(&o.Claims[0])); diff != "" {
			t.Errorf("%q (-want +got):\n%s", user, diff)
		}
	}
}
