package preemption

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	"k8s.io/client-go/tools/cache"

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

// store is an informer's.
func store() cache.Indexer {
	return cache.NewIndexer(cache.MetaNamespaceKeyFunc,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
}

// Two pods are candidates, first of group 1 and second of group 2.
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
			pods, pdbs := store(), store()
			for _, b := range test.budgets {
				_ = pdbs.Add(b)
			}
			var candidates []ledger.Victim
			for i, name := range []string{"first", "second"} {
				started := metav1.Unix(int64(1000*i), 0)
				p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name), Labels: map[string]string{"group": fmt.Sprint(i + 1)}},
					Status: v1.PodStatus{StartTime: &started}}
				_ = pods.Add(p)
				candidates = append(candidates, ledger.Victim{Pod: slotrequest.PodOf(p)})
			}
			e := &Evaluator{Pods: corelisters.NewPodLister(pods), PDBs: policylisters.NewPodDisruptionBudgetLister(pdbs)}
			candidates = e.protect(candidates, budgets{})
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

// A pod of a PodGroup does not have to go alone.
func TestPodsOfGroupsStay(t *testing.T) {
	pods, group := store(), "gang"
	var candidates []ledger.Victim
	for _, name := range []string{"alone", "member"} {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)}}
		if name == "member" {
			p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &group}
		}
		_ = pods.Add(p)
		candidates = append(candidates, ledger.Victim{Pod: slotrequest.PodOf(p)})
	}
	e := &Evaluator{Pods: corelisters.NewPodLister(pods), PDBs: policylisters.NewPodDisruptionBudgetLister(store())}
	if got := e.protect(candidates, budgets{}); len(got) != 1 || got[0].Name != "alone" {
		t.Errorf("candidates %v, want the pod that is alone", got)
	}
}
