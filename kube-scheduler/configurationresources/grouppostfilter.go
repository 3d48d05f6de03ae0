package configurationresources

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	fwk "k8s.io/kube-scheduler/framework"
	upstreamfeatures "k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	upstreampreemption "k8s.io/kubernetes/pkg/scheduler/framework/preemption"

	"github.com/kubeslot/kubeslot/kube-scheduler/slotrequest"
)

// groupPreemption is upstream's search for pods to preempt for a group; nil where the scheduler
// has no groups.
func groupPreemption(handle fwk.Handle) *upstreampreemption.PodGroupEvaluator {
	gates := utilfeature.DefaultFeatureGate
	if !gates.Enabled(upstreamfeatures.GenericWorkload) {
		return nil
	}
	features := feature.NewSchedulerFeaturesFromGates(gates)
	return upstreampreemption.NewPodGroupEvaluator(handle, upstreampreemption.NewExecutor(handle, features), features)
}

// PodGroupPostFilter preempts pods of lower priority, on whichever nodes, for a group in which a
// pod asks for slots: all that the group needs, or none. Upstream's evaluator takes all of them
// out of its snapshot, has the group placed, and puts back whom it can; here their slots are
// imagined free meanwhile. DefaultPreemption, which is asked next for other groups, does not
// know of slots.
func (p *Plugin) PodGroupPostFilter(
	ctx context.Context,
	_ fwk.PodGroupCycleState,
	group fwk.PodGroupInfo,
	place fwk.PodGroupSchedulingFunc,
) (result *fwk.PodGroupPostFilterResult, status *fwk.Status) {
	pods := podsOf(group)
	if p.groups == nil || !slices.ContainsFunc(pods, slotrequest.Any) {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	if nominated := p.nominatedNodes(pods); nominated != nil {
		return &fwk.PodGroupPostFilterResult{NominatingInfos: nominated}, nil // its victims are on their way out
	}
	lister := p.handle.MutableSnapshotSharedLister()
	before, err := podsOn(lister)
	if err == nil {
		err = lister.StartMutations()
	}
	if err != nil {
		return nil, fwk.AsStatus(
			fmt.Errorf("preempt for pod group %s/%s: %w", group.GetNamespace(), group.GetName(), err),
		)
	}
	defer func() {
		if err := lister.EndMutations(); err != nil {
			status = fwk.AsStatus(
				fmt.Errorf("end the preemption for pod group %s/%s: %w", group.GetNamespace(), group.GetName(), err),
			)
		}
	}()
	result, status = p.groups.Preempt(ctx, group, func(ctx context.Context) (*fwk.PodGroupAssignments, *fwk.Status) {
		now, err := podsOn(lister)
		if err != nil {
			return nil, fwk.AsStatus(err)
		}
		var away []*v1.Pod
		for uid, pod := range before {
			if now[uid] == nil && p.cache.Holds(string(uid)) {
				away = append(away, pod)
			}
		}
		return place(context.WithValue(ctx, imaginedAway{}, away))
	})
	if status.Code() == fwk.Unschedulable {
		return result, unresolvable(status.Message()) // DefaultPreemption would ask the same
	}
	return result, status
}

// imaginedAway is the context's key for pods whose slots PreFilter is to imagine free.
type imaginedAway struct{}

// podsOf returns the group's pods that have no node, those of the groups below it too.
func podsOf(group fwk.PodGroupInfo) []*v1.Pod {
	pods := slices.Clone(group.GetUnscheduledPods())
	for _, child := range group.GetChildren() {
		pods = append(pods, podsOf(child)...)
	}
	return pods
}

// nominatedNodes returns the nodes that the pods are nominated to since others were preempted for
// them; nil unless each that asks for slots is, and some of these are not free yet: else they do not help.
func (p *Plugin) nominatedNodes(pods []*v1.Pod) map[types.NamespacedName]*fwk.NominatingInfo {
	nominated, allReady := map[types.NamespacedName]*fwk.NominatingInfo{}, true
	for _, pod := range pods {
		node := pod.Status.NominatedNodeName
		if req, _ := slotrequest.Of(pod); req != nil {
			var ready bool
			if node, ready = p.cache.NominatedNode(pod.UID); node == "" {
				return nil
			}
			allReady = allReady && ready
		}
		nominated[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = &fwk.NominatingInfo{
			NominatingMode:    fwk.ModeOverride,
			NominatedNodeName: node,
		}
	}
	if allReady {
		return nil
	}
	return nominated
}

// podsOn returns the pods of the snapshot's nodes.
func podsOn(lister fwk.SharedLister) (map[types.UID]*v1.Pod, error) {
	nodes, err := lister.NodeInfos().List()
	if err != nil {
		return nil, err
	}
	pods := map[types.UID]*v1.Pod{}
	for _, node := range nodes {
		for _, info := range node.GetPods() {
			pods[info.GetPod().UID] = info.GetPod()
		}
	}
	return pods, nil
}
