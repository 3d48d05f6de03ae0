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

// Of two pods that would do, the one goes that no budget covers, though it is the
// more important otherwise: its priority is higher and it is older.
func TestPreemptsPodsWithoutABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.mayPreempt(t, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "default"},
			Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"group": "lesser"}}}})
		for i, name := range []string{"greater", "lesser"} {
			holder := withPriority(pod(name, "1"), int32(50-i))
			holder.Labels = map[string]string{"group": name}
			started := metav1.Unix(int64(1000*i), 0)
			holder.Status.StartTime = &started
			r.hold(t, camera(name), holder, "node-a", "node-b")
		}
		r.preempts(t, important("vip"))
		synctest.Wait() // for the eviction
		if got := r.deleted(); !slices.Equal(got, []string{"greater"}) {
			t.Errorf("evicted %v, want the one without a budget", got)
		}
	})
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
	if best, _, _ := r.preemption.Preempt(ctx, req, []string{"node-a", "node-b"}, 0, ledger.Spread, time.Hour); best != nil {
		t.Errorf("a scheduler that ends preempts %v", best.Victims)
	}
	listed = 0
	if best, _, _ := r.preemption.Preempt(r.ctx, req, []string{"node-a", "node-b"}, 0, ledger.Spread, time.Hour); best == nil || listed != 1 {
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
