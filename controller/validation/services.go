package validation

import (
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// serviceTypes are those that a Service may have.
var serviceTypes = []corev1.ServiceType{
	corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort,
}

// service checks the spec of a Service: its fields and their types, and what no API
// server takes.
func service(f *Findings, path *field.Path, raw []byte) {
	var s corev1.ServiceSpec
	if !f.decode(path, raw, &s) {
		return
	}
	if s.Type != "" && !slices.Contains(serviceTypes, s.Type) {
		f.Errors = append(f.Errors, field.NotSupported(path.Child("type"), s.Type, serviceTypes))
	}
	f.Errors = append(f.Errors, metav1validation.ValidateLabels(s.Selector, path.Child("selector"))...)
	if len(s.Ports) == 0 && s.ClusterIP != corev1.ClusterIPNone && s.Type != corev1.ServiceTypeExternalName {
		f.Errors = append(f.Errors, field.Required(path.Child("ports"), ""))
	}
	names := sets.New[string]()
	for i, p := range s.Ports {
		path := path.Child("ports").Index(i)
		for _, problem := range validation.IsValidPortNum(int(p.Port)) {
			f.Errors = append(f.Errors, field.Invalid(path.Child("port"), p.Port, problem))
		}
		switch {
		case p.Name == "" && len(s.Ports) > 1:
			f.Errors = append(f.Errors, field.Required(path.Child("name"), "each of several ports needs a name"))
		case names.Has(p.Name):
			f.Errors = append(f.Errors, field.Duplicate(path.Child("name"), quoted(p.Name)))
		}
		names.Insert(p.Name)
	}
}

// fieldErrors returns the errors in err, which are of fields below path.
func fieldErrors(path *field.Path, err error) (errs field.ErrorList) {
	if all, ok := errors.AsType[utilerrors.Aggregate](err); ok {
		for _, err := range all.Errors() {
			errs = append(errs, fieldErrors(path, err)...)
		}
		return errs
	}
	if of, ok := errors.AsType[*field.Error](err); ok {
		return field.ErrorList{of}
	}
	return field.ErrorList{field.Invalid(path, field.OmitValueType{}, err.Error())}
}

// sortByField orders errors that come from maps.
func sortByField(errs field.ErrorList) {
	slices.SortStableFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Field, b.Field) })
}
