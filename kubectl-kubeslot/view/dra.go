package view

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// Ours reports whether the ResourceClaim asks for devices of Kubeslot, or has some.
func Ours(c *resourceapi.ResourceClaim) bool {
	return len(classesOf(c)) > 0 || len(v1alpha1.DRAResults(c)) > 0
}

// classesOf are the requests for our DeviceClasses, in the order of the ResourceClaim; of one with alternatives
// the first of ours.
func classesOf(c *resourceapi.ResourceClaim) []ClaimRequest {
	var all []ClaimRequest
	for _, r := range c.Spec.Devices.Requests {
		var choices []ClaimRequest
		if r.Exactly != nil {
			choices = []ClaimRequest{{r.Exactly.DeviceClassName, max(1, r.Exactly.Count)}}
		}
		for _, s := range r.FirstAvailable {
			choices = append(choices, ClaimRequest{s.DeviceClassName, max(1, s.Count)})
		}
		if at := slices.IndexFunc(choices, func(r ClaimRequest) bool { return r.configuration() != "" }); at >= 0 {
			all = append(all, choices[at])
		}
	}
	return all
}

// slotsOfResult is how many slots a result has of its device.
func slotsOfResult(r *resourceapi.DeviceRequestAllocationResult) int64 {
	consumed := r.ConsumedCapacity[v1alpha1.DRASlots]
	return max(1, consumed.Value())
}

// resourceClaimOf is the ResourceClaim that has the slot; nil where none has, it may not be read, or it is gone.
func (v *View) resourceClaimOf(c *v1alpha1.SlotClaim) *resourceapi.ResourceClaim {
	of := c.Spec.ResourceClaim
	if of == nil {
		return nil
	}
	if claim := v.resourceClaims[of.Namespace+"/"+of.Name]; claim != nil && claim.UID == of.UID {
		return claim
	}
	return nil
}

// seesResourceClaimOf reports whether a ResourceClaim has the slot, and would be seen if it is there.
func (v *View) seesResourceClaimOf(c *v1alpha1.SlotClaim) bool {
	of, in := c.Spec.ResourceClaim, v.objects.ResourceClaimsOf
	return of != nil && v.objects.ResourceClaims != nil && (in == "" || in == of.Namespace)
}

// podClaim is a ResourceClaim of a pod by its name there; "" for the one that the scheduler made for extended
// resources.
type podClaim struct {
	*resourceapi.ResourceClaim
	inPod string
}

// podClaims are the pod's ResourceClaims of Kubeslot's devices. Those that do not exist yet, or may not be read,
// are not among them.
func (v *View) podClaims(pod *corev1.Pod) (claims []podClaim) {
	if len(v.resourceClaims) == 0 {
		return nil
	}
	add := func(name, object string) {
		if c := v.resourceClaims[pod.Namespace+"/"+object]; c != nil && Ours(c) {
			claims = append(claims, podClaim{c, name})
		}
	}
	for i := range pod.Spec.ResourceClaims {
		r := &pod.Spec.ResourceClaims[i]
		if object, _, err := resourceclaim.Name(pod, r); err == nil && object != nil {
			add(r.Name, *object)
		}
	}
	if s := pod.Status.ExtendedResourceClaimStatus; s != nil {
		add("", s.ResourceClaimName)
	}
	return claims
}

// allocator is who gives the Configuration's devices, and how far a change has come.
func allocator(c *akriv0.Configuration) (akriv0.Allocator, *AllocatorChange) {
	to, current, held := c.Allocators()
	switch {
	case current != to:
		return to, &AllocatorChange{From: current, To: to, Begun: false}
	case held > 0:
		from := akriv0.AllocatorSlots
		if to == from {
			from = akriv0.AllocatorDRA
		}
		return to, &AllocatorChange{From: from, To: to, Begun: true, Held: int32(held)}
	}
	return to, nil
}

// dra is the Configuration of a resource, named without prefix, whose devices DRA gives; nil for none. With
// extended, DRA gives them to who requests the resource, too.
func (v *View) dra(resource string) (c *akriv0.Configuration, extended bool) {
	c = v.configurations[v.configurationOf(resource)]
	if c == nil || c.GivesSlots() {
		return nil, false
	}
	if v.objects.DeviceClasses == nil { // who may not list them is spared a wrong alarm
		return c, resource == c.Name && c.Spec.Unique() == ""
	}
	class := v.deviceClass(c.Name)
	if class == nil || class.Spec.ExtendedResourceName == nil {
		return c, false
	}
	return c, *class.Spec.ExtendedResourceName == assignment.ResourcePrefix+resource
}

// deviceClass is that of the Configuration's name, nil for none.
func (v *View) deviceClass(configuration string) *resourceapi.DeviceClass {
	return v.deviceClasses[v1alpha1.DeviceClassName(configuration)]
}

// servedByDRA reports whether DRA serves requests for the resource, which is named without prefix.
func (v *View) servedByDRA(resource string) bool {
	_, extended := v.dra(resource)
	return extended
}

// slotRequests are the pod's requests but for those that DRA serves as extended resources.
func (v *View) slotRequests(pod *corev1.Pod) []request {
	return slices.DeleteFunc(requests(pod), func(r request) bool { return v.servedByDRA(r.resource) })
}

// userNames are the pods as namespace/name.
func userNames(users []v1alpha1.PodReference) []string {
	var names []string
	for _, u := range users {
		names = append(names, u.Namespace+"/"+u.Name)
	}
	return names
}

// claimHolder is who has a slot of a ResourceClaim, in words.
func (s *Slot) claimHolder() string {
	_, name, _ := strings.Cut(s.ResourceClaim, "/")
	if len(s.Users) == 0 {
		return "claim " + s.ResourceClaim
	}
	return some(s.Users, 2) + " (claim " + name + ")"
}
