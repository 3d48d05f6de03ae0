package agent

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/discovery"
	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/slot"
)

// found is a device as its handler reported it.
type found struct {
	discovery.Device
	shared bool
	hash   string // slot.InstanceHash of it
}

// properties are what containers get to know of the device: the handler's
// properties, and over them the Configuration's. The map is the caller's.
func (f *found) properties(configuration *v0.Configuration) map[string]string {
	all := make(map[string]string, len(f.Properties)+len(configuration.Spec.BrokerProperties))
	maps.Copy(all, f.Properties)
	maps.Copy(all, configuration.Spec.BrokerProperties)
	return all
}

// desired returns what the device's Instance should be, given what it is now;
// existing is nil when there is none, and is not changed. Who holds a slot is
// never changed, nor what others may have added to the metadata.
func desired(existing *v0.Instance, configuration *v0.Configuration, device found, node string) *v0.Instance {
	instance := &v0.Instance{ObjectMeta: metav1.ObjectMeta{
		Namespace: configuration.Namespace,
		Name:      slot.InstanceName(configuration.Name, device.hash),
	}}
	if existing != nil {
		instance = existing.DeepCopy()
	}
	instance.OwnerReferences = ownedBy(instance.OwnerReferences, configuration)
	instance.ManagedFields = untracked(instance.ManagedFields)
	spec := &instance.Spec
	spec.ConfigurationName = configuration.Name
	spec.CDIName = v0.GroupName + "/" + configuration.Name + "=" + device.hash
	spec.Capacity = max(configuration.Spec.Capacity, 1) // 1 is the API's default
	spec.BrokerProperties = device.properties(configuration)
	spec.Shared = device.shared
	switch {
	case !device.shared:
		spec.Nodes = []string{node}
	case !slices.Contains(spec.Nodes, node):
		spec.Nodes = append(spec.Nodes, node)
	}
	spec.DeviceUsage = withSlots(spec.DeviceUsage, instance.Name, int(spec.Capacity))
	return instance
}

// untracked ends the API server's record of who set which field, which is of use to
// server-side apply alone: it stays when somebody has applied the Instance, as Akri's
// agent does. The record names each node and each slot once more, and is compared
// at each write: with 500 nodes it is most of what a claim costs. One empty entry is
// what asks for its end, which lasts until the next apply.
func untracked(fields []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	applied := func(e metav1.ManagedFieldsEntry) bool { return e.Operation == metav1.ManagedFieldsOperationApply }
	if len(fields) == 0 || slices.ContainsFunc(fields, applied) {
		return fields
	}
	return []metav1.ManagedFieldsEntry{{}}
}

// withSlots changes usage so that each slot of the Instance has an entry and
// nothing else has, but for entries that are held: one beyond the capacity goes
// when it is released.
func withSlots(usage map[string]string, instance string, capacity int) map[string]string {
	listed := 0
	for name, holder := range usage {
		if s, err := slot.Parse(name); err == nil && s.Instance == instance && s.Index < capacity {
			listed++
		} else if holder == "" {
			delete(usage, name)
		}
	}
	if listed == capacity { // the usual case, spared the making of names
		return usage
	}
	if usage == nil {
		usage = make(map[string]string, capacity)
	}
	for i := range capacity {
		name := slot.Name{Instance: instance, Index: i}.String()
		usage[name] = usage[name]
	}
	return usage
}

// ownedBy makes the Configuration the controller, so that the garbage collector
// removes the Instance with it. Other owners stay, unless they were controller
// in its place or are a former Configuration.
func ownedBy(owners []metav1.OwnerReference, configuration *v0.Configuration) []metav1.OwnerReference {
	isController := func(o metav1.OwnerReference) bool {
		return o.UID == configuration.UID && o.Controller != nil && *o.Controller
	}
	if slices.ContainsFunc(owners, isController) {
		return owners
	}
	// Not blockOwnerDeletion: it would need the right to update finalizers, and
	// deleting a Configuration need not wait for its Instances.
	controller := true
	kept := []metav1.OwnerReference{{
		APIVersion: v0.SchemeGroupVersion.String(),
		Kind:       "Configuration",
		Name:       configuration.Name,
		UID:        configuration.UID,
		Controller: &controller,
	}}
	for _, o := range owners {
		replaced := o.UID == configuration.UID || o.Controller != nil && *o.Controller ||
			o.APIVersion == v0.SchemeGroupVersion.String() && o.Kind == "Configuration"
		if !replaced {
			kept = append(kept, o)
		}
	}
	return kept
}

// withdrawn returns the Instance without this node, or nil when no node is left
// that can reach the device: then it is to be deleted. existing is not changed,
// and is returned itself when the node is not in it.
func withdrawn(existing *v0.Instance, node string) *v0.Instance {
	left := slices.DeleteFunc(slices.Clone(existing.Spec.Nodes), func(n string) bool { return n == node })
	switch len(left) {
	case 0:
		return nil
	case len(existing.Spec.Nodes):
		return existing
	}
	instance := existing.DeepCopy()
	instance.Spec.Nodes = left
	return instance
}
