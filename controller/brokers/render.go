package brokers

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubeslot/kubeslot/controller/brokerspec"
	"github.com/kubeslot/kubeslot/controller/naming"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// renderPod makes the Instance's broker pod for a node. failures is how many of its
// predecessors there have failed in a row.
func renderPod(f *facts, node string, failures int) (*corev1.Pod, error) {
	name := naming.Pod(f.instance.Name, node, f.shared)
	p := f.spec.pod.DeepCopy()
	if err := expandPod(f.values(node), p); err != nil {
		return nil, fmt.Errorf("%s: %w", podSpecPath, err)
	}
	f.requestInstance(p)
	pin(p, node)
	p.SchedulerName = cmp.Or(p.SchedulerName, f.scheduler)
	f.prioritize(p)
	annotations := map[string]string{naming.SpecHash: f.spec.hash}
	if h := f.propertiesHash(); h != "" {
		annotations[naming.PropertiesHash] = h
	}
	if failures > 0 {
		annotations[naming.Failures] = strconv.Itoa(failures)
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.instance.Namespace, Name: name,
			Labels:          naming.PodLabels(f.configuration.Name, f.instance.Name, node, name),
			Annotations:     annotations,
			OwnerReferences: []metav1.OwnerReference{naming.OwnedBy(instanceKind, f.instance)},
		},
		Spec: *p,
	}, nil
}

// renderJob makes the Instance's Job for the Configuration's generation. Its pods
// carry all labels of a broker, so that the Services find them.
func renderJob(f *facts) (*batchv1.Job, error) {
	name := naming.Job(f.instance.Name, f.configuration.Generation)
	spec := f.spec.job.DeepCopy()
	v, slots := f.values(""), f.spec.slots
	template := &spec.Template
	own, errLabels := expandMap(v, "template.metadata.labels", template.Labels, slots)
	annotations, errAnnotations := expandMap(v, "template.metadata.annotations", template.Annotations, slots)
	if err := errors.Join(errLabels, errAnnotations, expandPod(v, &template.Spec)); err != nil {
		return nil, fmt.Errorf("spec.brokerSpec.brokerJobSpec: %w", err)
	}
	template.Labels = labels.Merge(own, naming.JobLabels(f.configuration.Name, f.instance.Name, name))
	template.Annotations = annotations
	f.requestInstance(&template.Spec)
	template.Spec.SchedulerName = cmp.Or(template.Spec.SchedulerName, f.scheduler)
	f.prioritize(&template.Spec)
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.instance.Namespace, Name: name,
			Labels:          naming.JobLabels(f.configuration.Name, f.instance.Name, name),
			Annotations:     map[string]string{naming.SpecHash: f.spec.hash},
			OwnerReferences: []metav1.OwnerReference{naming.OwnedBy(instanceKind, f.instance)},
		},
		Spec: *spec,
	}
	hold(job)
	return job, nil
}

// prioritize gives the pod the controller's PriorityClass, unless its spec says something of
// its priority.
func (f *facts) prioritize(p *corev1.PodSpec) {
	if p.PriorityClassName == "" && p.Priority == nil {
		p.PriorityClassName = f.priority
	}
}

// requestInstance has containers that request {{PLACEHOLDER}} request the Instance, as
// often as is written there. Requests and limits of such a resource must be equal:
// either may be left out.
func (f *facts) requestInstance(p *corev1.PodSpec) {
	if t := claimTemplate(f); t != nil {
		f.spec.claimInstance(p, t.Name)
		return
	}
	name := corev1.ResourceName(akriv0.GroupName + "/" + f.instance.Name)
	for _, c := range brokerspec.Containers(p) {
		r := &c.Resources
		limit, hasLimit := r.Limits[brokerspec.Placeholder]
		request, hasRequest := r.Requests[brokerspec.Placeholder]
		if !hasLimit && !hasRequest {
			continue
		}
		if !hasLimit {
			limit = request
			if r.Limits == nil {
				r.Limits = corev1.ResourceList{}
			}
		}
		delete(r.Limits, brokerspec.Placeholder)
		r.Limits[name] = limit
		if hasRequest {
			delete(r.Requests, brokerspec.Placeholder)
			r.Requests[name] = request
		}
	}
}

// pin lets the pod run on the node alone. A node is fit when it meets any one of the
// affinity's terms: so the node is added to each of them.
func pin(p *corev1.PodSpec, node string) {
	if p.Affinity == nil {
		p.Affinity = &corev1.Affinity{}
	}
	if p.Affinity.NodeAffinity == nil {
		p.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	required := &p.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if *required == nil {
		*required = &corev1.NodeSelector{}
	}
	terms := &(*required).NodeSelectorTerms
	// A term without requirements matches no node: with the node added it would.
	*terms = slices.DeleteFunc(*terms, func(t corev1.NodeSelectorTerm) bool {
		return len(t.MatchExpressions)+len(t.MatchFields) == 0
	})
	if len(*terms) == 0 {
		*terms = []corev1.NodeSelectorTerm{{}}
	}
	for i := range *terms {
		t := &(*terms)[i]
		t.MatchFields = append(t.MatchFields, corev1.NodeSelectorRequirement{
			Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
		})
	}
}
