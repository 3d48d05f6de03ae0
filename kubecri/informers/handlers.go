package informers

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
)

// Handle adds a handler to an informer that has not ended, and returns what says that the handler has seen all
// there is.
func Handle(informer cache.SharedIndexInformer, handler cache.ResourceEventHandler) cache.InformerSynced {
	registration, err := informer.AddEventHandler(handler)
	utilruntime.Must(err) // it fails for one that has ended
	return registration.HasSynced
}

// OnChange calls changed whenever an object is new, changed or gone.
func OnChange(changed func()) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { changed() }, UpdateFunc: func(any, any) { changed() }, DeleteFunc: func(any) { changed() }}
}

// Each calls f with each object that is new, changed or gone. An informer whose watch was interrupted
// shows an object that was deleted and made again under its name as one update: then the former is gone.
func Each[T metav1.Object](f func(object T, gone bool)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { f(obj.(T), false) },
		UpdateFunc: func(old, obj any) {
			if before := old.(T); before.GetUID() != obj.(T).GetUID() {
				f(before, true)
			}
			f(obj.(T), false)
		},
		DeleteFunc: func(obj any) {
			if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			if object, ok := obj.(T); ok {
				f(object, true)
			}
		},
	}
}

// EachPodOver calls f with each pod that has ended since it was first seen, or is gone.
func EachPodOver(f func(*corev1.Pod)) cache.ResourceEventHandler {
	all := Each(func(pod *corev1.Pod, gone bool) {
		if gone || PodEnded(pod) {
			f(pod)
		}
	})
	return cache.ResourceEventHandlerFuncs{UpdateFunc: all.OnUpdate, DeleteFunc: all.OnDelete}
}

// PodEnded reports whether none of the pod's containers will run any more.
func PodEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
