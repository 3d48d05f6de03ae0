package advertise

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// Changed says that Devices has something new to say.
func (a *Advertiser) Changed() { a.changed() }

// changed has the node looked at soon; changes until then count once.
func (a *Advertiser) changed() { a.queue.AddAfter(a.config.NodeName, debounce) }

// watch queues the node upon each change that could matter to it.
func (a *Advertiser) watch() error {
	name := a.config.NodeName
	instances := a.config.Instances.Informer()
	if err := instances.AddIndexers(cache.Indexers{byNode: func(obj any) ([]string, error) {
		if a.reaches(obj.(*v0.Instance)) {
			return []string{name}, nil
		}
		return nil, nil
	}}); err != nil {
		return fmt.Errorf("index Instances by node: %w", err)
	}
	for _, w := range []struct {
		kind     string
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{
		{"Instances", instances, a.instanceHandler()},
		{"Nodes", a.config.Nodes.Informer(), cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { a.changed() },
			UpdateFunc: func(any, any) { a.changed() },
		}},
		{"Pods", a.config.Pods.Informer(), cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { a.changed() },
			UpdateFunc: func(old, pod any) { a.podChanged(old.(*corev1.Pod), pod.(*corev1.Pod)) },
			DeleteFunc: func(any) { a.changed() },
		}},
	} {
		registration, err := w.informer.AddEventHandler(w.handler)
		if err != nil {
			return fmt.Errorf("watch %s: %w", w.kind, err)
		}
		a.synced = append(a.synced, registration.HasSynced)
	}
	return nil
}

func (a *Advertiser) podChanged(old, pod *corev1.Pod) {
	if holds(old) != holds(pod) || pod.Generation != old.Generation {
		a.changed()
	}
}

func (a *Advertiser) instanceHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if a.reaches(obj.(*v0.Instance)) {
				a.changed()
			}
		},
		UpdateFunc: func(old, instance any) {
			if a.matters(old.(*v0.Instance), instance.(*v0.Instance)) {
				a.changed()
			}
		},
		DeleteFunc: func(obj any) {
			// The last state may be unknown, then it counts as reached.
			if i, ok := obj.(*v0.Instance); !ok || a.reaches(i) {
				a.changed()
			}
		},
	}
}

func (a *Advertiser) reaches(i *v0.Instance) bool {
	return slices.Contains(i.Spec.Nodes, a.config.NodeName)
}

// matters passes over other nodes' Instances, and over claims, which come with
// each container of the whole cluster.
func (a *Advertiser) matters(old, instance *v0.Instance) bool {
	if a.reaches(old) != a.reaches(instance) {
		return true
	}
	return a.reaches(instance) && (old.Spec.Capacity != instance.Spec.Capacity ||
		old.Spec.ConfigurationName != instance.Spec.ConfigurationName)
}
