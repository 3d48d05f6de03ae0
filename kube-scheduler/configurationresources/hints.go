package configurationresources

import (
	"context"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/kube-scheduler/binding"
	"github.com/kubeslot/kubeslot/kube-scheduler/informer"
	"github.com/kubeslot/kubeslot/kube-scheduler/kubecripods"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotrequest"
	"github.com/kubeslot/kubeslot/kube-scheduler/waitreason"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// EventsToRegister registers the events that matter apart from the ledger: the
// author corrected the annotation for which the pod was refused, kubecri has become Ready
// on a node or is to be no pod there any more, a node advertises more, or other amounts, a pod no
// longer counts against what a node advertises, or a DeviceClass has given up the name of a resource of
// ours, or got it. All others the slot cache answers by activating the pods that they help.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	awaitsKubecri := func(pod *v1.Pod) bool { return p.met(pod, waitreason.KubecriAway) }
	return append([]fwk.ClusterEventWithHint{
		informer.On(fwk.Pod, fwk.Update, binding.AfterInputChange),
		informer.On(fwk.Node, fwk.Add|fwk.UpdateNodeAllocatable, informer.Hint(p.afterAdvertisement)),
		informer.On(fwk.Node, fwk.UpdateNodeLabel, informer.Hint(p.afterModeChange)),
		informer.On(fwk.Pod, fwk.Delete, informer.Hint(p.afterDeletion)),
		// With the DRA feature off, the framework watches none.
		informer.On(fwk.DeviceClass, fwk.Add|fwk.Update|fwk.Delete, informer.Hint(afterDeviceClassChange)),
	}, kubecripods.Events(awaitsKubecri)...), nil
}

// The hints run under the lock of the framework's queue, and must not take the slot cache's.

// met reports whether the pod waits and has met the reason in its last cycle: NotAdvertised if a node had
// slots for it that the node did not advertise. Only such a pod is helped by what changes there.
func (p *Plugin) met(pod *v1.Pod, reason waitreason.Reason) bool {
	record, waits := p.cache.Queue.Get(pod.UID)
	return waits && record.Met(reason)
}

// afterAdvertisement requeues a pod when a node begins to advertise what the pod asks
// for, and when one advertises more of it and the pod waits for that.
func (p *Plugin) afterAdvertisement(pod *v1.Pod, before, now *v1.Node) (helps bool) {
	if now == nil {
		return false
	}
	var advertised v1.ResourceList
	if before != nil {
		advertised = before.Status.Allocatable
	}
	refused, want := p.met(pod, waitreason.NotAdvertised), p.cache.Advertisable(pod)
	if v1alpha1.ChoosesSlots(now) {
		want = slotrequest.Amounts(pod) // Instances are advertised there too
	}
	for name, n := range want {
		had, has := advertised[name], now.Status.Allocatable[name]
		if has.Value() < n {
			return false
		}
		helps = helps || has.Cmp(had) > 0 && (refused || had.IsZero())
	}
	return helps
}

// afterModeChange requeues a pod that waits for what a node advertises when one begins or ends to choose
// slots itself: then it has to advertise other amounts.
func (p *Plugin) afterModeChange(pod *v1.Pod, before, now *v1.Node) bool {
	return before != nil && now != nil && v1alpha1.ChoosesSlots(before) != v1alpha1.ChoosesSlots(now) &&
		p.met(pod, waitreason.NotAdvertised)
}

// afterDeletion requeues a pod that waits for what a node advertises when one that
// counted against it is gone. The ledger has activated those that wait for its slots
// already, but perhaps before the scheduler's cache knew of the deletion. The
// framework also tells of pods whose binding failed as deleted ones.
func (p *Plugin) afterDeletion(pod, deleted, now *v1.Pod) bool {
	if deleted == nil || now != nil || !p.met(pod, waitreason.NotAdvertised) {
		return false
	}
	gone := slotrequest.Amounts(deleted)
	for name := range slotrequest.Amounts(pod) {
		if gone[name] > 0 {
			return true
		}
	}
	return false
}

// afterDeviceClassChange requeues a pod when a DeviceClass gives up the name of a resource that the pod asks
// for, and when that of the resource's Configuration gets it.
func afterDeviceClassChange(pod *v1.Pod, before, now *resourceapi.DeviceClass) bool {
	from, to := extendedName(before), extendedName(now)
	if from == to {
		return false
	}
	own := to != "" && now.Name == v1alpha1.DeviceClassName(strings.TrimPrefix(string(to), assignment.ResourcePrefix))
	amounts := slotrequest.Amounts(pod)
	return amounts[from] > 0 || own && amounts[to] > 0
}

func extendedName(class *resourceapi.DeviceClass) v1.ResourceName {
	if class == nil || class.Spec.ExtendedResourceName == nil {
		return ""
	}
	return v1.ResourceName(*class.Spec.ExtendedResourceName)
}
