package claims

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Taken is the hold of a container that is being created on its slots. Exactly
// one of Created and Failed is to be called.
type Taken struct {
	claims *Claims
	user   *user
	wrote  []slot.Name // claims that were not the pod's before
}

// Take claims the slots of a container, all or none, before it is created. It
// returns a *Refusal for what the container may not have, and another error for
// what could not be found out or written; either is worth the kubelet's retry.
// It needs no API call when the pod has the claims already. After an error that is no refusal
// those that were made, answered or not, stay for the pod's next try as long as the pod is
// entitled to use the slots.
func (c *Claims) Take(ctx context.Context, r Request) (*Taken, error) {
	uses, err := r.verify()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	if err := c.ready(ctx, &r); err != nil {
		return nil, err
	}
	t := &Taken{claims: c, user: &user{sandbox: r.Sandbox, pod: r.Pod, name: r.Container, slots: uses}}
	if err := c.containers.begin(t.user); err != nil {
		c.Resync() // should the other container have gone behind our back
		return nil, err
	}
	wrote, errs := make([]bool, len(r.Grants)), make([]error, len(r.Grants))
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), workers, len(r.Grants), func(i int) {
		wrote[i], errs[i] = c.take(ctx, &r, r.Grants[i])
	})
	for i, g := range r.Grants {
		if wrote[i] {
			t.wrote = append(t.wrote, g.Slot)
		}
	}
	c.config.Metrics.ClaimsTaken(len(t.wrote))
	if err := cmp.Or(errs...); err != nil {
		if refusal := (*Refusal)(nil); !errors.As(err, &refusal) {
			t.wrote = nil // the next try goes on from there: hundreds of slots take longer than a runtime waits
		}
		t.release()
		return nil, err
	}
	if len(t.wrote) > 0 {
		names := make([]string, 0, len(t.wrote))
		for _, name := range t.wrote {
			names = append(names, name.String())
		}
		klog.FromContext(ctx).Info("Claimed slots", "pod", klog.KRef(r.Pod.Namespace, r.Pod.Name), "container", r.Container, "slots", names)
	}
	return t, nil
}

// ready waits until it is known what containers and claims there are. The claims of a
// container that the checkpoint has are known.
func (c *Claims) ready(ctx context.Context, r *Request) error {
	select {
	case <-c.known:
	case <-ctx.Done():
		return fmt.Errorf("the runtime has not yet said which containers use slots: %w", cmp.Or(c.ResyncError(), ctx.Err()))
	}
	if c.savedAll(r) {
		return nil
	}
	select {
	case <-c.synced:
	case <-ctx.Done():
		return fmt.Errorf("the API server has not yet said which Configurations and SlotClaims there are: %w", ctx.Err())
	}
	return nil
}

// take claims one slot; wrote says that it was not the pod's before.
func (c *Claims) take(ctx context.Context, r *Request, g assignment.Grant) (wrote bool, err error) {
	unlock, err := c.store.lock(ctx, g.Slot)
	if err != nil {
		return false, err
	}
	defer unlock()
	spec := specOf(c.config.Node, r.Pod, r.Container, levelOf(g))
	if c.savedHold(g.Slot, spec) {
		return false, nil
	}
	labelsOf := func() (map[string]string, error) { return c.config.Namespaces(ctx, r.Pod.Namespace) }
	err = permit(g, c.configurations(), same(c.store.get(g.Slot), spec), r.Pod.Namespace, labelsOf)
	if err != nil || c.has(g.Slot, spec) {
		return false, err
	}
	wrote, other, err := c.hold(ctx, g.Slot, spec)
	switch {
	case errors.Is(err, ErrNotBelieved):
		return false, nil
	case other != nil:
		return false, refuseHeld(g.Slot, other)
	}
	return wrote, err
}

// Created says that the runtime has created the container.
func (t *Taken) Created(id string) {
	t.claims.containers.created(t.user, id)
	t.claims.fenceCreated(t.user)
	t.enqueue()
}

// Failed says that the runtime did not create the container, as err says. What
// Take claimed is released, unless another container of the pod uses it by now.
// When err leaves open whether the container exists, the runtime is asked first.
func (t *Taken) Failed(err error) {
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable:
		t.claims.containers.failed(t.user, nil) // reconciled, after grace
		t.claims.Resync()
		t.enqueue()
	default:
		t.release()
	}
}

func (t *Taken) release() {
	t.claims.containers.failed(t.user, t.wrote)
	t.enqueue()
}

// enqueue has all slots looked at: while the create was in flight, whatever else was
// to be done about them had to wait.
func (t *Taken) enqueue() {
	t.claims.enqueue(slices.Collect(maps.Keys(t.user.slots)))
}
