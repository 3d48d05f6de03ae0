package slotcache

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubeslot/kubeslot/kube-scheduler/informer"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// ResourceSliceHandler follows the ResourceSlices that list Instances.
func (b *Cache) ResourceSliceHandler() cache.ResourceEventHandler { return draHandler(b, listed) }

// ResourceClaimHandler follows the ResourceClaims that have Instances allocated. Those that this process is
// just allocating it does not see: see docs/scheduler.md.
func (b *Cache) ResourceClaimHandler() cache.ResourceEventHandler { return draHandler(b, allocated) }

// draHandler follows the objects of which instances returns some.
func draHandler[T metav1.Object](b *Cache, instances func(T) []string) cache.ResourceEventHandler {
	return cache.FilteringResourceEventHandler{
		FilterFunc: func(obj any) bool {
			if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = d.Obj
			}
			return len(instances(obj.(T))) > 0
		},
		Handler: informer.Handler(
			func(o T) { b.setDRA(o, instances(o)) },
			func(o T) { b.setDRA(o, nil) },
			func(before, now T) bool { return slices.Equal(instances(before), instances(now)) }),
	}
}

// setDRA enters the Instances that an object of DRA's names now.
func (b *Cache) setDRA(o metav1.Object, instances []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.record(b.ledger.SetDRA(string(o.GetUID()), instances))
}

// listed are the Instances in a ResourceSlice of the controller's. A slice with a node's name is the work of
// a kubelet's credentials, which must not take a device from other nodes.
func listed(s *resourceapi.ResourceSlice) (instances []string) {
	if s.Spec.Driver != v1alpha1.DRADriver || s.Spec.NodeName != nil {
		return nil
	}
	for i := range s.Spec.Devices {
		instances = append(instances, s.Spec.Devices[i].Name)
	}
	return instances
}

// allocated are the Instances of which a ResourceClaim has some.
func allocated(c *resourceapi.ResourceClaim) (instances []string) {
	if c.Status.Allocation == nil {
		return nil
	}
	for _, r := range c.Status.Allocation.Devices.Results {
		if r.Driver == v1alpha1.DRADriver {
			instances = append(instances, r.Device)
		}
	}
	return instances
}

// Handover returns the Configuration in force that has the name, nil for none, and the Instances that the
// allocator has yet which its spec does not name: see Ledger.Handover. It reports false while this scheduler
// does not lead, or does not know all holders.
func (b *Cache) Handover(configuration string) (c *akriv0.Configuration, held []string, known bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if !b.leads || !b.Synced() {
		return nil, nil, false
	}
	c, held = b.ledger.Handover(configuration)
	return c, held, true
}

// handedOver passes on which Configurations' hand-over has changed. The caller holds mu.
func (b *Cache) handedOver(configurations []string) {
	if b.HandoverChanged == nil {
		return
	}
	for _, name := range configurations {
		b.HandoverChanged(name)
	}
}
