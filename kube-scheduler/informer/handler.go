// Package informer connects the plugins with the API: handlers of informers, hints for the framework's
// queue, and feeds for objects that the plugin itself stores. It has no state of its own.
package informer

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"
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

// On has the hint asked after such changes to objects of the kind.
func On(kind fwk.EventResource, changes fwk.ActionType, hint fwk.QueueingHintFn) fwk.ClusterEventWithHint {
	return fwk.ClusterEventWithHint{Event: fwk.ClusterEvent{Resource: kind, ActionType: changes}, QueueingHintFn: hint}
}

// Hint is the queueing hint that has a pod tried after the changes that help it. The object before is nil
// for one that is new, and the object now for one that is gone.
func Hint[T any](helps func(pod *v1.Pod, before, now *T) bool) fwk.QueueingHintFn {
	return func(_ klog.Logger, pod *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
		before, now, err := schedutil.As[*T](oldObj, newObj)
		if err != nil || helps(pod, before, now) {
			return fwk.Queue, err
		}
		return fwk.QueueSkip, nil
	}
}
