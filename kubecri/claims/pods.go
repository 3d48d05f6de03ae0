package claims

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubeslot/kubeslot/kubecri/informers"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// assignedHere is our index of the pod informer: pods by the slots that the scheduler
// has assigned to them, and their level. An annotation may be long, and is not read again.
const assignedHere = "kubecri/claims/assigned"

func assignedKey(name slot.Name, level v1alpha1.Level) string {
	return string(level) + "/" + name.String()
}

// followPods registers with the informer of this node's pods. A scheduler with
// claimMode Scheduler claims a pod's slots before it binds the pod, and so before
// there is a container: such a claim is kept as long as the pod is here, and
// released with it if no container ever came.
func (c *Claims) followPods(pods cache.SharedIndexInformer) error {
	err := pods.AddIndexers(cache.Indexers{assignedHere: func(obj any) ([]string, error) {
		pod, ok := obj.(*corev1.Pod)
		if !ok || informers.PodEnded(pod) {
			return nil, nil
		}
		var keys []string
		for name, use := range slotsAssigned(pod, c.config.Node) {
			keys = append(keys, assignedKey(name, use.Level))
		}
		return keys, nil
	}})
	if err != nil {
		return err
	}
	_, err = pods.AddEventHandler(informers.EachPodOver(c.podGone))
	return err
}

// podGone frees the slots of a pod that has gone without a container for them. What other pods claim is left alone:
// the news may be old.
func (c *Claims) podGone(pod *corev1.Pod) {
	slots := slices.Collect(maps.Keys(slotsAssigned(pod, c.config.Node)))
	c.enqueue(c.containers.freeUnused(string(pod.UID), slots))
}

// entitlements returns how the pods here are to hold the slot, whether or not their
// containers exist yet.
func (c *Claims) entitlements(name slot.Name) []Use {
	var entitled []Use
	for _, level := range []v1alpha1.Level{v1alpha1.ConfigurationLevel, v1alpha1.InstanceLevel} {
		objs, err := c.config.Pods.Informer().GetIndexer().ByIndex(assignedHere, assignedKey(name, level))
		if err != nil { // only for an index that does not exist
			panic(err)
		}
		for _, obj := range objs {
			entitled = append(entitled, Use{level, string(obj.(*corev1.Pod).UID)})
		}
	}
	return entitled
}

// slotsAssigned returns the slots that the scheduler assigned to the pod on the
// node. What its containers are not created with is passed over.
func slotsAssigned(pod *corev1.Pod, node string) map[slot.Name]Use {
	if pod.Spec.NodeName != node {
		return nil
	}
	held, _ := assignment.Held(pod)
	slots := map[slot.Name]Use{}
	for _, grants := range held {
		for _, g := range grants {
			slots[g.Slot] = Use{levelOf(g), string(pod.UID)}
		}
	}
	return slots
}
