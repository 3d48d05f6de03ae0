package advertise

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kubeslot/kubeslot/kubecri/informers"
	"github.com/kubeslot/kubeslot/kubecri/nodewriter"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/slot"
)

// held is a resource that is kept above what there is, because pods hold it.
type held struct {
	resource  corev1.ResourceName
	exists    int64
	allocated int64
}

// view is all that plan goes by.
type view struct {
	node *corev1.Node
	// devices is what device plugins say, which plan adds to, and settled whether
	// all of them have.
	devices *types.NodeInfo
	settled bool
	// slots are those that the node reaches, by Configuration: an entry for each
	// that there is, also with none.
	slots map[string]int64
	// byAge are the Configurations' names, the oldest first.
	byAge []string
	// pods may include those of other nodes.
	pods []*corev1.Pod
	// decreases are those that the plan before left pending.
	decreases  pendingDecreases
	now        time.Time
	lowerAfter time.Duration
}

// planned is what plan returns.
type planned struct {
	patch nodewriter.Patch // zero when the node says everything already
	kept  []held
	// foreign are resources of device plugins that the node has from others.
	foreign []types.ResourceName
	// withheld are resources beyond what a node may advertise.
	withheld  []types.ResourceName
	decreases pendingDecreases // to be given to the next plan
	recheck   time.Duration    // when the first of them is due; 0 for none
	// notWritten says why what device plugins say is not in the patch.
	notWritten error
}

// plan says what makes the node say what it has. What is no longer needed stays
// for a while, see pendingDecreases. Pure: nothing but the view counts.
func plan(v view) planned {
	node := v.node
	ours, plugged := listed(node), amounts(v.devices)
	next := planned{foreign: takeOver(node, ours, plugged)}
	for name := range plugged {
		ours[corev1.ResourceName(name)] = true
	}
	capacity := slotResources(v.slots)
	maps.Copy(capacity, plugged)
	allocatable := maps.Clone(capacity)
	if !v.settled {
		keepUnsettled(node, ours, v.devices, capacity, allocatable)
	}

	// A stock kubelet that restarts kills running pods which do not fit its
	// allocatable any more, and it makes allocatable from capacity.
	requests := heldByPods(node.Name, ours, v.pods)
	maps.DeleteFunc(requests, func(name types.ResourceName, _ int64) bool { return instanceLevel(name, v.slots) })
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		if n := requests[name]; n > allocatable[name] {
			next.kept = append(next.kept, held{corev1.ResourceName(name), allocatable[name], n})
			allocatable[name] = n
			capacity[name] = max(capacity[name], n)
		}
	}
	stays := func(name corev1.ResourceName) bool {
		return ours.has(name) && !instanceLevel(types.ResourceName(name), v.slots)
	}
	next.decreases, next.recheck = v.decreases.keep(node, stays, capacity, allocatable, v.now, v.lowerAfter)

	next.withheld = withhold(node, v.byAge, capacity, allocatable)

	annotations, err := annotate(node, v.devices, capacity)
	if next.notWritten = err; err != nil {
		for name := range ours { // their list cannot be written, so they stay as they are
			delete(capacity, types.ResourceName(name))
			delete(allocatable, types.ResourceName(name))
		}
		ours = nil
	}
	next.patch.Metadata.Annotations = annotations
	next.patch.Status.Capacity = difference(node.Status.Capacity, capacity, ours)
	next.patch.Status.Allocatable = difference(node.Status.Allocatable, allocatable, ours)
	return next
}

func slotResource(configuration string) types.ResourceName {
	return types.ResourceName(assignment.ResourcePrefix + configuration)
}

// slotResources names the slots of each Configuration of which there are any.
func slotResources(slots map[string]int64) types.ResourceList {
	list := types.ResourceList{}
	for configuration, n := range slots {
		if n > 0 {
			list[slotResource(configuration)] = n
		}
	}
	return list
}

// instanceLevel reports whether the resource is an Instance's. Those are not
// advertised, and a former kubecri did: they go at once and whole, also while pods
// hold them, since a kubelet ignores extended resources that its node does not have
// (pkg/kubelet/lifecycle/predicate.go, removeMissingExtendedResources).
func instanceLevel(name types.ResourceName, slots map[string]int64) bool {
	text, ours := strings.CutPrefix(string(name), assignment.ResourcePrefix)
	if _, exists := slots[text]; !ours || exists {
		return false
	}
	configuration, hash := slot.SplitInstance(text)
	return configuration != "" && slot.IsHash(hash)
}

// heldByPods sums what the node's pods request of slots and of what else is ours,
// as the scheduler and the kubelet count it.
func heldByPods(node string, ours owned, pods []*corev1.Pod) types.ResourceList {
	sum := types.ResourceList{}
	for _, pod := range pods {
		if pod.Spec.NodeName != node || !holds(pod) {
			continue
		}
		for name, quantity := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
			if ours.has(name) && !assignment.ByDRA(pod, "", string(name)) {
				sum[types.ResourceName(name)] += quantity.Value()
			}
		}
	}
	return sum
}

// holds reports whether the scheduler gave the pod what it requests. Others do not
// count, though the kubelet admits whoever names it in spec.nodeName and asks for a
// resource that the node does not have: they would make the node grow, and have no
// slots anyway.
func holds(pod *corev1.Pod) bool {
	return !informers.PodEnded(pod) && pod.UID != "" && pod.Annotations[assignment.HolderAnnotation] == string(pod.UID)
}

func isSlots(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), assignment.ResourcePrefix)
}

// difference returns what makes the node's list say want. Beyond want, what is
// ours and no longer exists goes.
func difference(has corev1.ResourceList, want types.ResourceList, ours owned) nodewriter.Quantities {
	change := nodewriter.Quantities{}
	for name, n := range want {
		if q, ok := has[corev1.ResourceName(name)]; !ok || q.CmpInt64(n) != 0 {
			change[corev1.ResourceName(name)] = resource.NewQuantity(n, resource.DecimalSI)
		}
	}
	for name := range has {
		if _, ok := want[types.ResourceName(name)]; !ok && ours.has(name) {
			change[name] = nil
		}
	}
	return change
}
