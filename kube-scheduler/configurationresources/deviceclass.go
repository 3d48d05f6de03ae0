package configurationresources

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotrequest"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// unambiguous refuses a pod when a DRA DeviceClass has the name of a resource that
// it asks for as its extendedResourceName: upstream's DynamicResources would give
// the pod a device of that class, and this plugin a slot. See withoutDRA for the one DeviceClass that may.
//
// It asks what DynamicResources asks, so that the two never differ: nothing with the
// feature DRAExtendedResource off, or without the API resource.k8s.io.
func (p *Plugin) unambiguous(req *ledger.Request) *fwk.Status {
	dra := p.handle.SharedDRAManager()
	if dra == nil {
		return nil
	}
	for _, resource := range slotrequest.Resources(req) {
		name := assignment.ResourcePrefix + resource
		class := dra.DeviceClassResolver().GetDeviceClass(v1.ResourceName(name))
		if class == nil {
			continue
		}
		c, own := p.cache.Configuration(resource), class.Name == v1alpha1.DeviceClassName(resource)
		if own && c != nil && !c.GivesSlots() {
			continue // the controller removes it once slots are given again
		}
		reason := fmt.Sprintf("%s is also the extendedResourceName of DeviceClass %s, so that DRA would give a device as well: change that name in the DeviceClass, or delete it",
			name, class.Name)
		if c != nil && !own {
			p.handle.EventRecorder().Eventf(&v1.ObjectReference{APIVersion: akriv0.SchemeGroupVersion.String(), Kind: "Configuration",
				Namespace: c.Namespace, Name: c.Name, UID: c.UID}, nil, v1.EventTypeWarning, "ResourceNameTaken", "Scheduling", "%s", reason)
		}
		return unresolvable(reason)
	}
	return nil
}
