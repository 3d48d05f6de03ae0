package claims

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/slot"
)

// assignedHere is our index of the pod informer: pods by the Instances of which
// the scheduler has assigned them slots.
const assignedHere = "kubecri/claims/assigned"

// followPods registers with the informer of this node's pods. A scheduler with
// claimMode Scheduler claims a pod's slots before it binds the pod, and so before
// there is a container: such a claim is kept as long as the pod is here, and
// released with it if no container ever came.
func (c *Claims) followPods(pods cache.SharedIndexInformer) error {
	err := pods.AddIndexers(cache.Indexers{assignedHere: func(obj any) ([]string, error) {
		pod, ok := obj.(*corev1.Pod)
		if !ok {
			return nil, nil
		}
		return instancesOf(assigned(pod, c.config.Node)), nil
	}})
	if err != nil {
		return err
	}
	_, err = pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, obj any) {
			if pod, ok := obj.(*corev1.Pod); ok && ended(pod) {
				c.podGone(pod)
			}
		},
		DeleteFunc: func(obj any) {
			if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			if pod, ok := obj.(*corev1.Pod); ok {
				c.podGone(pod)
			}
		},
	})
	return err
}

// podGone frees the slots of a pod that has gone without a container for them. A
// slot that is another pod's by now is left alone: the news may be old.
func (c *Claims) podGone(pod *corev1.Pod) {
	var slots []slot.Name
	for name := range slotsAssigned(pod, c.config.Node) {
		if len(c.due(name.Instance)[name]) == 0 {
			slots = append(slots, name)
		}
	}
	c.enqueue(c.book.freeUnused(slots))
}

// due returns how the pods here are to hold the Instance's slots, whether or not
// their containers exist yet.
func (c *Claims) due(instance string) map[slot.Name][]slot.Usage {
	objs, err := c.config.Pods.Informer().GetIndexer().ByIndex(assignedHere, instance)
	if err != nil { // only for an index that does not exist
		panic(err)
	}
	due := map[slot.Name][]slot.Usage{}
	for _, obj := range objs {
		for name, usage := range assigned(obj.(*corev1.Pod), c.config.Node) {
			if name.Instance == instance {
				due[name] = append(due[name], usage)
			}
		}
	}
	return due
}

// assigned returns the slots that a pod is to use here, none once it has ended.
func assigned(pod *corev1.Pod, node string) map[slot.Name]slot.Usage {
	if ended(pod) {
		return nil
	}
	return slotsAssigned(pod, node)
}

// slotsAssigned returns the slots that the scheduler assigned to the pod on the
// node. What its containers are not created with is passed over.
func slotsAssigned(pod *corev1.Pod, node string) map[slot.Name]slot.Usage {
	if pod.Spec.NodeName != node {
		return nil
	}
	held, _ := assignment.Held(pod)
	slots := map[slot.Name]slot.Usage{}
	for _, grants := range held {
		for _, g := range grants {
			slots[g.Slot] = usageOf(g, string(pod.UID), node)
		}
	}
	return slots
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
