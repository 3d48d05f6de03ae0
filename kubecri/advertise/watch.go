package advertise

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubeslot/kubeslot/kubecri/informers"
)

// Changed says that Devices has something new to say: it has the node looked at soon; changes until
// then count once.
func (a *Advertiser) Changed() { a.config.Node.WakeAfter(debounce) }

// watch queues the node upon each change that could matter to it.
func (a *Advertiser) watch() []cache.InformerSynced {
	return []cache.InformerSynced{
		informers.Handle(a.config.Slices.Informer(), informers.OnChange(a.Changed)),
		informers.Handle(a.config.Configurations.Informer(), informers.OnChange(a.Changed)),
		informers.Handle(a.config.Pods.Informer(), cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { a.Changed() },
			UpdateFunc: func(old, pod any) { a.podChanged(old.(*corev1.Pod), pod.(*corev1.Pod)) },
			DeleteFunc: func(any) { a.Changed() },
		}),
	}
}

func (a *Advertiser) podChanged(old, pod *corev1.Pod) {
	if old.UID != pod.UID || holds(old) != holds(pod) || pod.Generation != old.Generation {
		a.Changed()
	}
}
