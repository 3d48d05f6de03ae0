package validation

import (
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubeslot/kubeslot/controller/brokerspec"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/spelling"
)

// broker checks the spec of the broker: its fields and their types, what no Pod of any
// cluster may have, and what the controller could not make of it. What depends on the
// cluster, as Pod Security and quotas, is known only when the Pod is created.
func broker(f *Findings, path *field.Path, spec *akriv0.ConfigurationSpec) {
	b := spec.BrokerSpec
	switch {
	case b == nil:
	case akriv0.IsSet(b.BrokerPodSpec):
		path := path.Child("brokerPodSpec")
		var p corev1.PodSpec
		if !f.decode(path, b.BrokerPodSpec.Raw, &p) {
			return
		}
		pod(f, path, &p, false, spec.Slots())
		if err := brokerspec.CheckNode(path, &p); err != nil {
			f.Errors = append(f.Errors, fieldErrors(path.Child("affinity"), err)...)
		}
	case akriv0.IsSet(b.BrokerJobSpec):
		path := path.Child("brokerJobSpec")
		var j batchv1.JobSpec
		if !f.decode(path, b.BrokerJobSpec.Raw, &j) {
			return
		}
		job(f, path, &j, spec.Slots())
	}
}

// update checks what the CRD's rule checks, too: the API server may have stored it before that rule.
func update(f *Findings, path *field.Path, spec *akriv0.ConfigurationSpec) {
	if _, err := spec.UnavailableNodes(1); err != nil {
		value := spec.BrokerUpdate.MaxUnavailable.String()
		f.Errors = append(f.Errors, field.Invalid(path.Child("maxUnavailable"), quoted(value), err.Error()))
	}
}

func job(f *Findings, path *field.Path, j *batchv1.JobSpec, capacity int) {
	path = path.Child("template")
	metadata := path.Child("metadata")
	f.Errors = append(f.Errors, templatesIn(metadata.Child("labels"), j.Template.Labels)...)
	f.Errors = append(f.Errors, templatesIn(metadata.Child("annotations"), j.Template.Annotations)...)
	path = path.Child("spec")
	pod(f, path, &j.Template.Spec, true, capacity)
	never, onFailure := corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure
	if p := j.Template.Spec.RestartPolicy; p != never && p != onFailure {
		f.Errors = append(f.Errors, field.NotSupported(path.Child("restartPolicy"), p, []corev1.RestartPolicy{onFailure, never}))
	}
}

// pod checks the spec of a broker Pod, or of a Job's pods.
func pod(f *Findings, path *field.Path, p *corev1.PodSpec, job bool, capacity int) {
	if len(p.Containers) == 0 {
		f.Errors = append(f.Errors, field.Required(path.Child("containers"), "a broker has at least one container"))
	}
	names := sets.New[string]()
	for _, of := range []struct {
		child      string
		containers []corev1.Container
	}{{"initContainers", p.InitContainers}, {"containers", p.Containers}} {
		for i := range of.containers {
			c := &of.containers[i]
			path := path.Child(of.child).Index(i)
			f.Errors = append(f.Errors, container(path, c, names)...)
			f.Errors = append(f.Errors, templates(path, c, job)...)
			f.Errors = append(f.Errors, resources(path.Child("resources"), &c.Resources)...)
		}
	}
	if err := brokerspec.CheckClaims(path, p); err != nil {
		f.Errors = append(f.Errors, fieldErrors(path, err)...)
	}
	if !brokerspec.AsksForDevice(p) {
		f.Warnings = append(f.Warnings, fmt.Sprintf("%s: no container requests %s: brokers run without the device",
			path, brokerspec.Placeholder))
	}
	if slots := brokerspec.PodSlots(p); slots > int64(capacity) {
		f.Errors = append(f.Errors, field.Invalid(path, field.OmitValueType{},
			fmt.Sprintf("the broker requests %d slots of its Instance, which has %d: request fewer, or raise spec.capacity", slots, capacity)))
	}
}

// container checks what every API server wants of a container.
func container(path *field.Path, c *corev1.Container, names sets.Set[string]) (errs field.ErrorList) {
	switch {
	case c.Name == "":
		errs = append(errs, field.Required(path.Child("name"), ""))
	case names.Has(c.Name):
		errs = append(errs, field.Duplicate(path.Child("name"), quoted(c.Name)))
	default:
		for _, problem := range validation.IsDNS1123Label(c.Name) {
			errs = append(errs, field.Invalid(path.Child("name"), quoted(c.Name), problem))
		}
		names.Insert(c.Name)
	}
	if strings.TrimSpace(c.Image) == "" {
		errs = append(errs, field.Required(path.Child("image"), ""))
	}
	return errs
}

// resources checks the names of resources, and how many slots are requested.
func resources(path *field.Path, r *corev1.ResourceRequirements) (errs field.ErrorList) {
	for _, of := range []struct {
		child string
		list  corev1.ResourceList
	}{{"limits", r.Limits}, {"requests", r.Requests}} {
		for name, quantity := range of.list {
			path := path.Child(of.child).Key(quoted(string(name)))
			switch {
			case name == brokerspec.Placeholder:
				if quantity.Sign() < 0 || quantity.Cmp(*resource.NewQuantity(quantity.Value(), resource.DecimalSI)) != 0 {
					errs = append(errs, field.Invalid(path, quantity.String(), "want a whole number of slots"))
				}
			case strings.Contains(strings.ToUpper(string(name)), "PLACEHOLDER"),
				strings.Contains(string(name), "{") && spelling.Nearest(strings.Trim(string(name), "{} "), []string{"PLACEHOLDER"}) != "":
				errs = append(errs, field.Invalid(path, field.OmitValueType{},
					fmt.Sprintf("not the name of a resource; did you mean %q?", brokerspec.Placeholder)))
			case strings.Contains(string(name), "{{"):
				errs = append(errs, field.Invalid(path, field.OmitValueType{},
					fmt.Sprintf("not the name of a resource: the only template here is %q", brokerspec.Placeholder)))
			default:
				for _, problem := range validation.IsQualifiedName(string(name)) {
					errs = append(errs, field.Invalid(path, field.OmitValueType{}, "not the name of a resource: "+problem))
				}
			}
		}
	}
	limit, limited := r.Limits[brokerspec.Placeholder]
	if request, ok := r.Requests[brokerspec.Placeholder]; ok && limited && request.Cmp(limit) != 0 {
		path := path.Child("requests").Key(string(brokerspec.Placeholder))
		errs = append(errs, field.Invalid(path, request.String(), "must be equal to the limit, "+limit.String()))
	}
	sortByField(errs) // maps have no order
	return errs
}
