package command

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	akrifake "github.com/kubeslot/kubeslot/types/client/clientset/versioned/scheme"
)

// selectPods lists the tracker's pods that field selectors select, which the fakes do not do by themselves.
func selectPods(tracker clienttesting.ObjectTracker) clienttesting.ReactionFunc {
	return func(action clienttesting.Action) (bool, runtime.Object, error) {
		list, err := tracker.List(corev1.SchemeGroupVersion.WithResource("pods"),
			corev1.SchemeGroupVersion.WithKind("Pod"), action.GetNamespace())
		if err != nil {
			return true, nil, err
		}
		pods := list.(*corev1.PodList)
		pods.Items = slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return !selected(action, &pod) })
		return true, pods, nil
	}
}

func selected(action clienttesting.Action, pod *corev1.Pod) bool {
	return action.(clienttesting.ListAction).GetListRestrictions().Fields.Matches(fields.Set{
		"metadata.name": pod.Name, "metadata.namespace": pod.Namespace, "spec.nodeName": pod.Spec.NodeName,
		"status.phase": string(pod.Status.Phase)})
}

// metadata is a client of the metadata of the story's objects.
func (s *story) metadata() *metadatafake.FakeMetadataClient {
	var all []runtime.Object
	for _, key := range s.order {
		o := s.objects[key]
		if o == nil {
			continue
		}
		kinds, _, err := scheme.Scheme.ObjectKinds(o)
		if err != nil {
			if kinds, _, err = akrifake.Scheme.ObjectKinds(o); err != nil {
				continue // a definition, whose metadata nobody reads
			}
		}
		accessor, _ := meta.Accessor(o)
		partial := meta.AsPartialObjectMetadata(accessor)
		partial.SetGroupVersionKind(kinds[0])
		all = append(all, partial)
	}
	for _, namespace := range s.namespaces() {
		partial := meta.AsPartialObjectMetadata(namespace.(*corev1.Namespace))
		partial.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
		all = append(all, partial)
	}
	known := metadatafake.NewTestScheme()
	_ = metav1.AddMetaToScheme(known)
	client := metadatafake.NewSimpleMetadataClient(known, all...)
	client.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		list := &metav1.List{}
		for _, key := range s.order {
			if pod, ok := s.objects[key].(*corev1.Pod); ok &&
				(action.GetNamespace() == "" || action.GetNamespace() == pod.Namespace) && selected(action, pod) {
				partial := meta.AsPartialObjectMetadata(pod)
				partial.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
				list.Items = append(list.Items, runtime.RawExtension{Object: partial})
			}
		}
		return true, list, nil
	})
	return client
}

// namespaces are default, and those of the story's objects.
func (s *story) namespaces() []runtime.Object {
	all := []runtime.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}}
	seen := map[string]bool{"": true, "default": true}
	for _, key := range s.order {
		if m, err := meta.Accessor(s.objects[key]); err == nil && !seen[m.GetNamespace()] {
			seen[m.GetNamespace()] = true
			all = append(all, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: m.GetNamespace()}})
		}
	}
	return all
}
