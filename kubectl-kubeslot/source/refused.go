package source

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

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
		if wants, err := s.wantsPods(ctx, of); err != nil {
			return nil, err
		} else if wants {
			all = append(all, view.Refused{Kind: strings.ToLower(of.Kind), Namespace: of.Namespace, Name: of.Name, Why: why[1]})
		}
	}
	slices.SortFunc(all, func(a, b view.Refused) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return all, nil
}

// wantsPods reports whether a workload wants more pods than it has. One that may not be read does.
func (s *Source) wantsPods(ctx context.Context, of corev1.ObjectReference) (bool, error) {
	wants, err := false, error(nil)
	switch of.Kind {
	case "ReplicaSet":
		o, e := s.kube.AppsV1().ReplicaSets(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
		wants, err = e == nil && (o.Spec.Replicas == nil || *o.Spec.Replicas > o.Status.Replicas), e
	case "StatefulSet":
		o, e := s.kube.AppsV1().StatefulSets(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
		wants, err = e == nil && (o.Spec.Replicas == nil || *o.Spec.Replicas > o.Status.Replicas), e
	case "DaemonSet":
		o, e := s.kube.AppsV1().DaemonSets(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
		wants, err = e == nil && o.Status.DesiredNumberScheduled > o.Status.CurrentNumberScheduled, e
	case "Job":
		o, e := s.kube.BatchV1().Jobs(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
		wants, err = e == nil && o.Status.CompletionTime == nil && o.Status.Active == 0, e
	default: // another controller's
		return true, nil
	}
	switch {
	case apierrors.IsForbidden(err):
		return true, nil
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look whether %s %s/%s wants pods: %w", of.Kind, of.Namespace, of.Name, err)
	}
	return wants, nil
}
