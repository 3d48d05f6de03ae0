package brokers

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubeslot/kubeslot/controller/inventory"
	"github.com/kubeslot/kubeslot/controller/naming"
)

// stepOf is how far a broker pod has come, as the pod alone shows it. counts is false for one on a
// node that is not Ready, which holds up nobody, and for one of an earlier spec.
func stepOf(pod *corev1.Pod, hash string, nodes map[string]inventory.Node) (st step, counts bool) {
	if n, exists := nodes[pod.Spec.NodeName]; exists && !n.Ready {
		return step{}, false
	}
	st = step{node: pod.Labels[naming.TargetNode]}
	switch {
	case pod.DeletionTimestamp != nil:
		st.phase = starting
	case pod.Annotations[naming.SpecHash] != hash:
		return step{}, false
	case isReady(pod):
		st.phase, st.works = done, true
	case isEnded(pod):
		st.phase = late
	default:
		st.phase = starting
	}
	return st, st.node != "" // a Job's has none
}

// stepsOf is how far the Instance's brokers have come, by node.
func (p *plan) stepsOf(f *facts) []step {
	by := map[string]step{}
	for _, pod := range f.pods {
		st, counts := stepOf(pod, f.spec.hash, f.nodes)
		if !counts {
			continue
		}
		if is, known := p.memory.pods[pod.UID]; known && st.phase == starting && pod.DeletionTimestamp == nil {
			if left := is.since.Add(startsWithin).Sub(f.now); left > 0 {
				p.lookAgain(left)
			} else {
				st.phase = late
			}
		}
		by[st.node] = st
	}
	for _, r := range p.replace {
		node := naming.Cut(r.node)
		by[node] = step{node: node, phase: waiting, works: by[node].works, pod: r.pod.UID}
	}
	made := starting
	if p.memory.refused > 0 {
		made = late
	}
	for _, pod := range p.create {
		node := pod.Labels[naming.TargetNode]
		by[node] = step{node: node, phase: made}
	}
	for _, name := range p.notMade {
		node := naming.Cut(name)
		by[node] = step{node: node, phase: late}
	}
	return slices.SortedFunc(maps.Values(by), func(a, b step) int { return cmp.Compare(a.node, b.node) })
}

// stepsOfAll are the steps of all Instances of a Configuration, as the pods in the cache show them. What
// waits, and what is late because it does not become Ready, is known when its Instance reports.
func (r *Reconciler) stepsOfAll(ctx context.Context, c types.NamespacedName, hash string) (map[string][]step, error) {
	var list corev1.PodList
	of := client.MatchingFields{naming.Configuration: c.Name}
	err := r.Made.List(ctx, &list, client.InNamespace(c.Namespace), of, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list the brokers of Configuration %s: %w", c, err)
	}
	names := make([]string, len(list.Items))
	for i := range list.Items {
		names[i] = list.Items[i].Spec.NodeName
	}
	nodes, all := r.Inventory.Nodes(names), map[string][]step{}
	for i := range list.Items {
		if st, counts := stepOf(&list.Items[i], hash, nodes); counts {
			instance := list.Items[i].Labels[naming.Instance]
			all[instance] = append(all[instance], st)
		}
	}
	return all, nil
}
