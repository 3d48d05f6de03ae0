package schedule

import (
	"fmt"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/gpu"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
	"github.com/kubeslot/kubeslot/types/resource"
)

// Scheduler is the device scheduler. It has no state: what the node has, and
// what is used of it, is in the NodeInfo of each call.
type Scheduler struct{}

var _ devicescheduler.DeviceScheduler = Scheduler{}

// AddNode lifts GPUs that a node advertises with fewer levels of groups, as
// KubeGPU's device plugin can, to two.
func (Scheduler) AddNode(_ string, node *types.NodeInfo) {
	stages := types.ResourceList{gpu.Name{Leaf: gpu.Cards}.Resource(): 1}
	_, lifted := resource.TranslateResource(stages, node.Allocatable, gpu.CliqueStage, gpu.Stage)
	_, node.Allocatable = resource.TranslateResource(stages, lifted, gpu.NodeStage, gpu.CliqueStage)
}

// RemoveNode forgets nothing.
func (Scheduler) RemoveNode(string) {}

// weight makes nodes that have better connected GPUs for a pod go before nodes that are merely fuller, which
// the group scheduler scores from 0 to 1: one clique instead of two is worth as much.
const weight = 2

// PodFitsDevice chooses the pod's GPUs. The group scheduler then has the last word.
func (Scheduler) PodFitsDevice(node *types.NodeInfo, pod *types.PodInfo, _ bool) (bool, []devicescheduler.PredicateFailureReason, float64) {
	connected, reason := place(node, pod)
	if reason != nil {
		return false, []devicescheduler.PredicateFailureReason{reason}, 0
	}
	return true, nil, weight * connected
}

// PodAllocate chooses as PodFitsDevice does.
func (Scheduler) PodAllocate(node *types.NodeInfo, pod *types.PodInfo) error {
	if _, reason := place(node, pod); reason != nil {
		return fmt.Errorf("choose GPUs of node %s for pod %s: %s", node.Name, pod.Name, reason.GetReason())
	}
	return nil
}

// TakePodResources counts GPUs that the pod has by another name than the node now gives them. Groups are
// numbered: when a GPU is lost or a node comes back with others, a GPU's group may have another number. A
// GPU's kind is another when the node's config changes. A slice may be made anew, and a GPU divided or put
// together, while a pod has what was there before. Everything else the group scheduler counts.
func (Scheduler) TakePodResources(node *types.NodeInfo, pod *types.PodInfo) error {
	resource.Take(node.Used, renamed(node, pod))
	return nil
}

// ReturnPodResources undoes TakePodResources. The node is the same: when it
// changes, all its pods are taken anew.
func (Scheduler) ReturnPodResources(node *types.NodeInfo, pod *types.PodInfo) error {
	for r, n := range renamed(node, pod) {
		if node.Used[r] -= n; node.Used[r] <= 0 {
			delete(node.Used, r)
		}
	}
	return nil
}

// renamed returns what the pod holds of leaves whose name has changed, by the
// name that they have now. Of a GPU or slice that has become another kind it holds
// all: how much of it the pod has in the new kind is not known. Of a GPU whose slice is gone, or which
// has slices now, it holds all, too: what the pod's device nodes open is not known.
func renamed(node *types.NodeInfo, pod *types.PodInfo) types.ResourceList {
	held, err := resource.Usage(node, pod)
	if err != nil {
		return nil // which the group scheduler tells
	}
	now := types.ResourceList{}
	for was, n := range held {
		name, ok := gpu.ParseName(was)
		if _, same := node.Allocatable[was]; !ok || same {
			continue
		}
		gone := !has(node, name.GPU, name.Slice)
		for r, all := range node.Allocatable {
			other, ok := gpu.ParseName(r)
			switch {
			case !ok || other.GPU != name.GPU || other.Slice != name.Slice && !gone:
			case other.Leaf == name.Leaf && !gone:
				now[r] = resource.AddCapped(now[r], n)
			case other.Leaf != gpu.Bytes && name.Leaf != gpu.Bytes:
				now[r] = max(now[r], all)
			}
		}
	}
	return now
}

// has reports whether the node has the whole GPU, or the slice of it.
func has(node *types.NodeInfo, uuid, slice string) bool {
	for r := range node.Allocatable {
		if name, ok := gpu.ParseName(r); ok && name.GPU == uuid && name.Slice == slice {
			return true
		}
	}
	return false
}

// GetName is KubeGPU's.
func (Scheduler) GetName() string { return "nvidiagpu" }

// UsingGroupScheduler is true: it checks, counts and scores what was chosen.
func (Scheduler) UsingGroupScheduler() bool { return true }
