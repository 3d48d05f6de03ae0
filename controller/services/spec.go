package services

import (
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"github.com/kubeslot/kubeslot/controller/naming"
)

// render makes a Service of a ServiceSpec as it is written in a Configuration. label
// and of say which pods it selects, besides those that the spec does.
func render(field string, raw *runtime.RawExtension, namespace, of, label string, owner metav1.OwnerReference) (*corev1.Service, error) {
	var spec corev1.ServiceSpec
	unknown, err := kjson.UnmarshalStrict(raw.Raw, &spec)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("%s: %w", field, errors.Join(unknown...))
	}
	if spec.Selector == nil {
		spec.Selector = map[string]string{}
	}
	spec.Selector[naming.Controller] = naming.ControllerName
	spec.Selector[label] = of
	name := naming.Service(of)
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels:          map[string]string{naming.App: name, naming.Controller: naming.ControllerName, label: of},
			Annotations:     map[string]string{naming.SpecHash: hash(raw.Raw)},
			OwnerReferences: []metav1.OwnerReference{owner},
		},
		Spec: spec,
	}, nil
}

// hash is of what a ServiceSpec means, not of how it is written.
func hash(raw []byte) string {
	var v any
	if json.Unmarshal(raw, &v) == nil {
		if sorted, err := json.Marshal(v); err == nil {
			raw = sorted
		}
	}
	return naming.Hash(string(raw))
}

// merge returns the Service as it should be, given what there is and what was
// rendered. What the API server allocated stays: cluster IPs and node ports. While the
// spec is the one that was applied last, only what makes the Service ours is put back:
// the other fields have defaults that the spec does not say.
func merge(existing, want *corev1.Service) *corev1.Service {
	merged := existing.DeepCopy()
	if merged.Labels == nil {
		merged.Labels = map[string]string{}
	}
	if merged.Annotations == nil {
		merged.Annotations = map[string]string{}
	}
	for key, value := range want.Labels {
		merged.Labels[key] = value
	}
	merged.Labels[naming.App] = existing.Name
	if existing.Annotations[naming.SpecHash] == want.Annotations[naming.SpecHash] {
		merged.Spec.Selector = want.Spec.Selector
		return merged
	}
	merged.Annotations[naming.SpecHash] = want.Annotations[naming.SpecHash]
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
// having a cluster IP, another one, and none.
func mustBeMadeAnew(old, now *corev1.ServiceSpec) bool {
	external := corev1.ServiceTypeExternalName
	if old.Type == external || now.Type == external {
		return false
	}
	return hasClusterIP(old) != hasClusterIP(now) ||
		hasClusterIP(now) && now.ClusterIP != "" && old.ClusterIP != "" && now.ClusterIP != old.ClusterIP
}
