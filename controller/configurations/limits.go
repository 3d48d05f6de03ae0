package configurations

import (
	"fmt"

	"github.com/kubeslot/kubeslot/controller/limits"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// overInstanceLimit says how many devices have no Instance.
func overInstanceLimit(c *akriv0.Configuration, s limits.Sum) string {
	others := "the others have no Instance and no broker, and pods get their slots all the same"
	if !c.GivesSlots() {
		others = "the others have no Instance and no broker, and no claim gets them"
	}
	return fmt.Sprintf("%s, %s: spec.maxInstances is %d; %s. Raise it, or have the discovery handler find fewer",
		count(s.Used+s.Withheld, "device"), count(s.Used, "Instance"), c.Spec.InstancesLimit(), others)
}

// overBrokerLimit says how many broker pods are not made, and which of the limits is the
// reason.
func overBrokerLimit(c *akriv0.Configuration, s limits.Sum) string {
	perNode, total := c.Spec.BrokersLimit()
	message := fmt.Sprintf("%d of %d broker pods: ", s.Used, s.Used+s.Withheld)
	switch {
	case s.TotalReached:
		message += fmt.Sprintf("spec.brokerLimits.total is %d", total)
	case s.FullNodes == 0:
		message += fmt.Sprintf("spec.brokerLimits.perNode is %d, and there is no room for a Job on %s that can reach its device", perNode, count(s.NodesWithoutRoom, "node"))
	default:
		message += fmt.Sprintf("spec.brokerLimits.perNode is %d, and %s have so many or more, the first is %s", perNode, count(s.FullNodes, "node"), s.FirstFull)
	}
	return message + "; the others wait. Raise it, or have the discovery handler find fewer devices"
}
