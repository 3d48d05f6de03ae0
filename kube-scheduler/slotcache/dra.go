package slotcache

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubeslot/kubeslot/kube-scheduler/informer"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// ResourceSliceHandler follows the ResourceSlices that list Instances.
func (b *Cache) ResourceSliceHandler() cache.ResourceEventHandler {
	return draHandler(b, v1alpha1.PublishedInstances)
}

// ResourceClaimHandler follows the ResourceClaims that have Instances allocated. Those that this process is
// just allocating it does not see: see docs/scheduler.md.
func (b *Cache) ResourceClaimHandler() cache.ResourceEventHandler {
	return draHandler(b, v1alpha1.AllocatedInstances)
}

// draHandler follows objects by the Instances that they name, of which most name none.
func draHandler[T metav1.Object](b *Cache, instances func(T) []string) cache.ResourceEventHandler {
	return informer.Handler(
		func(o T) { b.setDRA(o, instances(o)) },
		func(o T) { b.setDRA(o, nil) },
		func(before, now T) bool { return slices.Equal(instances(before), instances(now)) })
}

// setDRA enters the Instances that an object of DRA's names now.
func (b *Cache) setDRA(o metav1.Object, instances []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.record(b.ledger.SetDRA(string(o.GetUID()), instances))
}
