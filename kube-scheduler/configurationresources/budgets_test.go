package configurationresources

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	policylisters "k8s.io/client-go/listers/policy/v1"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
)

// pdb covers the pods of its namespace that have the label group=<group>, or all
// of them for "".
func pdb(group string, allowed int32) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b-" + group, Namespace: "default"}}
	b.Spec.Selector, b.Status.DisruptionsAllowed = &metav1.LabelSelector{}, allowed
	if group != "" {
		b.Spec.Selector.MatchLabels = map[string]string{"group": group}
	}
	return b
}

// Two pods hold a slot each, first of group 1 and second of group 2.
func TestBudgetsProtect(t *testing.T) {
	elsewhere, disrupted, without := pdb("", 0), pdb("", 0), pdb("", 0)
	elsewhere.Namespace = "other"
	disrupted.Status.DisruptedPods = map[string]metav1.Time{"first": metav1.Now()}
	without.Spec.Selector = nil
	spare := pdb("", 1)
	spare.Status.DisruptedPods = disrupted.Status.DisruptedPods
	malformed := pdb("", 0)
	malformed.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "group", Operator: "Sometimes"}}
	for name, test := range map[string]struct {
		budgets []*policyv1.PodDisruptionBudget
		want    []string
	}{
		"none":                                 {nil, nil},
		"allows none":                          {[]*policyv1.PodDisruptionBudget{pdb("", 0)}, []string{"first", "second"}},
		"allows one of two":                    {[]*policyv1.PodDisruptionBudget{pdb("", 1)}, []string{"first"}},
		"allows both":                          {[]*policyv1.PodDisruptionBudget{pdb("", 2)}, nil},
		"covers one":                           {[]*policyv1.PodDisruptionBudget{pdb("2", 0)}, []string{"second"}},
		"one each":                             {[]*policyv1.PodDisruptionBudget{pdb("1", 0), pdb("2", 1)}, []string{"first"}},
		"two for one pod, one is used up":      {[]*policyv1.PodDisruptionBudget{pdb("", 2), pdb("1", 0)}, []string{"first"}},
		"one is disrupted already":             {[]*policyv1.PodDisruptionBudget{disrupted}, []string{"second"}},
		"one is disrupted, the other may be":   {[]*policyv1.PodDisruptionBudget{spare}, nil},
		"of another namespace":                 {[]*policyv1.PodDisruptionBudget{elsewhere}, nil},
		"without a selector: it covers none":   {[]*policyv1.PodDisruptionBudget{without}, nil},
		"malformed: it covers none":            {[]*policyv1.PodDisruptionBudget{malformed}, nil},
		"a malformed one takes none with it":   {[]*policyv1.PodDisruptionBudget{malformed, pdb("1", 0)}, []string{"first"}},
		"of a group that no pod is of":         {[]*policyv1.PodDisruptionBudget{pdb("3", 0)}, nil},
		"more disrupted than it ever allowed":  {[]*policyv1.PodDisruptionBudget{pdb("", -1)}, []string{"first", "second"}},
		"of another namespace, and of its own": {[]*policyv1.PodDisruptionBudget{elsewhere, pdb("1", 0)}, []string{"first"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.mayPreempt(t, test.budgets...)
			for i, name := range []string{"first", "second"} {
				holder, group := pod(name, "1"), string(rune('1'+i))
				holder.Labels = map[string]string{"group": group}
				started := metav1.Unix(int64(1000*i), 0)
				holder.Status.StartTime = &started
				r.hold(t, "cam-00000"+group, holder, "node-b")
			}
			req, err := requestOf(important("vip"))
			if err != nil {
				t.Fatal(err)
			}
			candidates := r.protect(r.cache.ledger.PotentialVictims(req).On("node-b"), r.budgets())
			if len(candidates) != 2 {
				t.Fatalf("candidates are %+v, want 2", candidates)
			}
			slices.SortFunc(candidates, func(a, b ledger.Victim) int { return strings.Compare(a.Name, b.Name) })
			var got []string
			for i, v := range candidates {
				if v.Protected {
					got = append(got, v.Name)
				}
				if want := int64(1000*i) * int64(time.Second); v.Started != want {
					t.Errorf("%s started at %d, want %d", v.Name, v.Started, want)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("protected: %v, want %v", got, test.want)
			}
		})
	}
}

// Of two pods that would do, the one goes that no budget covers, though it is the
// more important otherwise: its priority is higher and it is older.
func TestPreemptsPodsWithoutABudget(t *testing.T) {
	for name, test := range map[string]struct {
		budget *policyv1.PodDisruptionBudget
		want   string
	}{
		"the lesser one is covered":                   {pdb("lesser", 0), "greater"},
		"it is covered, and may be disrupted":         {pdb("lesser", 1), "lesser"},
		"the greater one is covered":                  {pdb("greater", 0), "lesser"},
		"both are covered, and nobody may be evicted": {pdb("", 0), "lesser"},
		"both are covered, and one may be evicted":    {pdb("", 1), "lesser"},
	} {
		synctestRun(t, name, func(t *testing.T) {
			r := newRig(t)
			r.mayPreempt(t, test.budget)
			for i, name := range []string{"greater", "lesser"} {
				holder, priority := pod(name, "1"), int32(50-i)
				holder.Spec.Priority, holder.Labels = &priority, map[string]string{"group": name}
				started := metav1.Unix(int64(1000*i), 0)
				holder.Status.StartTime = &started
				r.hold(t, camera(name), holder, "node-a", "node-b")
			}
			if node, status := r.postFilter(t, important("vip")); node != "node-a" {
				t.Fatalf("nominated to %q, %v", node, status)
			}
			synctest.Wait() // for the evictions
			if got := r.deleted(); !slices.Equal(got, []string{test.want}) {
				t.Errorf("evicted %v, want %v", got, test.want)
			}
		})
	}
}

// The budgets are listed once, however many nodes are looked at; nothing is looked at for a
// scheduler that ends.
func TestBudgetsAreListedOnce(t *testing.T) {
	r := newRig(t)
	r.mayPreempt(t)
	for i, node := range []string{"node-a", "node-b"} {
		r.hold(t, camera(i), withPriority(pod(fmt.Sprint("holder-", i), "1"), 10), node)
	}
	listed := 0
	r.pdbs = countedBudgets{r.pdbs, &listed}
	vip := important("vip")
	if err := r.known.Add(vip); err != nil {
		t.Fatal(err)
	}
	state, _ := r.filter(vip, "node-a")
	c, _ := readCycle(state)
	ctx, cancel := context.WithCancel(r.ctx)
	cancel()
	if best, _ := r.preempt(ctx, c, vip, []string{"node-a", "node-b"}); best != nil {
		t.Errorf("a scheduler that ends preempts %v", best.Victims)
	}
	listed = 0
	if best, _ := r.preempt(r.ctx, c, vip, []string{"node-a", "node-b"}); best == nil || listed != 1 {
		t.Errorf("preempts %v, and the budgets were listed %d times", best, listed)
	}
}

type countedBudgets struct {
	policylisters.PodDisruptionBudgetLister
	listed *int
}

func (c countedBudgets) List(selector labels.Selector) ([]*policyv1.PodDisruptionBudget, error) {
	*c.listed++
	return c.PodDisruptionBudgetLister.List(selector)
}
