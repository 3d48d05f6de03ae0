package advertise

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kubeslot/kubeslot/types"
	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// patch is a JSON merge patch of the node's status subresource, which takes the
// annotations as well: what the node has changes in one write. A nil quantity or
// annotation is removed.
type patch struct {
	Metadata *metadata `json:"metadata,omitempty"`
	Status   *status   `json:"status,omitempty"`
}

type metadata struct {
	Annotations map[string]*string `json:"annotations,omitempty"`
}

type status struct {
	Capacity    quantities `json:"capacity,omitempty"`
	Allocatable quantities `json:"allocatable,omitempty"`
}

type quantities map[corev1.ResourceName]*resource.Quantity

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
	// instances and pods may include those of other nodes.
	instances []*v0.Instance
	pods      []*corev1.Pod
	// sinking is from the plan before.
	sinking    sinking
	now        time.Time
	lowerAfter time.Duration
}

// planned is what plan returns.
type planned struct {
	patch []byte // nil when the node says everything already
	kept  []held
	// foreign are resources of device plugins that the node has from others.
	foreign []types.ResourceName
	sinking sinking       // to be given to the next plan
	recheck time.Duration // when the first of them is due; 0 for none
	// unsaid says why what device plugins say is not in the patch.
	unsaid error
}

// plan says what makes the node say what it has. What is no longer needed stays
// for a while, see sinking. Pure: nothing but the view counts.
func plan(v view) (planned, error) {
	node := v.node
	ours, plugged := listed(node), amounts(v.devices)
	next := planned{foreign: takeOver(node, ours, plugged)}
	for name := range plugged {
		ours[corev1.ResourceName(name)] = true
	}
	capacity := slotResources(node.Name, v.instances)
	maps.Copy(capacity, plugged)
	allocatable := maps.Clone(capacity)
	if !v.settled {
		keepUnsettled(node, ours, v.devices, capacity, allocatable)
	}

	// A stock kubelet that restarts kills running pods which do not fit its
	// allocatable any more, and it makes allocatable from capacity.
	requests := heldByPods(node.Name, ours, v.pods)
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		if n := requests[name]; n > allocatable[name] {
			next.kept = append(next.kept, held{corev1.ResourceName(name), allocatable[name], n})
			allocatable[name] = n
			capacity[name] = max(capacity[name], n)
		}
	}
	next.sinking, next.recheck = v.sinking.keep(node, ours, capacity, allocatable, v.now, v.lowerAfter)

	var p patch
	annotations, err := annotate(node, v.devices, capacity)
	if next.unsaid = err; err != nil {
		for name := range ours { // their list cannot be written, so they stay as they are
			delete(capacity, types.ResourceName(name))
			delete(allocatable, types.ResourceName(name))
		}
		ours = nil
	}
	if len(annotations) > 0 {
		p.Metadata = &metadata{annotations}
	}
	var s status
	s.Capacity = difference(node.Status.Capacity, capacity, ours)
	s.Allocatable = difference(node.Status.Allocatable, allocatable, ours)
	if len(s.Capacity) > 0 || len(s.Allocatable) > 0 {
		p.Status = &s
	}
	if p == (patch{}) {
		return next, nil
	}
	if next.patch, err = json.Marshal(p); err != nil {
		return planned{}, fmt.Errorf("encode the patch of node %s: %w", node.Name, err)
	}
	return next, nil
}

// slotResources names the slots of the Instances that the node can reach: of
// each, and of each Configuration, which wins where both have one name.
func slotResources(node string, instances []*v0.Instance) types.ResourceList {
	list := types.ResourceList{}
	for _, i := range instances {
		if slices.Contains(i.Spec.Nodes, node) {
			list[types.ResourceName(assignment.ResourcePrefix+i.Name)] = slots(i)
		}
	}
	for configuration, n := range slotCounts(node, instances) {
		list[types.ResourceName(assignment.ResourcePrefix+configuration)] = n
	}
	return list
}

// slotCounts counts by Configuration the slots that the node can reach.
func slotCounts(node string, instances []*v0.Instance) map[string]int64 {
	counts := map[string]int64{}
	for _, i := range instances {
		if slices.Contains(i.Spec.Nodes, node) {
			counts[i.Spec.ConfigurationName] += slots(i)
		}
	}
	return counts
}

func slots(i *v0.Instance) int64 { return int64(max(i.Spec.Capacity, 1)) } // 1 is the API's default

// heldByPods sums what the node's pods request of slots and of what else is ours,
// as the scheduler and the kubelet count it.
func heldByPods(node string, ours owned, pods []*corev1.Pod) types.ResourceList {
	sum := types.ResourceList{}
	for _, pod := range pods {
		if pod.Spec.NodeName != node || !holds(pod) {
			continue
		}
		for name, quantity := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
			if ours.has(name) {
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
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return false
	}
	return pod.UID != "" && pod.Annotations[assignment.HolderAnnotation] == string(pod.UID)
}

func isSlots(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), assignment.ResourcePrefix)
}

// difference returns what makes the node's list say want. Beyond want, what is
// ours and no longer exists goes.
func difference(has corev1.ResourceList, want types.ResourceList, ours owned) quantities {
	change := quantities{}
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
