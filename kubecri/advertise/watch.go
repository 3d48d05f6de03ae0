package advertise

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubeslot/kubeslot/kubecri/informers"
)

// Changed says that Devices has something new to say: it has the node looked at soon; changes until
// then count once.
func (a *Advertiser) Changed() { a.config.Node.WakeAfter(debounce) }

// watch queues the node upon each change that could matter to it.
func (a *Advertiser) watch() (synced []cache.InformerSynced, err error) {
	for _, w := range []struct {
		kind     string
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{
		{"DeviceSlices", a.config.Slices.Informer(), informers.OnChange(a.Changed)},
		{"Configurations", a.config.Configurations.Informer(), informers.OnChange(a.Changed)},
		{"Pods", a.config.Pods.Informer(), cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { a.Changed() },
			UpdateFunc: func(old, pod any) { a.podChanged(old.(*corev1.Pod), pod.(*corev1.Pod)) },
			DeleteFunc: func(any) { a.Changed() },
		}},
	} {
		registration, err := w.informer.AddEventHandler(w.handler)
		if err != nil {
			return nil, fmt.Errorf("watch %s: %w", w.kind, err)
		}
		synced = append(synced, registration.HasSynced)
	}
	return synced, nil
}

func (a *Advertiser) podChanged(old, pod *corev1.Pod) {
	if old.UID != pod.UID || holds(old) != holds(pod) || pod.Generation != old.Generation {
		a.Changed()
	}
}
