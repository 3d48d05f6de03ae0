package preemption

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
)

// budget is a PodDisruptionBudget and its selector.
type budget struct {
	*policyv1.PodDisruptionBudget
	selector labels.Selector
}

// budgets are PodDisruptionBudgets by namespace. Those of a namespace are read when a candidate is
// of it, and stay the same for one search.
type budgets map[string][]*budget

func (e *Evaluator) budgetsOf(namespace string, read budgets) []*budget {
	found, known := read[namespace]
	if known {
		return found
	}
	list, _ := e.PDBs.PodDisruptionBudgets(namespace).List(labels.Everything()) // an informer's lister does not fail
	for _, b := range list {
		if selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector); err == nil {
			found = append(found, &budget{b, selector})
		}
	}
	read[namespace] = found
	return found
}

// protect marks the candidates whose eviction would violate a budget, fills in when they started,
// and leaves out pods of a PodGroup: one alone may be of no use, and whether its group goes as one
// is upstream's to know. A budget protects none while it allows disruptions: those that
// it allows are of the least important.
func (e *Evaluator) protect(candidates []ledger.Victim, read budgets) []ledger.Victim {
	pods := map[string]*v1.Pod{}
	var alone []ledger.Victim
	for _, v := range candidates {
		if pod, err := e.victim(v); err == nil {
			if pod.Spec.SchedulingGroup != nil {
				continue
			}
			pods[v.UID], v.Started = pod, schedutil.GetPodStartTime(pod).UnixNano()
		}
		alone = append(alone, v)
	}
	slices.SortFunc(alone, func(a, b ledger.Victim) int { return ledger.MoreImportant(b, a) })
	disrupted := map[*budget]int32{}
	for i := range alone {
		v := &alone[i]
		for _, b := range e.budgetsOf(v.Namespace, read) {
			if pod := pods[v.UID]; pod != nil && b.covers(pod) {
				disrupted[b]++
				v.Protected = v.Protected || disrupted[b] > b.Status.DisruptionsAllowed
			}
		}
	}
	return alone
}

// covers follows policy/v1: a budget with an empty selector covers all pods of
// its namespace; one already disrupted is not counted again.
func (b *budget) covers(pod *v1.Pod) bool {
	_, disrupted := b.Status.DisruptedPods[pod.Name]
	return !disrupted && b.selector.Matches(labels.Set(pod.Labels))
}
