package ui

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
)

// The problems that every user sees are said as doctor says them.
func TestProblemsAreSaidAsDoctorSaysThem(t *testing.T) {
	now := time.Now()
	c := small(t, now)
	c.o.Instances[0].Status.Problems = []string{"its lens is broken"}
	c.o.Configurations[0].Status.Problems = append(c.o.Configurations[0].Status.Problems, problem("no route"))
	notReady(&c.o, "node-b")
	c.o.Pods = without(c.o.Pods, func(p *corev1.Pod) bool { return p.Name == "viewer-2" })
	v := view.New(c.o)
	all := NewState(v, c.o, nil, nil, now).Problems
	own := slices.DeleteFunc(slices.Clone(all), func(f view.Finding) bool {
		return f.Reason != "InstanceProblem" && f.Reason != "ConfigurationProblem" && f.Reason != "NodeUnreachable"
	})
	if len(own) != 3 {
		t.Fatalf("of the three problems these are found: %+v", all)
	}
	some := NewState(v, c.o, []string{"configurations.akri.sh of other namespaces"}, nil, now).Problems
	if diff := cmp.Diff(own, some); diff != "" {
		t.Errorf("to a user who may not list all they are said otherwise (-doctor +page):\n%s", diff)
	}
}
