package command

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// allocator has the Configuration say who gives its devices, and the scheduler how far that is.
func allocator(a args, c *akriv0.Configuration) {
	c.Spec.Allocator = akriv0.Allocator(a.get("allocator", ""))
	if current := a.get("current", ""); current != "" {
		held, _ := strconv.Atoi(a.get("held", "0"))
		c.Status.Allocator = &akriv0.AllocatorStatus{Current: akriv0.Allocator(current), HeldCount: int32(held)}
	}
}

// resourceClaim is one for devices of a Configuration, allocated with device=.
func (s *story) resourceClaim(a args, ns, name string) {
	count, _ := strconv.Atoi(a.get("count", "1"))
	c := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: claimUID(ns, name)},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
			Name: "r", Exactly: &resourceapi.ExactDeviceRequest{
				DeviceClassName: v1alpha1.DeviceClassName(a.get("of", "cam")), Count: int64(count)}}}}}}
	for _, device := range a.all("device") {
		if c.Status.Allocation == nil {
			c.Status.Allocation = &resourceapi.AllocationResult{}
		}
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results,
			resourceapi.DeviceRequestAllocationResult{
				Request: "r", Driver: v1alpha1.DRADriver, Device: s.instances[device]})
	}
	for _, pod := range a.all("pods") {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{
			Resource: "pods", Name: pod, UID: types.UID(uid(ns, pod))})
	}
	s.set("resourceclaim/"+ns+"/"+name, c)
}

func claimUID(ns, name string) types.UID { return types.UID("claim-" + ns + "-" + name) }

// deviceClass is that of a Configuration, or has its name.
func (s *story) deviceClass(a args) {
	of := a.get("of", "cam")
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.DeviceClassName(of),
		Labels: map[string]string{v1alpha1.ConfigurationLabel: of}}}
	if a.has("foreign") {
		class.Labels = nil
	}
	if a.has("extended") {
		name := "akri.sh/" + of
		class.Spec.ExtendedResourceName = &name
	}
	s.set("deviceclass/"+of, class)
}

// heldByClaim has a ResourceClaim hold the slot.
func heldByClaim(c *v1alpha1.SlotClaim, ns, name string) {
	c.Spec.Pod, c.Spec.Container, c.Spec.Holder = nil, "", v1alpha1.DRAHolder(claimUID(ns, name), nil)
	c.Spec.ResourceClaim = &v1alpha1.ResourceClaimReference{Namespace: ns, Name: name, UID: claimUID(ns, name)}
}

// claims has the pod use ResourceClaims: (name in the pod:object) or, with template=, what was made of one.
func claims(a args, p *corev1.Pod) {
	for _, pair := range a.all("claims") {
		name, object, _ := strings.Cut(pair, ":")
		if a.has("template") {
			template := "template"
			p.Spec.ResourceClaims = append(p.Spec.ResourceClaims,
				corev1.PodResourceClaim{Name: name, ResourceClaimTemplateName: &template})
			p.Status.ResourceClaimStatuses = append(p.Status.ResourceClaimStatuses,
				corev1.PodResourceClaimStatus{Name: name, ResourceClaimName: &object})
			continue
		}
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims,
			corev1.PodResourceClaim{Name: name, ResourceClaimName: &object})
	}
	if object := a.get("extendedclaim", ""); object != "" {
		p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: object}
	}
}
