package configurationresources

import (
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotrequest"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// left is in the cycle state of a pod of whose request something is left to DynamicResources.
type left struct{}

// Clone implements fwk.StateData.
func (left) Clone() fwk.StateData { return left{} }

const leftKey = Name + "/left"

// takenUp is an error when DynamicResources makes no claim for what is left to it: its PreFilter saw no DeviceClass,
// and ours did. Bound so, the pod would get a device from nobody.
func takenUp(state fwk.CycleState) error {
	if _, err := state.Read(leftKey); err == nil && state.GetSkipFilterPlugins().Has(names.DynamicResources) {
		return errors.New(
			"DRA has no ResourceClaim for the pod, whose DeviceClass came or went while the pod was tried")
	}
	return nil
}

// withoutDRA is the request without what is left to upstream's DynamicResources: a resource of a Configuration
// with allocator DRA whose own DeviceClass has the resource's name as its extendedResourceName.
//
// It refuses a pod when another DeviceClass has the name of a resource that it asks for: upstream's
// DynamicResources would give the pod a device of that class, and this plugin a slot.
//
// It asks what DynamicResources asks, so that the two never differ: nothing with the
// feature DRAExtendedResource off, or without the API resource.k8s.io.
func (p *Plugin) withoutDRA(req *ledger.Request) (*ledger.Request, *fwk.Status) {
	dra := p.handle.SharedDRAManager()
	if dra == nil {
		return req, nil
	}
	left := map[string]bool{}
	for _, resource := range slotrequest.Resources(req) {
		name := assignment.ResourcePrefix + resource
		class := dra.DeviceClassResolver().GetDeviceClass(v1.ResourceName(name))
		if class == nil {
			continue
		}
		c, own := p.cache.Configuration(resource), class.Name == v1alpha1.DeviceClassName(resource)
		if own && c != nil && !c.GivesSlots() {
			if c.Name == resource && c.Spec.IsDRA() {
				left[resource] = true
			}
			continue // the controller removes it once slots are given again
		}
		reason := fmt.Sprintf("%s is also the extendedResourceName of DeviceClass %s, so that DRA would give a device as well: change that name in the DeviceClass, or delete it",
			name, class.Name)
		if c != nil && !own {
			p.handle.EventRecorder().Eventf(&v1.ObjectReference{APIVersion: akriv0.SchemeGroupVersion.String(), Kind: "Configuration",
				Namespace: c.Namespace, Name: c.Name, UID: c.UID}, nil, v1.EventTypeWarning, "ResourceNameTaken", "Scheduling", "%s", reason)
		}
		return nil, unresolvable(reason)
	}
	if len(left) == 0 {
		return req, nil
	}
	rest := *req
	rest.Containers = slices.Clone(req.Containers)
	for i := range rest.Containers {
		c := &rest.Containers[i]
		c.Resources = slices.DeleteFunc(slices.Clone(c.Resources),
			func(r ledger.ResourceRequest) bool { return left[r.Name] })
	}
	return &rest, nil
}
