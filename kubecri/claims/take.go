package claims

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/slot"
)

// conflictBackoff is between attempts of which each starts from what the API
// server has: ten of them mean ten other writers in a row.
var conflictBackoff = wait.Backoff{Duration: 5 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: 500 * time.Millisecond}

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
// It needs no API call when the pod has the claims already.
func (c *Claims) Take(ctx context.Context, r Request) (*Taken, error) {
	if err := r.verify(); err != nil {
		return nil, err
	}
	usages, err := r.usages(c.config.Node)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	select {
	case <-c.ready:
	case <-ctx.Done():
		return nil, fmt.Errorf("the runtime has not yet said which containers use slots: %w", ctx.Err())
	}
	t := &Taken{claims: c, user: &user{sandbox: r.Sandbox, pod: r.Pod, name: r.Container, slots: usages}}
	if err := c.book.begin(t.user); err != nil {
		c.Resync() // should the other container have gone behind our back
		return nil, err
	}
	for _, instance := range instancesOf(usages) {
		wrote, err := c.takeOf(ctx, instance, &r)
		t.wrote = append(t.wrote, wrote...)
		if err != nil {
			t.release()
			return nil, err
		}
	}
	c.config.Metrics.ClaimsTaken(len(t.wrote))
	if len(t.wrote) > 0 {
		klog.FromContext(ctx).V(2).Info("Claimed slots", "pod", klog.KRef(r.Pod.Namespace, r.Pod.Name), "container", r.Container, "slots", t.wrote)
	}
	return t, nil
}

// takeOf claims the slots of one Instance and returns those that it wrote, or
// may have written when the error is not a refusal.
func (c *Claims) takeOf(ctx context.Context, instance string, r *Request) (wrote []slot.Name, err error) {
	unlock, err := c.lock(ctx, instance)
	if err != nil {
		return nil, err
	}
	defer unlock()
	found := c.store.named(instance)
	cached := len(found) > 0
	if !cached {
		if found, err = c.store.live(ctx, instance); err != nil {
			return nil, err
		}
	}
	if len(found) == 0 {
		return nil, noInstance(instance)
	}
	exists, err := c.modify(ctx, found[0], cached, func(in *akriv0.Instance) (edit, error) {
		e, err := claim(in, c.config.Node, r)
		wrote = wrote[:0]
		for name := range r.slotsOf(instance) {
			if _, writes := e[name.String()]; writes {
				wrote = append(wrote, name)
			}
		}
		return e, err
	})
	slices.SortFunc(wrote, compareSlots)
	if err == nil && !exists {
		return nil, noInstance(instance)
	}
	return wrote, err
}

func noInstance(name string) error {
	return Refusef("Instance %s does not exist: its device was not found by any node; creation is retried, and the device may come back", name)
}

// modify writes what f says of an Instance, which it is asked again when somebody
// else wrote in between, or when it objects to a copy that may be old. exists is
// false when the Instance is gone.
func (c *Claims) modify(ctx context.Context, in *akriv0.Instance, cached bool, f func(*akriv0.Instance) (edit, error)) (exists bool, err error) {
	backoff := conflictBackoff
	for {
		e, err := f(in)
		if err == nil {
			if len(e) == 0 {
				return true, nil
			}
			err = c.store.update(ctx, e.apply(in))
			if err == nil {
				return true, nil
			}
			if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) || backoff.Steps == 0 {
				return true, err
			}
			c.config.Metrics.ClaimConflict()
			if !cached {
				if err := sleep(ctx, backoff.Step()); err != nil {
					return true, err
				}
			}
		} else if !cached {
			return true, err
		}
		cached = false
		if in, err = c.store.get(ctx, in); err != nil || in == nil {
			return in != nil, err
		}
	}
}

// Created says that the runtime has created the container.
func (t *Taken) Created(id string) { t.claims.book.created(t.user, id) }

// Failed says that the runtime did not create the container, as err says. What
// Take claimed is released, unless another container of the pod uses it by now.
// When err leaves open whether the container exists, the runtime is asked first.
func (t *Taken) Failed(err error) {
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable:
		t.claims.book.failed(t.user, nil) // reconciled, after grace
		t.claims.Resync()
		t.enqueue()
	default:
		t.release()
	}
}

func (t *Taken) release() {
	t.claims.book.failed(t.user, t.wrote)
	t.enqueue()
}

// enqueue has all Instances looked at: while the create was in flight, whatever
// else was to be done about its slots had to wait.
func (t *Taken) enqueue() {
	t.claims.enqueue(slices.Collect(maps.Keys(t.user.slots)))
}

// slotsOf returns the request's slots of one Instance.
func (r *Request) slotsOf(instance string) map[slot.Name]bool {
	names := map[slot.Name]bool{}
	for _, g := range r.Grants {
		if g.Slot.Instance == instance {
			names[g.Slot] = true
		}
	}
	return names
}

// instancesOf returns the names of the slots' Instances, sorted.
func instancesOf(usages map[slot.Name]slot.Usage) []string {
	names := map[string]bool{}
	for name := range usages {
		names[name.Instance] = true
	}
	return slices.Sorted(maps.Keys(names))
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return errors.Join(errors.New("too many others write the same Instance"), ctx.Err())
	}
}
