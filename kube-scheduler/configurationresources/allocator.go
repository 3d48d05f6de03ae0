package configurationresources

import (
	"fmt"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotrequest"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// givesSlots refuses a request of devices that DRA gives, or is about to, and says how to request them.
func (p *Plugin) givesSlots(req *ledger.Request) *fwk.Status {
	for _, resource := range slotrequest.Resources(req) {
		if c := p.cache.Configuration(resource); c != nil && !c.GivesSlots() {
			return unresolvable(allocatedByDRA(resource, c))
		}
	}
	return nil
}

func allocatedByDRA(resource string, c *akriv0.Configuration) string {
	name := assignment.ResourcePrefix + resource
	wanted, current, held := c.Allocators()
	if wanted != akriv0.AllocatorDRA {
		return fmt.Sprintf("%s is given by DRA until Configuration %s/%s has changed to allocator Slots: the "+
			"pod is tried again then", name, c.Namespace, c.Name)
	}
	text := fmt.Sprintf("%s is given by DRA: Configuration %s/%s has spec.allocator DRA: request it with a "+
		"ResourceClaim of DeviceClass %s", name, c.Namespace, c.Name, v1alpha1.DeviceClassName(c.Name))
	switch {
	case current != wanted:
		text += "; the change from Slots has just begun"
	case held > 0:
		text += fmt.Sprintf("; DRA waits for %d Instances whose slots are in use", held)
	}
	return text
}
