package dra

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

const (
	// allowedNamespaces are the names of namespaces that may use the DeviceClass, separated by commas, the
	// Configuration's own first. Without it all may.
	//
	// Annotation of DeviceClasses. Written by the controller. Read by the policy kubeslot-allowed-namespaces.
	allowedNamespaces = "kubeslot.io/allowed-namespaces"

	// allowedNamespaceLabels is a label selector of further ones: requirements separated by semicolons, each
	// of a key, an operator of labels.Requirement and, separated by commas, its values. An empty one selects
	// all, as an empty selector does.
	//
	// Annotation of DeviceClasses. Written by the controller. Read by the policy kubeslot-allowed-namespaces.
	allowedNamespaceLabels = "kubeslot.io/allowed-namespace-labels"
)

// NamespaceAnnotations are the annotations by which the Configuration's DeviceClass says who may use it; nil
// without spec.allowedNamespaces. They allow what Configuration.MayBeUsedFrom allows: a selector that is not
// valid selects no namespace.
func NamespaceAnnotations(c *akriv0.Configuration) map[string]string {
	allowed := c.Spec.AllowedNamespaces
	if allowed == nil {
		return nil
	}
	names := slices.Concat([]string{c.Namespace}, allowed.Names)
	annotations := map[string]string{allowedNamespaces: strings.Join(names, ",")}
	if allowed.Selector == nil {
		return annotations
	}
	selector, err := metav1.LabelSelectorAsSelector(allowed.Selector)
	if err != nil {
		return annotations
	}
	requirements, _ := selector.Requirements()
	var texts []string
	for _, r := range requirements {
		values := strings.Join(r.Values().List(), ",")
		texts = append(texts, r.Key()+" "+string(r.Operator())+" "+values)
	}
	annotations[allowedNamespaceLabels] = strings.Join(texts, ";")
	return annotations
}
