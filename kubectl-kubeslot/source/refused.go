package source

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
)

// ourRefusal is what the events of workloads say of pods that a policy of Kubeslot's refuses.
var ourRefusal = regexp.MustCompile(`ValidatingAdmissionPolicy 'kubeslot-[^']*' with binding '[^']*' denied request: (.*)`)

// maxRefused is how many workloads are looked at.
const maxRefused = 50

// Refused are the workloads whose pods the API server refuses by a policy of Kubeslot's, as their
// events of the last hour say, and which still want more pods than they have; none if events may not
// be listed.
func (s *Source) Refused(ctx context.Context) ([]view.Refused, error) {
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("reason", "FailedCreate").String()}
	list, err := s.kube.CoreV1().Events(metav1.NamespaceAll).List(ctx, options)
	if apierrors.IsForbidden(err) {
		list, err = s.kube.CoreV1().Events(s.namespace).List(ctx, options)
	}
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the events of workloads whose pods are refused: %w", err)
	}
	slices.SortStableFunc(list.Items, func(a, b corev1.Event) int { return lastSeen(&b).Compare(lastSeen(&a)) })
	var all []view.Refused
	seen := map[corev1.ObjectReference]bool{}
	for i := range list.Items {
		e := &list.Items[i]
		of := corev1.ObjectReference{Kind: e.InvolvedObject.Kind, Namespace: e.InvolvedObject.Namespace, Name: e.InvolvedObject.Name}
		why := ourRefusal.FindStringSubmatch(e.Message)
		if why == nil || seen[of] || len(seen) == maxRefused {
			continue
		}
		seen[of] = true
		wants, owner, err := s.wantsPods(ctx, of)
		if err != nil {
			return nil, err
		}
		if !wants {
			continue
		}
		r := view.Refused{Kind: strings.ToLower(of.Kind), Namespace: of.Namespace, Name: of.Name, Why: why[1]}
		if owner != nil { // of which the user knows: a Deployment, and not its ReplicaSet
			r.Kind, r.Name = strings.ToLower(owner.Kind), owner.Name
		}
		if !slices.ContainsFunc(all, func(o view.Refused) bool { return o.Kind == r.Kind && o.Namespace == r.Namespace && o.Name == r.Name }) {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b view.Refused) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return all, nil
}

// wantsPods reports whether a workload wants more pods than it has, and what controls it; nil for
// nothing. One that may not be read wants some.
func (s *Source) wantsPods(ctx context.Context, of corev1.ObjectReference) (wants bool, owner *metav1.OwnerReference, err error) {
	var workload metav1.Object
	switch of.Kind {
	case "ReplicaSet":
		o, e := s.kube.AppsV1().ReplicaSets(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
		workload, wants, err = o, e == nil && (o.Spec.Replicas == nil || *o.Spec.Replicas > o.Status.Replicas), e
	case "StatefulSet":
		o, e := s.kube.AppsV1().StatefulSets(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
		workload, wants, err = o, e == nil && (o.Spec.Replicas == nil || *o.Spec.Replicas > o.Status.Replicas), e
	case "DaemonSet":
		o, e := s.kube.AppsV1().DaemonSets(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
		workload, wants, err = o, e == nil && o.Status.DesiredNumberScheduled > o.Status.CurrentNumberScheduled, e
	case "Job":
		o, e := s.kube.BatchV1().Jobs(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
		workload, wants, err = o, e == nil && o.Status.Active == 0 && !jobRests(o), e
	default: // another controller's
		return true, nil, nil
	}
	switch {
	case apierrors.IsForbidden(err):
		return true, nil, nil
	case apierrors.IsNotFound(err):
		return false, nil, nil
	case err != nil:
		return false, nil, fmt.Errorf("look whether %s %s/%s wants pods: %w", of.Kind, of.Namespace, of.Name, err)
	}
	return wants, metav1.GetControllerOf(workload), nil
}

// jobRests reports whether the Job makes no more pods: it has ended or failed, or is suspended.
func jobRests(job *batchv1.Job) bool {
	if job.Spec.Suspend != nil && *job.Spec.Suspend || job.Status.CompletionTime != nil {
		return true
	}
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Status == corev1.ConditionTrue &&
			(c.Type == batchv1.JobFailed || c.Type == batchv1.JobFailureTarget || c.Type == batchv1.JobComplete || c.Type == batchv1.JobSuccessCriteriaMet)
	})
}
