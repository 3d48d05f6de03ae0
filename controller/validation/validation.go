// Package validation says what is wrong with a Configuration, beyond what the schema and
// the CEL rules of its CRD can say: the fields of the specs that it carries along, the
// details that are for a discovery handler, and what could never run. It is a function
// of the Configuration alone. Package webhook refuses such Configurations when they are
// written; the status of those that were stored nevertheless says the same.
package validation

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubeslot/kubeslot/discovery"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// Findings are what there is to say of a Configuration.
type Findings struct {
	// Errors are what cannot work, by field.
	Errors field.ErrorList
	// Warnings are what may not be meant.
	Warnings []string
	// more are the fields below which there may be further errors: the specs that have too many to list.
	more []string
}

// Checker checks Configurations. It is safe for concurrent use.
type Checker struct {
	handlers map[string]func(discovery.Request) error
}

// NewChecker makes a Checker, which knows the discoveryDetails of the handlers that are
// named. A name that is none of Handlers() is an error.
func NewChecker(handlers []string) (*Checker, error) {
	c := &Checker{handlers: map[string]func(discovery.Request) error{}}
	var errs []error
	for _, name := range handlers {
		validate, ok := known[name]
		if !ok {
			errs = append(errs, fmt.Errorf("there is no discovery handler %q; there are %s", name, strings.Join(Handlers(), ", ")))
			continue
		}
		c.handlers[name] = validate
	}
	return c, errors.Join(errs...)
}

// Handlers are the names of the discovery handlers whose details can be checked, sorted.
func Handlers() []string { return slices.Sorted(maps.Keys(known)) }

// Check checks a Configuration, which may be any that the API server could have stored. See Bounded for who shows all
// that it finds.
func (c *Checker) Check(of *akriv0.Configuration) Findings {
	var f Findings
	spec := field.NewPath("spec")
	c.discoveryHandler(&f, spec.Child("discoveryHandler"), &of.Spec)
	if d := of.Spec.Discovery; d != nil {
		f.Errors = append(f.Errors, metav1validation.ValidateLabels(d.NodeSelector, spec.Child("discovery", "nodeSelector"))...)
	}
	f.Errors = append(f.Errors, metav1validation.ValidateLabels(of.Spec.HandlerNodeSelector, spec.Child("handlerNodeSelector"))...)
	if of.Spec.Discovery != nil && len(of.Spec.HandlerNodeSelector) > 0 {
		f.Warnings = append(f.Warnings, "spec.handlerNodeSelector: it has no effect with spec.discovery, whose nodeSelector selects the nodes")
	}
	if a := of.Spec.AllowedNamespaces; a != nil {
		f.Errors = append(f.Errors, metav1validation.ValidateLabelSelector(a.Selector, metav1validation.LabelSelectorValidationOptions{}, spec.Child("allowedNamespaces", "selector"))...)
		for i, name := range a.Names {
			for _, problem := range validation.IsDNS1123Label(name) {
				f.Errors = append(f.Errors, field.Invalid(spec.Child("allowedNamespaces", "names").Index(i), quoted(name), "not the name of a namespace: "+problem))
			}
		}
	}
	f.Errors = append(f.Errors, brokerProperties(spec.Child("brokerProperties"), of.Spec.BrokerProperties)...)
	f.Warnings = append(f.Warnings, withheldWarnings(&of.Spec)...)
	broker(&f, spec.Child("brokerSpec"), &of.Spec)
	update(&f, spec.Child("brokerUpdate"), &of.Spec)
	for _, s := range []struct {
		name string
		raw  *runtime.RawExtension
	}{{"instanceServiceSpec", of.Spec.InstanceServiceSpec}, {"configurationServiceSpec", of.Spec.ConfigurationServiceSpec}} {
		if akriv0.IsSet(s.raw) {
			service(&f, spec.Child(s.name), s.raw.Raw)
			if !of.Spec.HasBroker() {
				f.Warnings = append(f.Warnings, fmt.Sprintf("spec.%s: there is no Service without a broker, which it would lead to", s.name))
			}
		}
	}
	return f
}

// maxFindings bounds the errors and the warnings of one Configuration, which may have
// as many fields as 1.5 MiB hold.
const maxFindings = 50

// Bounded are the first of the errors and the warnings.
func (f Findings) Bounded() Findings {
	if len(f.Errors) > maxFindings {
		f.Errors = f.Errors[:maxFindings:maxFindings]
	}
	if n := len(f.Warnings); n > maxFindings {
		f.Warnings = append(f.Warnings[:maxFindings:maxFindings], fmt.Sprintf("and %d more", n-maxFindings))
	}
	return f
}

// brokerProperties are environment variables of containers.
func brokerProperties(path *field.Path, properties map[string]string) (errs field.ErrorList) {
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		for _, problem := range validation.IsRelaxedEnvVarName(name) {
			errs = append(errs, field.Invalid(path.Key(quoted(name)), field.OmitValueType{}, "not the name of an environment variable: "+problem))
		}
		if strings.ContainsRune(properties[name], 0) {
			errs = append(errs, field.Invalid(path.Key(quoted(name)), field.OmitValueType{}, "the value has a NUL character, which no environment variable can have"))
		}
	}
	return errs
}

// Without returns the findings with the errors that others has too as warnings: they
// were there before, and do not keep anything else from being changed. So with those of a spec that had too many to
// tell which are new.
func (f Findings) Without(others Findings) Findings {
	before := map[string]bool{}
	for _, err := range others.Errors {
		before[err.Error()] = true
	}
	kept := Findings{Warnings: slices.Clone(f.Warnings)}
	for _, err := range f.Errors {
		of := func(spec string) bool { return strings.HasPrefix(err.Field, spec) }
		if before[err.Error()] || slices.ContainsFunc(others.more, of) {
			kept.Warnings = append(kept.Warnings, err.Error())
			continue
		}
		kept.Errors = append(kept.Errors, err)
	}
	return kept
}

// maxMessageErrors is how many errors a message names.
const maxMessageErrors = 10

// Message is all errors in one text, a few of many; "" for none.
func (f Findings) Message() string {
	var texts []string
	for i, err := range f.Errors {
		if i == maxMessageErrors {
			texts = append(texts, fmt.Sprintf("and %d more", len(f.Errors)-i))
			break
		}
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "; ")
}
