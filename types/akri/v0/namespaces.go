package v0

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// AllowedNamespaces are namespaces besides the Configuration's own: those that names
// lists, and those that selector selects.
type AllowedNamespaces struct {
	// names are namespaces by their names.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Names []string `json:"names,omitempty"`

	// selector selects namespaces by their labels. An empty selector selects all of
	// them; without one none is selected.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// MayBeUsedFrom reports whether pods of the namespace may get slots of the
// Configuration. labelsOf returns the namespace's labels; it is called only where they
// decide. An error is that of labelsOf, or says that the selector is not valid: then no
// slots may be given either.
func (c *Configuration) MayBeUsedFrom(namespace string, labelsOf func() (map[string]string, error)) (bool, error) {
	allowed := c.Spec.AllowedNamespaces
	if allowed == nil || namespace == c.Namespace || slices.Contains(allowed.Names, namespace) {
		return true, nil
	}
	if allowed.Selector == nil {
		return false, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(allowed.Selector)
	if err != nil {
		return false, fmt.Errorf("spec.allowedNamespaces.selector of Configuration %s/%s: %w", c.Namespace, c.Name, err)
	}
	if selector.Empty() {
		return true, nil
	}
	all, err := labelsOf()
	if err != nil {
		return false, err
	}
	return selector.Matches(labels.Set(all)), nil
}
