package source

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// Resources whose names can be read alone.
var (
	Configurations = akriv0.SchemeGroupVersion.WithResource("configurations")
	Instances      = akriv0.SchemeGroupVersion.WithResource("instances")
	Claims         = v1alpha1.SchemeGroupVersion.WithResource("slotclaims")
	Pods           = corev1.SchemeGroupVersion.WithResource("pods")
	Nodes          = corev1.SchemeGroupVersion.WithResource("nodes")
	Namespaces     = corev1.SchemeGroupVersion.WithResource("namespaces")
)

// clusterScoped are those of them whose objects have no namespace.
var clusterScoped = []schema.GroupVersionResource{Claims, Nodes, Namespaces}

// Names are the names of the resource's objects, in order; of those that have a namespace, in this one.
func (s *Source) Names(ctx context.Context, resource schema.GroupVersionResource, namespace string) ([]string, error) {
	if slices.Contains(clusterScoped, resource) {
		namespace = metav1.NamespaceAll
	}
	all, err := s.metadataOf(ctx, resource, namespace, metav1.ListOptions{})
	if err != nil {
		return nil, explain(resource.GroupResource().String(), err)
	}
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	slices.Sort(names)
	return names, nil
}

// NoNamespace reports whether there is no namespace of the name; false for a user who may not know.
func (s *Source) NoNamespace(ctx context.Context, name string) bool {
	_, err := s.kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}

// metadataOf lists the metadata of objects.
func (s *Source) metadataOf(ctx context.Context, resource schema.GroupVersionResource, namespace string,
	options metav1.ListOptions) ([]metav1.PartialObjectMetadata, error) {
	options.Limit = metadataPageSize
	items, err := pages(ctx, options, func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return s.metadata.Resource(resource).Namespace(namespace).List(ctx, options)
	})
	return values[metav1.PartialObjectMetadata](items), err
}
