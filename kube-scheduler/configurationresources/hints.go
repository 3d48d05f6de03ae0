package configurationresources

import (
	"context"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/kubeslot/kubeslot/kube-scheduler/binding"
	"github.com/kubeslot/kubeslot/kube-scheduler/kubecripods"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotrequest"
	"github.com/kubeslot/kubeslot/kube-scheduler/waitreason"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// EventsToRegister registers the events that matter apart from the ledger: the
// author corrected the annotation for which the pod was refused, kubecri has become Ready
// on a node or is to be no pod there any more, a node advertises more, a pod no longer counts
// against what a node advertises, or a DeviceClass has given up the name of a resource of ours, or got
// it. All
// others the slot cache answers by activating the pods that they help.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{
			Event:          fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Update},
			QueueingHintFn: binding.AfterInputChange,
		},
		{
			Event:          fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Add | fwk.Update},
			QueueingHintFn: p.ifAway(kubecripods.Came),
		},
		{
			Event:          fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.UpdateNodeAnnotation},
			QueueingHintFn: p.ifAway(kubecripods.Moved),
		},
		{
			Event:          fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeAllocatable},
			QueueingHintFn: p.afterAdvertisement,
		},
		{
			Event:          fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Delete},
			QueueingHintFn: p.afterDeletion,
		},
		{
			// With the DRA feature off, the framework watches none.
			Event:          fwk.ClusterEvent{Resource: fwk.DeviceClass, ActionType: fwk.Add | fwk.Update | fwk.Delete},
			QueueingHintFn: afterDeviceClassChange,
		},
	}, nil
}

// The hints run under the lock of the framework's queue, and must not take the slot cache's.

// refusedByNode reports whether, in the pod's last cycle, a node had slots for it that the
// node did not advertise: only such a pod is helped by what changes there.
func (p *Plugin) refusedByNode(pod *v1.Pod) bool {
	record, waits := p.cache.Queue.Get(pod.UID)
	return waits && record.Met(waitreason.NotAdvertised)
}

// afterAdvertisement requeues a pod when a node begins to advertise what the pod asks
// for, and when one advertises more of it and the pod waits for that.
func (p *Plugin) afterAdvertisement(_ klog.Logger, pod *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	oldNode, newNode, err := schedutil.As[*v1.Node](oldObj, newObj)
	if err != nil {
		return fwk.Queue, err
	}
	if newNode == nil {
		return fwk.QueueSkip, nil
	}
	var before v1.ResourceList
	if oldNode != nil {
		before = oldNode.Status.Allocatable
	}
	refused, helps := p.refusedByNode(pod), false
	want := p.cache.Advertisable(pod)
	if v1alpha1.ChoosesSlots(newNode) {
		want = slotrequest.Amounts(pod) // Instances are advertised there too
	}
	for name, n := range want {
		had, has := before[name], newNode.Status.Allocatable[name]
		if has.Value() < n {
			return fwk.QueueSkip, nil
		}
		if has.Cmp(had) > 0 && (refused || had.IsZero()) {
			helps = true
		}
	}
	if helps {
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}

// ifAway is the hint for pods that wait for a node's kubecri. Others are skipped.
func (p *Plugin) ifAway(hint fwk.QueueingHintFn) fwk.QueueingHintFn {
	return func(logger klog.Logger, pod *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
		answer, err := hint(logger, pod, oldObj, newObj)
		if answer == fwk.QueueSkip { // nearly always: the Queue is not locked for it
			return answer, err
		}
		if record, waits := p.cache.Queue.Get(pod.UID); !waits || !record.Met(waitreason.KubecriAway) {
			return fwk.QueueSkip, err
		}
		return answer, err
	}
}

// afterDeletion requeues a pod that waits for what a node advertises when one that
// counted against it is gone. The ledger has activated those that wait for its slots
// already, but perhaps before the scheduler's cache knew of the deletion. The
// framework also tells of pods whose binding failed as deleted ones.
func (p *Plugin) afterDeletion(_ klog.Logger, pod *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	deleted, newPod, err := schedutil.As[*v1.Pod](oldObj, newObj)
	if err != nil {
		return fwk.Queue, err
	}
	if deleted == nil || newPod != nil {
		return fwk.QueueSkip, nil
	}
	if !p.refusedByNode(pod) {
		return fwk.QueueSkip, nil
	}
	gone := slotrequest.Amounts(deleted)
	for name := range slotrequest.Amounts(pod) {
		if gone[name] > 0 {
			return fwk.Queue, nil
		}
	}
	return fwk.QueueSkip, nil
}

// afterDeviceClassChange requeues a pod when a DeviceClass gives up the name of a resource that the pod asks
// for, and when that of the resource's Configuration gets it.
func afterDeviceClassChange(_ klog.Logger, pod *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	before, now, err := schedutil.As[*resourceapi.DeviceClass](oldObj, newObj)
	if err != nil {
		return fwk.Queue, err
	}
	from, to := extendedName(before), extendedName(now)
	if from == to {
		return fwk.QueueSkip, nil
	}
	own := to != "" && now.Name == v1alpha1.DeviceClassName(strings.TrimPrefix(string(to), assignment.ResourcePrefix))
	amounts := slotrequest.Amounts(pod)
	if amounts[from] > 0 || own && amounts[to] > 0 {
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}

func extendedName(class *resourceapi.DeviceClass) v1.ResourceName {
	if class == nil || class.Spec.ExtendedResourceName == nil {
		return ""
	}
	return v1.ResourceName(*class.Spec.ExtendedResourceName)
}
