package configurationresources

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/kubeslot/kubeslot/types/assignment"
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

// unadvertised reports why the kubelet would refuse the pod, although the ledger
// has slots for it: a device is an Instance a moment before its node advertises
// it. A resource that the node does not have at all the kubelet does not count.
// (kubelet lifecycle/predicate.go, removeMissingExtendedResources)
func unadvertised(want map[v1.ResourceName]int64, node fwk.NodeInfo) *fwk.Status {
	allocatable := node.GetAllocatable().GetScalarResources()
	for name, n := range want {
		total, advertised := allocatable[name]
		if used := node.GetRequested().GetScalarResources()[name]; advertised && used+n > total {
			return unresolvable(fmt.Sprintf("node(s) not advertising enough %s yet: %d of %d in use, %d requested", name, used, total, n))
		}
	}
	return nil
}

// afterAdvertisement requeues a pod when a node advertises other amounts of slots.
func afterAdvertisement(_ klog.Logger, pod *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	oldNode, newNode, err := schedutil.As[*v1.Node](oldObj, newObj)
	if err != nil {
		return fwk.Queue, err
	}
	if newNode == nil {
		return fwk.QueueSkip, nil
	}
	for name, n := range amounts(pod) {
		now, advertised := newNode.Status.Allocatable[name]
		if oldNode == nil {
			continue // a node is no use before its kubecri has found devices there
		}
		before, had := oldNode.Status.Allocatable[name]
		if (had && !advertised) || (advertised && had && now.Cmp(before) > 0 && now.Value() >= n) {
			return fwk.Queue, nil
		}
	}
	return fwk.QueueSkip, nil
}
