package watch

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/kubeslot/kubeslot/controller/naming"
)

// CacheOptions keep of each object what is needed: of pods, of which there are the
// most, that they exist.
func CacheOptions() cache.Options {
	pods := &metav1.PartialObjectMetadata{}
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	return cache.Options{
		ReaderFailOnMissingInformer: true,
		DefaultTransform:            cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			pods:           {Transform: trimPod},
			&corev1.Node{}: {Transform: trimNode},
		},
	}
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
		DefaultTransform:            cache.TransformStripManagedFields(),
		DefaultLabelSelector:        labels.SelectorFromSet(labels.Set{naming.Controller: naming.ControllerName}),
	})
	if err != nil {
		return Made{}, err
	}
	return Made{c}, mgr.Add(Made{c})
}

// GetCache has the manager start it with its other caches, before all else.
func (m Made) GetCache() cache.Cache { return m.Cache }

// NeedLeaderElection has it filled also while another process leads.
func (Made) NeedLeaderElection() bool { return false }

func trimPod(obj any) (any, error) {
	if p, ok := obj.(*metav1.PartialObjectMetadata); ok {
		return &metav1.PartialObjectMetadata{TypeMeta: p.TypeMeta, ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion,
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
