package brokers

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/controller/inventory"
	"github.com/kubeslot/kubeslot/controller/naming"
)

// nodes says which nodes may have a broker of a spec.
type nodes struct {
	known    map[string]inventory.Node
	affinity nodeaffinity.RequiredNodeAffinity
	spec     *corev1.PodSpec
}

func nodesFor(spec *corev1.PodSpec, known map[string]inventory.Node) nodes {
	return nodes{known: known, spec: spec, affinity: nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: *spec})}
}

// selected reports whether the spec wants a broker on the node, whatever the node's
// state is now.
func (n nodes) selected(name string) bool {
	node, ok := n.known[name]
	if !ok {
		return false
	}
	match, err := n.affinity.Match(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: node.Labels}})
	return err == nil && match
}

// eligible reports whether a new broker may be placed on the node now: it is Ready,
// not cordoned, and has no taint that the broker does not tolerate.
func (n nodes) eligible(name string) bool {
	node := n.known[name]
	if !n.selected(name) || !node.Ready || node.Unschedulable {
		return false
	}
	_, untolerated := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), node.Taints, n.spec.Tolerations, keepsPodsOff, true)
	return !untolerated
}

func keepsPodsOff(t *corev1.Taint) bool {
	return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
}

// rank is a node's weight for an Instance, by rendezvous hashing: a node that comes or
// goes changes the places of no brokers but its own.
func rank(instance, node string) uint64 {
	// FNV-1a, and then the finalizer of MurmurHash3, for FNV mixes the last bytes too
	// little to be compared by size.
	h := uint64(14695981039346656037)
	for _, text := range []string{instance, "\x00", node} {
		for i := range len(text) {
			h = (h ^ uint64(text[i])) * 1099511628211
		}
	}
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// byRank sorts nodes for an Instance, the first choice first.
func byRank(instance string, names []string) {
	type ranked struct {
		name string
		rank uint64
	}
	all := make([]ranked, len(names))
	for i, name := range names {
		all[i] = ranked{name, rank(instance, name)}
	}
	slices.SortFunc(all, func(a, b ranked) int { return cmp.Or(cmp.Compare(b.rank, a.rank), cmp.Compare(a.name, b.name)) })
	for i := range all {
		names[i] = all[i].name
	}
}

// placement chooses the nodes of an Instance's brokers: as many as there are places,
// and nodes. Nodes whose broker runs keep it; then those come where one has ended, be it
// deleted by now, so that its logs stay and its delay counts; then the others by rank, which
// need room. withheld is how many are not chosen for lack of it.
func placement(f *facts, n nodes, places int, on map[string]*corev1.Pod, failures map[string]int) (chosen []string, withheld int) {
	var running, ended, made, free []string
	for _, name := range f.reach {
		pod := on[name]
		_, lost := f.lost[name]
		switch eligible := n.eligible(name) && !lost; {
		case pod != nil && !isEnded(pod) && pod.DeletionTimestamp == nil && n.known[name].Ready && (eligible || pod.Spec.NodeName != ""):
			running = append(running, name)
		case !eligible:
		case pod != nil && isEnded(pod) && pod.DeletionTimestamp == nil, failures[name] > 0:
			ended = append(ended, name)
		case pod == nil && f.room.Has(naming.Cut(name)): // the cache does not have it yet
			made = append(made, name)
		default:
			free = append(free, name)
		}
	}
	for _, names := range [][]string{running, ended, made, free} {
		byRank(f.instance.Name, names)
	}
	slices.SortStableFunc(running, func(a, b string) int { return cmp.Compare(progress(on[b]), progress(on[a])) })
	candidates := slices.Concat(running, ended, made, free)
	wanted := min(places, len(candidates))
	for _, name := range candidates {
		if len(chosen) == wanted {
			break
		}
		if f.room.Take(naming.Cut(name), 1) {
			chosen = append(chosen, name)
		}
	}
	return chosen, wanted - len(chosen)
}

// progress says how far a pod has come: what has come farthest is kept.
func progress(p *corev1.Pod) int {
	switch {
	case isReady(p):
		return 3
	case p.Status.Phase == corev1.PodRunning:
		return 2
	case p.Spec.NodeName != "":
		return 1
	}
	return 0
}

func isEnded(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
}

func isReady(p *corev1.Pod) bool {
	if p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil {
		return false
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
