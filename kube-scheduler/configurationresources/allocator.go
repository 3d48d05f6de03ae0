package configurationresources

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotrequest"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// withoutDRA is the request without what is left to upstream's DynamicResources: a resource of a Configuration
// with allocator DRA whose DeviceClass has the resource's name.
func (p *Plugin) withoutDRA(req *ledger.Request) *ledger.Request {
	dra := p.handle.SharedDRAManager()
	if dra == nil {
		return req
	}
	left := map[string]bool{}
	for _, resource := range slotrequest.Resources(req) {
		class := dra.DeviceClassResolver().GetDeviceClass(v1.ResourceName(assignment.ResourcePrefix + resource))
		if class == nil || class.Name != v1alpha1.DeviceClassName(resource) {
			continue
		}
		if c := p.cache.Configuration(resource); c != nil && c.Name == resource && c.Spec.IsDRA() {
			left[resource] = true
		}
	}
	if len(left) == 0 {
		return req
	}
	rest := *req
	rest.Containers = slices.Clone(req.Containers)
	for i := range rest.Containers {
		c := &rest.Containers[i]
		c.Resources = slices.DeleteFunc(slices.Clone(c.Resources),
			func(r ledger.ResourceRequest) bool { return left[r.Name] })
	}
	return &rest
}

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
	if !c.Spec.IsDRA() {
		return fmt.Sprintf("%s is given by DRA until Configuration %s/%s has changed to allocator Slots: the "+
			"pod is tried again then", name, c.Namespace, c.Name)
	}
	text := fmt.Sprintf("%s is given by DRA: Configuration %s/%s has spec.allocator DRA: request it with a "+
		"ResourceClaim of DeviceClass %s", name, c.Namespace, c.Name, v1alpha1.DeviceClassName(c.Name))
	switch status := c.Status.Allocator; {
	case status == nil || status.Current != akriv0.AllocatorDRA:
		text += "; the change from Slots has just begun"
	case status.HeldCount > 0:
		text += fmt.Sprintf("; DRA waits for %d Instances whose slots are in use", status.HeldCount)
	}
	return text
}
