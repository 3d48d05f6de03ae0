package claims

import (
	"context"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// ResourceClaims hold slots of Configurations with spec.allocator DRA. One that is prepared uses them as a container
// does. Package dra says which is, and claims the slots before. What one that is not holds stays until package dra
// frees it: it may be about to be prepared, or containers may outlive what said that it is.

// Ready waits until it is known what containers and claims there are.
func (c *Claims) Ready(ctx context.Context) error { return c.ready(ctx, &Request{}) }

// OfResourceClaims returns the slots that ResourceClaims hold or use here, each with its holder, as far as it is known.
func (c *Claims) OfResourceClaims() map[v1alpha1.ResourceClaimReference]map[slot.Name]string {
	all := map[v1alpha1.ResourceClaimReference]map[slot.Name]string{}
	add := func(of *v1alpha1.ResourceClaimReference, name slot.Name, holder string) {
		if all[*of] == nil {
			all[*of] = map[slot.Name]string{}
		}
		all[*of][name] = holder
	}
	for _, claim := range c.store.all() {
		if name, err := claim.Slot(); err == nil && claim.Spec.ResourceClaim != nil {
			add(claim.Spec.ResourceClaim, name, claim.Spec.Holder)
		}
	}
	for name, u := range c.containers.usersOf("") {
		if u.claim != nil {
			add(u.claim, name, u.slots[name].Holder)
		}
	}
	return all
}

// isPrepared reports whether the ResourceClaim uses slots here.
func (c *Claims) isPrepared(of *v1alpha1.ResourceClaimReference) bool {
	return of != nil && c.containers.has(v1alpha1.DRAHolder(of.UID, nil))
}

// Use has a ResourceClaim use slots here, each with its holder, and no others. Those that it used before are released.
func (c *Claims) Use(of v1alpha1.ResourceClaimReference, slots map[slot.Name]string) {
	id := v1alpha1.DRAHolder(of.UID, nil)
	u := &user{id: id, sandbox: id, claim: &of, slots: map[slot.Name]Use{}}
	for name, holder := range slots {
		u.slots[name] = Use{v1alpha1.ConfigurationLevel, holder}
	}
	c.enqueue(slices.AppendSeq(c.containers.replace(u), maps.Keys(slots)))
}

// Free releases slots that their holders do not use. What cannot be released now is as soon as it can.
func (c *Claims) Free(ctx context.Context, slots map[slot.Name]string) error {
	var names []slot.Name
	for name, holder := range slots {
		names = append(names, c.containers.freeUnused(holder, []slot.Name{name})...)
	}
	c.enqueue(names)
	return c.reconcileAll(ctx, names)
}

// Taken returns who else than the holder has slots of the Instance on this node, as far as it is known, by
// index.
func (c *Claims) Taken(instance, holder string) map[int]string {
	taken := map[int]string{}
	for name, u := range c.containers.usersOf(instance) {
		if u.slots[name].Holder != holder {
			taken[name.Index] = u.String() + " on node " + c.config.Node
		}
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
