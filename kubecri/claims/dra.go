package claims

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// ResourceClaims hold slots of Configurations with spec.allocator DRA. Package dra claims such a slot when
// the kubelet prepares the ResourceClaim, and releases it when the kubelet unprepares it. No annotation of
// a container names the slot, so nothing that is known of containers releases it.

// OfDRA returns this node's claims that ResourceClaims hold, none while the API server has not been read. They are not
// to be changed.
func (c *Claims) OfDRA() []*v1alpha1.SlotClaim {
	return slices.DeleteFunc(c.store.all(), func(claim *v1alpha1.SlotClaim) bool { return !claim.Spec.ByDRA() })
}

// Ready waits until it is known what containers and claims there are.
func (c *Claims) Ready(ctx context.Context) error { return c.ready(ctx, &Request{}) }

// Taken returns who else than the holder has slots of the Instance on this node, as far as it is known, by
// index.
func (c *Claims) Taken(instance, holder string) map[int]string {
	taken := map[int]string{}
	for name := range c.containers.usesOf(instance) {
		taken[name.Index] = "a container on node " + c.config.Node
	}
	for _, claim := range c.claimsOf(instance) {
		if name, err := claim.Slot(); err == nil && claim.Spec.Holder != holder {
			taken[name.Index] = claim.HeldBy()
		}
	}
	return taken
}

// TakenElsewhere asks the API server who has slots of the Instance on other nodes, by index. The answer may
// be a little old.
func (c *Claims) TakenElsewhere(ctx context.Context, instance string) (map[int]string, error) {
	configuration, _ := slot.SplitInstance(instance)
	all, err := c.store.API.List(ctx, metav1.ListOptions{ResourceVersion: "0",
		LabelSelector: labels.Set{v1alpha1.ConfigurationLabel: configuration}.String()})
	if err != nil {
		return nil, fmt.Errorf("list the SlotClaims of Configuration %s: %w", configuration, err)
	}
	taken := map[int]string{}
	for i := range all.Items {
		claim := &all.Items[i]
		if name, err := claim.Slot(); err == nil && name.Instance == instance && claim.Spec.NodeName != c.config.Node {
			taken[name.Index] = claim.HeldBy()
		}
	}
	return taken, nil
}

// Release deletes a claim of this node, and no later one of its slot.
func (c *Claims) Release(ctx context.Context, claim *v1alpha1.SlotClaim) error {
	name, err := claim.Slot()
	if err != nil {
		return err
	}
	unlock, err := c.store.lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.release(ctx, name, claim); err != nil {
		return err
	}
	c.config.Metrics.ClaimsReleased(1)
	return nil
}

// ListOfDRA asks the API server for this node's claims that ResourceClaims hold: it knows also of one whose
// creation it has not answered, and which the watch does not show yet.
func (c *Claims) ListOfDRA(ctx context.Context) ([]*v1alpha1.SlotClaim, error) {
	list, err := c.store.API.List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", c.config.Node).String()})
	if err != nil {
		return nil, fmt.Errorf("list the SlotClaims of node %s: %w", c.config.Node, err)
	}
	var all []*v1alpha1.SlotClaim
	for i := range list.Items {
		if claim := &list.Items[i]; claim.Spec.NodeName == c.config.Node && claim.Spec.ByDRA() {
			all = append(all, claim)
		}
	}
	return all, nil
}
