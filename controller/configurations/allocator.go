package configurations

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// Reasons of the condition AllocatorReady.
const (
	allocatorGives = "AllocatorGivesAll"
	instancesHeld  = "InstancesHeld"
	handOverWaits  = "WaitsForScheduler"
)

// allocatorCondition says how far a change of spec.allocator is.
func allocatorCondition(c *akriv0.Configuration) metav1.Condition {
	wanted, now, held := c.Allocators()
	condition := metav1.Condition{Type: akriv0.ConditionAllocatorReady, Status: metav1.ConditionFalse}
	switch {
	case now != wanted:
		condition.Reason = handOverWaits
		condition.Message = fmt.Sprintf("%s gives the devices, until kube-scheduler of Kubeslot has noted that "+
			"spec.allocator is %s now: it has to run, or the controller with --without-scheduler", now, wanted)
	case held > 0:
		condition.Reason = instancesHeld
		condition.Message = fmt.Sprintf("%s gives the devices, but for %s that pods hold from before: these change "+
			"over when the pods end", now, count(held, "Instance"))
	default:
		condition.Status, condition.Reason = metav1.ConditionTrue, allocatorGives
		condition.Message = fmt.Sprintf("%s gives all devices", now)
	}
	return condition
}

// notPublished says what keeps a Configuration's devices from being published for DRA.
func (r *Reconciler) notPublished(c *akriv0.Configuration) []string {
	if of := r.Inventory.InForce(c.Name); c.GivesSlots() || of == nil || of.Namespace != c.Namespace {
		return nil
	}
	var all []string
	for _, problem := range r.DRA {
		if text := problem(c.Name); text != "" {
			all = append(all, text)
		}
	}
	return all
}
