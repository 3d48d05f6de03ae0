package configurationresources

import (
	"fmt"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// allocatedByDRA says why devices are refused that DRA gives, or is about to, and how to request them.
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
