package watch

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/kubeslot/kubeslot/controller/naming"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// CacheOptions keep of each object what is needed: of pods, of which there are the most, that they exist and
// whether they are being deleted, and of a device that many nodes see, what it is, once.
func CacheOptions() cache.Options {
	return cache.Options{
		ReaderFailOnMissingInformer: true,
		DefaultTransform:            cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			PodMetadata():           {Transform: trimPod},
			&corev1.Node{}:          {Transform: trimNode},
			&v1alpha1.DeviceSlice{}: {Transform: newSharing().transform},
		},
	}
}

// PodMetadata is what the cache has of a pod.
func PodMetadata() *metav1.PartialObjectMetadata {
	pod := &metav1.PartialObjectMetadata{}
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	return pod
}

// Made is a cache of the pods, Jobs and Services that the controller made, or Akri's
// did. It is one of its own, for a cache has each kind once, and the other has the
// metadata of all pods.
type Made struct{ cache.Cache }

// NewMade makes a Made, for a manager to run.
func NewMade(mgr manager.Manager) (Made, error) {
	c, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		ReaderFailOnMissingInformer: true,
		DefaultTransform:            TrimMade,
		DefaultLabelSelector:        labels.SelectorFromSet(labels.Set{naming.Controller: naming.ControllerName}),
	})
	if err != nil {
		return Made{}, err
	}
	return Made{c}, mgr.Add(Made{c})
}

// Index has objects of a kind, which is watched from then on, found by their labels of Instance and Configuration:
// the indexes have the labels' names.
func (m Made) Index(ctx context.Context, kind client.Object) error {
	for _, label := range []string{naming.Instance, naming.Configuration} {
		if err := m.IndexField(ctx, kind, label, ByLabel(label)); err != nil {
			return fmt.Errorf("index %T by label %s: %w", kind, label, err)
		}
	}
	return nil
}

// ByLabel indexes an object by a label's value.
func ByLabel(label string) client.IndexerFunc {
	return func(o client.Object) []string {
		if value := o.GetLabels()[label]; value != "" {
			return []string{value}
		}
		return nil
	}
}

// GetCache has the manager start it with its other caches, before all else.
func (m Made) GetCache() cache.Cache { return m.Cache }

// NeedLeaderElection has it filled also while another process leads.
func (Made) NeedLeaderElection() bool { return false }

// TrimMade keeps of pods and Jobs what the controller reads of them: it compares no specs, but their
// hashes in annotations. What it writes of them are patches. Of Services it keeps all: these it updates.
func TrimMade(obj any) (any, error) {
	switch o := obj.(type) {
	case *corev1.Pod:
		trimmed := &corev1.Pod{ObjectMeta: trimMetadata(&o.ObjectMeta)}
		trimmed.Spec = corev1.PodSpec{NodeName: o.Spec.NodeName, ResourceClaims: o.Spec.ResourceClaims}
		trimmed.Status = corev1.PodStatus{Phase: o.Status.Phase, Reason: o.Status.Reason, Message: o.Status.Message,
			StartTime:             o.Status.StartTime,
			InitContainerStatuses: trimContainers(o.Status.InitContainerStatuses),
			ContainerStatuses:     trimContainers(o.Status.ContainerStatuses)}
		for _, c := range o.Status.Conditions {
			if c.Type == corev1.PodReady || c.Type == corev1.PodScheduled {
				kept := corev1.PodCondition{Type: c.Type, Status: c.Status, Reason: c.Reason}
				trimmed.Status.Conditions = append(trimmed.Status.Conditions, kept)
			}
		}
		return trimmed, nil
	case *batchv1.Job:
		trimmed := &batchv1.Job{ObjectMeta: trimMetadata(&o.ObjectMeta)}
		trimmed.Spec.Parallelism, trimmed.Spec.Suspend = o.Spec.Parallelism, o.Spec.Suspend
		for _, c := range o.Status.Conditions {
			kept := batchv1.JobCondition{Type: c.Type, Status: c.Status}
			trimmed.Status.Conditions = append(trimmed.Status.Conditions, kept)
		}
		return trimmed, nil
	}
	return cache.TransformStripManagedFields()(obj)
}

func trimMetadata(m *metav1.ObjectMeta) metav1.ObjectMeta {
	trimmed := metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
		Labels: m.Labels, OwnerReferences: m.OwnerReferences}
	for _, key := range []string{naming.SpecHash, naming.PropertiesHash, naming.Failures, naming.JobHeld} {
		if value, ok := m.Annotations[key]; ok {
			metav1.SetMetaDataAnnotation(&trimmed, key, value)
		}
	}
	return trimmed
}

func trimContainers(all []corev1.ContainerStatus) []corev1.ContainerStatus {
	var trimmed []corev1.ContainerStatus
	for i := range all {
		c := &all[i]
		trimmed = append(trimmed, corev1.ContainerStatus{Name: c.Name, Ready: c.Ready, RestartCount: c.RestartCount,
			State: trimState(c.State), LastTerminationState: trimState(c.LastTerminationState)})
	}
	return trimmed
}

func trimState(s corev1.ContainerState) corev1.ContainerState {
	if s.Waiting != nil {
		s.Waiting = &corev1.ContainerStateWaiting{Reason: s.Waiting.Reason}
	}
	if t := s.Terminated; t != nil {
		s.Terminated = &corev1.ContainerStateTerminated{ExitCode: t.ExitCode, Reason: t.Reason,
			StartedAt: t.StartedAt, FinishedAt: t.FinishedAt}
	}
	return s
}

func trimPod(obj any) (any, error) {
	if p, ok := obj.(*metav1.PartialObjectMetadata); ok {
		return &metav1.PartialObjectMetadata{TypeMeta: p.TypeMeta, ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion,
			DeletionTimestamp: p.DeletionTimestamp,
		}}, nil
	}
	return obj, nil
}

func trimNode(obj any) (any, error) {
	n, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	trimmed := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion, Labels: n.Labels},
		Spec: corev1.NodeSpec{Unschedulable: n.Spec.Unschedulable, Taints: n.Spec.Taints}}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			trimmed.Status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return trimmed, nil
}
