package services

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/kubeslot/kubeslot/controller/brokerspec"
	"github.com/kubeslot/kubeslot/controller/naming"
)

// render makes the owner's Service of the ServiceSpec as it is written in a Configuration. It selects pods by the
// owner's label, besides those that the spec does.
func render(o *owner) (*corev1.Service, error) {
	var spec corev1.ServiceSpec
	if err := brokerspec.Decode(o.field, o.raw.Raw, &spec); err != nil {
		return nil, err
	}
	of := labels.Set{naming.Controller: naming.ControllerName, o.label: o.key.Name}
	spec.Selector = labels.Merge(spec.Selector, of)
	name := naming.Service(o.key.Name)
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.key.Namespace, Name: name, Labels: labels.Merge(of, labels.Set{naming.App: name}),
			Annotations:     map[string]string{naming.SpecHash: naming.Hash(brokerspec.Canonical(o.raw.Raw))},
			OwnerReferences: []metav1.OwnerReference{o.reference},
		},
		Spec: spec,
	}, nil
}

// merge returns the Service as it should be, given what there is and what was
// rendered. What the API server allocated stays: cluster IPs and node ports. While the
// spec is the one that was applied last, only what makes the Service ours is put back:
// the other fields have defaults that the spec does not say.
func merge(existing, want *corev1.Service) *corev1.Service {
	merged := existing.DeepCopy()
	merged.Labels = labels.Merge(existing.Labels, want.Labels)
	merged.Labels[naming.App] = existing.Name
	if existing.Annotations[naming.SpecHash] == want.Annotations[naming.SpecHash] {
		merged.Spec.Selector = want.Spec.Selector
		return merged
	}
	metav1.SetMetaDataAnnotation(&merged.ObjectMeta, naming.SpecHash, want.Annotations[naming.SpecHash])
	merged.Spec = *want.Spec.DeepCopy()
	keepAllocated(&existing.Spec, &merged.Spec)
	return merged
}

// keepAllocated has a new spec keep what was allocated for the old one, where it does
// not say what it wants.
func keepAllocated(old, now *corev1.ServiceSpec) {
	if hasClusterIP(old) && hasClusterIP(now) {
		if now.ClusterIP == "" {
			now.ClusterIP = old.ClusterIP
			now.ClusterIPs = old.ClusterIPs
		}
		if now.IPFamilyPolicy == nil && len(now.IPFamilies) == 0 {
			now.IPFamilyPolicy, now.IPFamilies = old.IPFamilyPolicy, old.IPFamilies
		}
	}
	if !hasNodePorts(old) || !hasNodePorts(now) {
		return
	}
	type port struct {
		protocol corev1.Protocol
		port     int32
	}
	of := func(p *corev1.ServicePort) port {
		if p.Protocol == "" {
			return port{corev1.ProtocolTCP, p.Port}
		}
		return port{p.Protocol, p.Port}
	}
	allocated := map[port]int32{}
	for i := range old.Ports {
		allocated[of(&old.Ports[i])] = old.Ports[i].NodePort
	}
	for i := range now.Ports {
		if p := &now.Ports[i]; p.NodePort == 0 {
			p.NodePort = allocated[of(p)]
		}
	}
	if now.LoadBalancerClass == nil && now.Type == old.Type { // which cannot be changed
		now.LoadBalancerClass = old.LoadBalancerClass
	}
	if now.HealthCheckNodePort == 0 && old.ExternalTrafficPolicy == now.ExternalTrafficPolicy {
		now.HealthCheckNodePort = old.HealthCheckNodePort
	}
}

func hasClusterIP(s *corev1.ServiceSpec) bool {
	return s.Type != corev1.ServiceTypeExternalName && s.ClusterIP != corev1.ClusterIPNone
}

func hasNodePorts(s *corev1.ServiceSpec) bool {
	return s.Type == corev1.ServiceTypeNodePort || s.Type == corev1.ServiceTypeLoadBalancer
}

// mustBeMadeAnew reports whether a Service cannot be changed into another: between
// having a cluster IP, another one, and none, or to another class of load balancers.
func mustBeMadeAnew(old, now *corev1.ServiceSpec) bool {
	external := corev1.ServiceTypeExternalName
	if old.Type == external || now.Type == external {
		return false
	}
	balanced := old.Type == corev1.ServiceTypeLoadBalancer && now.Type == old.Type
	return balanced && !ptr.Equal(old.LoadBalancerClass, now.LoadBalancerClass) ||
		hasClusterIP(old) != hasClusterIP(now) ||
		hasClusterIP(now) && now.ClusterIP != "" && old.ClusterIP != "" && now.ClusterIP != old.ClusterIP
}
