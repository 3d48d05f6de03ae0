package services

import (
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1 "k8s.io/api/core/v1"
)

// facts are what there is to know of the Service of an Instance or a Configuration.
type facts struct {
	owner types.UID
	// want is the Service as rendered; nil when the Configuration wants none.
	want *corev1.Service
	// services have the owner's label.
	services []corev1.Service
	// pods have the label that the Service selects by. They need not be known where keeps says so.
	pods []corev1.Pod
	// expected is set while a broker runs or is to come: then a Service stays that is
	// there, with its addresses.
	expected bool
}

// step is the next write. The zero step is none.
type step struct {
	verb    verb
	service *corev1.Service
}

type verb string

const (
	create verb = "create"
	update verb = "update"
	remove verb = "delete"
)

// existing is the owner's Service; nil for none.
func (f *facts) existing() (existing *corev1.Service) {
	for i := range f.services {
		s := &f.services[i]
		if owner := metav1.GetControllerOf(s); owner == nil || owner.UID != f.owner {
			continue
		}
		if existing == nil || f.want != nil && s.Name == f.want.Name {
			existing = s
		}
	}
	return existing
}

// keeps reports whether there is a Service that stays, whatever the pods do.
func (f *facts) keeps() bool { return f.expected && f.existing() != nil }

// decide returns the step that brings the Service nearer to what it should be; the
// next is decided when this one is done.
//
// As in Akri a Service is made when the first of its pods runs. It stays while one
// lives or a successor is to come, so that clients keep its address.
func decide(f facts) step {
	existing := f.existing()
	lives, runs := false, false
	for i := range f.pods {
		p := &f.pods[i]
		lives = lives || p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded
		runs = runs || p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil
	}
	switch {
	case existing == nil:
		if f.want == nil || !runs {
			return step{}
		}
		return step{verb: create, service: f.want}
	case existing.DeletionTimestamp != nil:
		return step{}
	case f.want == nil || !lives && !f.expected:
		return step{verb: remove, service: existing}
	}
	merged := merge(existing, f.want)
	if mustBeMadeAnew(&existing.Spec, &merged.Spec) {
		return step{verb: remove, service: existing}
	}
	if apiequality.Semantic.DeepEqual(existing, merged) {
		return step{}
	}
	return step{verb: update, service: merged}
}
