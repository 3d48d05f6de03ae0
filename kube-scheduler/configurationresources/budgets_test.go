package configurationresources

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	policylisters "k8s.io/client-go/listers/policy/v1"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotrequest"
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
			r.preempts(t, important("vip"))
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
	r.preemption.PDBs = countedBudgets{r.preemption.PDBs, &listed}
	vip := important("vip")
	r.know(vip)
	r.filter(vip, "node-a")
	req := must(slotrequest.Of(vip))
	ctx, cancel := context.WithCancel(r.ctx)
	cancel()
	if best, _, _ := r.preemption.Preempt(ctx, req, []string{"node-a", "node-b"}, ledger.Spread, time.Hour); best != nil {
		t.Errorf("a scheduler that ends preempts %v", best.Victims)
	}
	listed = 0
	if best, _, _ := r.preemption.Preempt(r.ctx, req, []string{"node-a", "node-b"}, ledger.Spread, time.Hour); best == nil || listed != 1 {
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
