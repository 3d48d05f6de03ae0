package instances

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubeslot/kubeslot/controller/limits"
	"github.com/kubeslot/kubeslot/controller/naming"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// Sum tells how many Instances a Configuration has, and how many devices have none because
// of its spec.maxInstances.
func (r *Reconciler) Sum(configuration types.NamespacedName) limits.Sum {
	return r.limits.Sum(configuration)
}

// decide decides within the Configuration's spec.maxInstances. Devices wait in the order in
// which this process saw them.
func (r *Reconciler) decide(key types.NamespacedName, existing *akriv0.Instance) (s step, err error) {
	d := r.inventory.Device(key.Name)
	configuration := naming.ConfigurationOf(key)
	if d.Configuration == nil || d.Configuration.Namespace != key.Namespace {
		r.limits.Forget(configuration)
		return decide(key, d, existing, nil, r.inventory.LacksSlices), nil
	}
	one := limits.Instance{Key: key, Configuration: configuration, Since: r.clock.Now()}
	if existing != nil {
		one.Exists = limits.Places{"": 1}
	}
	changed, err := r.limits.Decide(one, limits.Limit{Total: d.Configuration.Spec.InstancesLimit()}, func(room *limits.Room) {
		s = decide(key, d, existing, room, r.inventory.LacksSlices)
	})
	if changed {
		r.changed(configuration)
	}
	return s, err
}

// existing returns what the cache shows of a Configuration's Instances.
func (r *Reconciler) existing(configuration types.NamespacedName) (map[string]limits.Places, error) {
	var list akriv0.InstanceList
	if err := r.client.List(context.Background(), &list, client.InNamespace(configuration.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	all := map[string]limits.Places{}
	for i := range list.Items {
		if key := client.ObjectKeyFromObject(&list.Items[i]); naming.ConfigurationOf(key) == configuration {
			all[key.Name] = limits.Places{"": 1}
		}
	}
	return all, nil
}
