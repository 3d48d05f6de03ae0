package claims

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// In device-plugin mode ids of the kubelet's hold slots, and not pods. Which containers use slots the
// runtime says, as ever; a slot that no container uses is held while the kubelet says so.

// Kubelet is the source of what its ids hold.
type Kubelet struct {
	// Ask asks which ids pods have. It is called after the runtime has been listed; nothing is released
	// unless it answers. It returns after what time it is to be asked again; 0 for not before something
	// happens.
	Ask func(ctx context.Context) (again time.Duration, err error)
	// Keeps reports whether the claim of a slot that no container uses stays. While it is called, and
	// until the claim is gone, nobody else is at the slot's claim.
	Keeps func(name slot.Name) bool
	// Gives, if set, adds the Instances of which slots are about to be given, or are without a claim. It is
	// as Config.HeldChanged is.
	Gives func(instances map[string]bool)
}

// afterEnd is when the kubelet is asked again after something has ended: it may run a container again,
// and takes a while to see that its pod is over.
var afterEnd = []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond,
	400 * time.Millisecond, time.Second}

// relistGap is at least between two times that the kubelet is asked.
const relistGap = 50 * time.Millisecond

// again is after what time to list again, at a step after something has happened; 0 for not.
func (k *Kubelet) again(step int, asked time.Duration) time.Duration {
	if k != nil && step < len(afterEnd) {
		return afterEnd[step]
	}
	return asked
}

// askKept has the claim of a slot stay if the kubelet keeps it.
func (c *Claims) askKept(v *view) {
	if c.config.Kubelet == nil || v.claim == nil || len(v.use.held) > 0 || !c.config.Kubelet.Keeps(v.slot) {
		return
	}
	v.entitled = append(v.entitled, useOf(v.claim))
	v.use.freed = nil
	c.containers.settled(v.slot)
}

// anyUnused reports whether the node has claims of slots that a container is to use and none does.
func (c *Claims) anyUnused() bool {
	for _, claim := range c.store.all() {
		if name, err := claim.Slot(); err == nil && !claim.Spec.ByDRA() && !c.containers.uses(name) {
			return true
		}
	}
	return false
}

// specOf is the claim of a slot that the container uses.
func (c *Claims) specOf(u *user, name slot.Name) v1alpha1.SlotClaimSpec {
	if c.config.Kubelet != nil || u.claim != nil {
		spec := c.specOfID(u.slots[name])
		spec.ResourceClaim = u.claim
		return spec
	}
	return specOf(c.config.Node, u.pod, u.name, u.slots[name].Level)
}

func (c *Claims) specOfID(use Use) v1alpha1.SlotClaimSpec {
	return v1alpha1.SlotClaimSpec{NodeName: c.config.Node, Level: use.Level, Holder: use.Holder}
}

// Listed is closed once the runtime has said which containers use slots.
func (c *Claims) Listed() <-chan struct{} { return c.known }

// Refresh asks what is in use, and brings all claims up to date before it returns.
func (c *Claims) Refresh(ctx context.Context) error {
	if err := c.Relist(ctx); err != nil || !c.isSynced() {
		return err
	}
	return c.reconcileAll(ctx, c.names())
}

// Relist asks what is in use.
func (c *Claims) Relist(ctx context.Context) error {
	_, err := c.resync(ctx)
	return err
}

// Hold claims a slot for an id of the kubelet's. wrote says that the id did not have it before, and
// other is the claim in the way. A slot may be held without a claim, see hold.
func (c *Claims) Hold(ctx context.Context, name slot.Name, use Use,
) (wrote bool, other *v1alpha1.SlotClaim, err error) {
	return c.HoldFor(ctx, name, c.specOfID(use))
}

// HoldFor is Hold for the holder that the spec names; its node is this one.
func (c *Claims) HoldFor(ctx context.Context, name slot.Name, spec v1alpha1.SlotClaimSpec,
) (wrote bool, other *v1alpha1.SlotClaim, err error) {
	spec.NodeName = c.config.Node
	unlock, err := c.store.lock(ctx, name)
	if err != nil {
		return false, nil, err
	}
	defer unlock()
	c.containers.wanted(name, spec.Holder)
	switch {
	case c.savedHold(name, spec) || c.has(name, spec):
		return false, nil, nil
	case !c.isSynced():
		return false, nil, errors.New("the API server has not yet said which Configurations and SlotClaims there are")
	}
	return c.hold(ctx, name, spec)
}

// GiveBack deletes this node's claim of the slot, if there is one.
func (c *Claims) GiveBack(ctx context.Context, name slot.Name) error {
	unlock, err := c.store.lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	claim := c.store.get(name)
	if claim == nil {
		return nil
	}
	if err := c.release(ctx, name, claim); err != nil {
		return err
	}
	c.config.Metrics.ClaimsReleased(1)
	return nil
}

// Holding is how this node holds a slot.
type Holding struct {
	Slot slot.Name
	Use
	Claim *v1alpha1.SlotClaim // nil where somebody has deleted it, and a container uses the slot
	Used  bool                // by a container
	Lives bool                // and that has not exited
}

// Holdings are the slots that ids of the kubelet's hold of the Instance, or of all for "". While the API server
// has not been read they are those of the checkpoint.
func (c *Claims) Holdings(instance string) []Holding {
	var all []Holding
	claimed := map[slot.Name]bool{}
	for _, claim := range c.claimsOf(instance) {
		name, err := claim.Slot()
		if err != nil {
			continue
		}
		claimed[name] = true
		if claim.Spec.ByDRA() {
			continue
		}
		h := Holding{Slot: name, Use: useOf(claim), Claim: claim}
		h.Used, h.Lives = c.containers.usedAs(name, h.Use)
		all = append(all, h)
	}
	for name, u := range c.containers.usersOf(instance) {
		if !claimed[name] && u.claim == nil {
			_, lives := c.containers.usedAs(name, u.slots[name])
			all = append(all, Holding{Slot: name, Use: u.slots[name], Used: true, Lives: lives})
		}
	}
	return all
}

func (c *Claims) claimsOf(instance string) (all []*v1alpha1.SlotClaim) {
	switch {
	case !c.isSynced():
		for name, claim := range c.saved.claims {
			if c.store.ours(claim) && (instance == "" || name.Instance == instance) {
				all = append(all, claim)
			}
		}
		return all
	case instance == "":
		return c.store.all()
	}
	return c.store.of(instance)
}

// Annotate writes into a claim which pod the kubelet has given its slot to.
func (c *Claims) Annotate(ctx context.Context, claim *v1alpha1.SlotClaim, pod string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": claim.ResourceVersion, // it may be another claim of the slot by now
		"annotations":     map[string]string{v1alpha1.PodAnnotation: pod}}})
	if err != nil {
		return err
	}
	got, err := c.store.API.Patch(ctx, claim.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: "kubecri"})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil
	case err != nil:
		return fmt.Errorf("write into SlotClaim %s that pod %s has the slot: %w", claim.Name, pod, err)
	}
	c.store.own.Wrote(got)
	return nil
}
