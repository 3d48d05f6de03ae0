package agent

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// duplicates remembers, by Configuration name, which Configuration was told
// that it gives way to which, so that it is told once.
type duplicates map[string]map[types.UID]types.UID

// reconcileConfiguration starts, stops and updates discovery for the
// Configuration of the name, and has its Instances looked at.
func (a *Agent) reconcileConfiguration(ctx context.Context, name string) error {
	all, err := a.configurationsNamed(name)
	if err != nil {
		return err
	}
	first, others := rank(all)
	a.tell(ctx, name, first, others)

	a.mu.Lock()
	k := a.kinds[name]
	if k != nil && (first == nil || !k.discovers(first)) {
		k.stop()
		delete(a.kinds, name)
		k = nil
	}
	switch {
	case first == nil:
	case k == nil:
		a.kinds[name] = a.startDiscovery(ctx, first)
	default:
		k.configuration = first
	}
	a.announce()
	a.mu.Unlock()
	return a.queueInstances(name)
}

// queueInstances has every Instance looked at that the Configuration has, or
// should have.
func (a *Agent) queueInstances(configuration string) error {
	instances, err := a.instancesOf(configuration)
	if err != nil {
		return err
	}
	for _, i := range instances {
		a.instances.Add(types.NamespacedName{Namespace: i.Namespace, Name: i.Name})
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	if k := a.kinds[configuration]; k != nil {
		for instance := range k.devices {
			a.instances.Add(types.NamespacedName{Namespace: k.configuration.Namespace, Name: instance})
		}
	}
	return nil
}

// rank returns the one of several Configurations of one name that owns it, and
// those that give way to it. One that is being deleted is neither: the garbage
// collector removes its Instances.
func rank(all []*v0.Configuration) (first *v0.Configuration, others []*v0.Configuration) {
	live := slices.DeleteFunc(slices.Clone(all), func(c *v0.Configuration) bool { return !c.MayOwnName() })
	if len(live) == 0 {
		return nil, nil
	}
	slices.SortFunc(live, v0.CompareOwners)
	return live[0], live[1:]
}

// tell says to Configurations that give way to another why nothing happens.
func (a *Agent) tell(ctx context.Context, name string, first *v0.Configuration, others []*v0.Configuration) {
	before := a.duplicates[name]
	delete(a.duplicates, name)
	for _, c := range others {
		if a.duplicates[name] == nil {
			a.duplicates[name] = map[types.UID]types.UID{}
		}
		a.duplicates[name][c.UID] = first.UID
		if before[c.UID] == first.UID {
			continue
		}
		klog.FromContext(ctx).Info("A Configuration is not discovered, because an older one has its name",
			"configuration", klog.KObj(c), "older", klog.KObj(first))
		a.config.Recorder.Eventf(c, corev1.EventTypeWarning, "DuplicateName",
			"Not discovered: Configuration %s/%s is older and has the resource %s/%s. Rename this one, or delete the other.",
			first.Namespace, first.Name, v0.GroupName, name)
	}
}

// discovers reports whether the discovery under way is that of the
// Configuration as it is now.
func (k *kind) discovers(c *v0.Configuration) bool {
	return k.configuration.UID == c.UID &&
		apiequality.Semantic.DeepEqual(k.configuration.Spec.DiscoveryHandler, c.Spec.DiscoveryHandler)
}
