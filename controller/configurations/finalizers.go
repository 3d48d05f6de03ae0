package configurations

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// maybeAkris returns the finalizers that Akri's agents may have set: each sets its
// node's name. Akri's agents take theirs off; once they are gone nobody does, and the
// Configuration could not be deleted.
func maybeAkris(finalizers []string) []string {
	return slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool {
		return strings.Contains(f, "/") || f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
	})
}

// akris returns those that one of Akri's agents set: it applies them as "<node>-fin".
func akris(c *akriv0.Configuration) []string {
	return slices.DeleteFunc(maybeAkris(c.Finalizers), func(f string) bool {
		return !slices.ContainsFunc(c.ManagedFields, func(m metav1.ManagedFieldsEntry) bool { return m.Manager == f+"-fin" })
	})
}

// takeOff removes finalizers of Akri's agents whose nodes run kubecri now, or are gone; of a Configuration that is
// being deleted all, once an agent would have had the time. It reports whether others remain, to be looked at again.
func (r *Reconciler) takeOff(ctx context.Context, c *akriv0.Configuration) (remain bool, _ error) {
	if len(maybeAkris(c.Finalizers)) == 0 {
		return false, nil
	}
	live := &akriv0.Configuration{} // the cache has no managedFields
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(c), live); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	want := live.DeepCopy()
	agentsGone := live.DeletionTimestamp != nil && r.Clock.Since(live.DeletionTimestamp.Time) >= agentsTake
	for _, f := range akris(live) {
		if r.Inventory.LacksSlices(f) && !agentsGone {
			remain = true
			continue
		}
		want.Finalizers = slices.DeleteFunc(want.Finalizers, func(have string) bool { return have == f })
	}
	if len(want.Finalizers) == len(live.Finalizers) {
		return remain, nil
	}
	err := r.Client.Patch(ctx, want, client.MergeFromWithOptions(live, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return remain, fmt.Errorf("take Akri's finalizers off Configuration %s/%s: %w", c.Namespace, c.Name, err)
	}
	klog.FromContext(ctx).Info("Took finalizers of Akri's agents off a Configuration", "configuration", klog.KObj(c), "before", live.Finalizers, "after", want.Finalizers)
	return remain, nil
}
