// Package informer connects the plugins with the API: handlers of informers, and feeds for
// objects that the plugin itself stores. It has no state of its own.
package informer

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// Handler makes an informer's handler of one function for an object that is there
// and one for an object that is gone. An informer whose watch was interrupted shows
// an object that was deleted and made again under its name as one update: then the
// former is gone. same, if not nil, says which updates of an object change nothing.
func Handler[T metav1.Object](set, gone func(T), same func(a, b T) bool) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { set(obj.(T)) },
		UpdateFunc: func(oldObj, obj any) {
			before, now := oldObj.(T), obj.(T)
			switch {
			case before.GetUID() != now.GetUID():
				gone(before)
			case same != nil && same(before, now):
				return
			}
			set(now)
		},
		DeleteFunc: func(obj any) {
			if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = d.Obj
			}
			gone(obj.(T))
		},
	}
}
