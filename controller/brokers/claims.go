package brokers

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubeslot/kubeslot/controller/brokerspec"
	"github.com/kubeslot/kubeslot/controller/naming"
	"github.com/kubeslot/kubeslot/controller/watch"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// request is one of a broker's ResourceClaim: for the slots of a container, whose name it has.
type request struct {
	name    string
	slots   int64
	sidecar bool
}

// requestsOf returns the requests for the slots of a pod's containers, and the request of each container. An
// init container that ends before the containers start uses the request of one with as many slots, if there
// is any.
func requestsOf(p *corev1.PodSpec) (all []request, of map[string]string) {
	of = map[string]string{}
	add := func(c *corev1.Container, sidecar bool) {
		if n := brokerspec.Slots(c); n > 0 {
			all, of[c.Name] = append(all, request{c.Name, n, sidecar}), c.Name
		}
	}
	for i := range p.Containers {
		add(&p.Containers[i], false)
	}
	for i := range p.InitContainers {
		c := &p.InitContainers[i]
		n, sidecar := brokerspec.Slots(c), brokerspec.IsSidecar(c)
		same := slices.IndexFunc(all, func(r request) bool { return r.slots == n && !r.sidecar })
		if sidecar || same < 0 {
			add(c, sidecar)
		} else {
			of[c.Name] = all[same].name
		}
	}
	return all, of
}

// claimInstance has containers that request {{PLACEHOLDER}} use the pod's ResourceClaim, which is made of the
// template.
func (s *spec) claimInstance(p *corev1.PodSpec, template string) {
	for _, c := range brokerspec.Containers(p) {
		delete(c.Resources.Limits, brokerspec.Placeholder)
		delete(c.Resources.Requests, brokerspec.Placeholder)
		if name, ok := s.requestOf[c.Name]; ok {
			c.Resources.Claims = append(c.Resources.Claims,
				corev1.ResourceClaim{Name: brokerspec.PodClaim, Request: name})
		}
	}
	claim := corev1.PodResourceClaim{Name: brokerspec.PodClaim, ResourceClaimTemplateName: &template}
	p.ResourceClaims = append(p.ResourceClaims, claim)
}

// usesClaim reports whether a broker pod has its slots by a ResourceClaim.
func usesClaim(p *corev1.Pod) bool {
	ours := func(c corev1.PodResourceClaim) bool { return c.Name == brokerspec.PodClaim }
	return slices.ContainsFunc(p.Spec.ResourceClaims, ours)
}

// claimTemplate is what the ResourceClaims of the Instance's brokers are made of; nil when they need none. Its
// spec cannot be changed: another spec is a template of another name. The Instance owns all of them.
func claimTemplate(f *facts) *resourceapi.ResourceClaimTemplate {
	if len(f.spec.requests) == 0 {
		return nil
	}
	instance := &resourceapi.CELDeviceSelector{Expression: fmt.Sprintf("device.attributes['%s'].%s == '%s'",
		v1alpha1.DRADriver, v1alpha1.DRAInstance, f.instance.Name)}
	var claim resourceapi.ResourceClaimSpec
	for _, r := range f.spec.requests {
		claim.Devices.Requests = append(claim.Devices.Requests, resourceapi.DeviceRequest{Name: r.name,
			Exactly: &resourceapi.ExactDeviceRequest{
				DeviceClassName: v1alpha1.DeviceClassName(f.configuration.Name),
				Selectors:       []resourceapi.DeviceSelector{{CEL: instance}},
				Capacity: &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{
					v1alpha1.DRASlots: *resource.NewQuantity(r.slots, resource.DecimalSI)}},
			}})
	}
	text, _ := json.Marshal(claim) // always marshals
	name := naming.ClaimTemplate(f.instance.Name, naming.Hash(string(text)))
	return &resourceapi.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.instance.Namespace, Name: name,
			Labels:          naming.JobLabels(f.configuration.Name, f.instance.Name, name),
			OwnerReferences: []metav1.OwnerReference{naming.OwnedBy(instanceKind, f.instance)},
		},
		Spec: resourceapi.ResourceClaimTemplateSpec{Spec: claim,
			// kubecri gives brokers variables that it gives nobody else.
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{naming.Configuration: f.configuration.Name}}},
	}
}

// createTemplate creates the template unless the Instance has it.
func (r *Reconciler) createTemplate(ctx context.Context, f *facts, t *resourceapi.ResourceClaimTemplate) error {
	err := r.Client.Create(ctx, t)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	there, errGet := watch.Get(ctx, r.Live, client.ObjectKeyFromObject(t), &resourceapi.ResourceClaimTemplate{})
	if errGet == nil && there != nil && metav1.IsControlledBy(there, f.instance) {
		return nil
	}
	return cmp.Or(errGet, err)
}
