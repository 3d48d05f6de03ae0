package configurationresources

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// amounts are a pod's requests for slots as the kubelet counts them when it
// admits the pod.
func amounts(pod *v1.Pod) map[v1.ResourceName]int64 {
	found := map[v1.ResourceName]int64{}
	for name, q := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
		if strings.HasPrefix(string(name), assignment.ResourcePrefix) {
			found[name] = q.Value()
		}
	}
	return found
}

// advertisable are those amounts that nodes advertise: of Configurations. Instances are
// not advertised, and the kubelet ignores extended resources that its node lacks. It
// takes no lock.
func (b *slotCache) advertisable(pod *v1.Pod) map[v1.ResourceName]int64 {
	found := amounts(pod)
	maps.DeleteFunc(found, func(name v1.ResourceName, _ int64) bool {
		_, kind := b.kinds.Load(strings.TrimPrefix(string(name), assignment.ResourcePrefix))
		return !kind
	})
	return found
}

// amount is how much of a Configuration's resource a pod requests.
type amount struct {
	name v1.ResourceName
	n    int64
	// freeAllocatable are what the snapshot's nodes have left of it.
	freeAllocatable freeAllocatable
}

func (b *slotCache) sortedAmounts(pod *v1.Pod) []amount {
	var sorted []amount
	for name, n := range b.advertisable(pod) {
		sorted = append(sorted, amount{name: name, n: n})
	}
	slices.SortFunc(sorted, func(a, b amount) int { return cmp.Compare(a.name, b.name) })
	return sorted
}

// unadvertised reports why the kubelet would refuse the pod, although the ledger
// has slots for it: a device is in a DeviceSlice a moment before its node advertises
// it, and pods that did not come through this scheduler count there too.
// (kubelet lifecycle/predicate.go)
func unadvertised(want []amount, node fwk.NodeInfo, place int) *fwk.Status {
	generation := node.GetGeneration()
	for i := range want {
		w := &want[i]
		if place != ledger.NotInSnapshot && w.freeAllocatable.enough(place, generation, w.n) {
			continue
		}
		total, used := node.GetAllocatable().GetScalarResources()[w.name], node.GetRequested().GetScalarResources()[w.name]
		if place != ledger.NotInSnapshot {
			w.freeAllocatable.remember(place, generation, total-used)
		}
		if used+w.n <= total {
			continue
		}
		code := fwk.Unschedulable // pods that use it may be preempted, by DefaultPreemption
		if w.n > total {
			code = fwk.UnschedulableAndUnresolvable
		}
		return fwk.NewStatus(code, fmt.Sprintf("node(s) not advertising enough %s: %d of %d in use, %d requested", w.name, used, total, w.n))
	}
	return nil
}

// refusedByNode remembers that a node had slots for a waiting pod and did not advertise
// enough of them: only such a pod is helped by what changes there.
func (b *slotCache) refusedByNode(pod *v1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, waits := b.queue.Get(pod.UID); waits { // it has not gone meanwhile
		b.refused.Store(pod.UID, true)
	}
}

// afterAdvertisement requeues a pod when a node begins to advertise what the pod asks
// for, and when one advertises more of it and the pod waits for that. The hint runs
// under the queue's lock and must not take the slot cache's.
func (b *slotCache) afterAdvertisement(_ klog.Logger, pod *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
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
	_, refused := b.refused.Load(pod.UID)
	helps := false
	want := b.advertisable(pod)
	if v1alpha1.ChoosesSlots(newNode) {
		want = amounts(pod) // Instances are advertised there too
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

// afterDeletion requeues a pod that waits for what a node advertises when one that
// counted against it is gone. The ledger has activated those that wait for its slots
// already, but perhaps before the scheduler's cache knew of the deletion. The
// framework also tells of pods whose binding failed as deleted ones.
func (b *slotCache) afterDeletion(_ klog.Logger, pod *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	deleted, newPod, err := schedutil.As[*v1.Pod](oldObj, newObj)
	if err != nil {
		return fwk.Queue, err
	}
	if deleted == nil || newPod != nil {
		return fwk.QueueSkip, nil
	}
	if _, refused := b.refused.Load(pod.UID); !refused {
		return fwk.QueueSkip, nil
	}
	gone := amounts(deleted)
	for name := range amounts(pod) {
		if gone[name] > 0 {
			return fwk.Queue, nil
		}
	}
	return fwk.QueueSkip, nil
}
