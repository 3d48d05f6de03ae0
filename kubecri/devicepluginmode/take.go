package devicepluginmode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/kubecri/devicepluginmode/deviceids"
	"github.com/kubeslot/kubeslot/kubecri/inject"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

const (
	// patience is how long the kubelet waits for us. It has no timeout of its own and admits one
	// pod after the other, so it must not be long; but a pod that we refuse has failed for good,
	// so it must be long enough for an API server that restarts or is slow.
	patience = 10 * time.Second
	// relistTimeout bounds one question what is in use, so that an API server that hangs leaves time for the rest.
	relistTimeout = patience / 4
	// retryEvery is the time between two attempts: see untilDecided.
	retryEvery = 200 * time.Millisecond
	// writers is how many claims are written at a time.
	writers = 8
)

// prefer chooses ids for a container and claims their slots, so that the kubelet's
// Allocate, which follows, finds them its own: two nodes that choose at the same time
// choose the same slots, and here the one that is late can choose again.
func (p *Plugins) prefer(ctx context.Context, k key, available, included []string, size int) ([]string, error) {
	taken, ids, err := p.take(ctx, k,
		func(r *deviceids.Resource) ([]string, error) { return r.Prefer(available, included, size) })
	if err == nil {
		p.asks.offer(taken.grants)
	}
	return ids, err
}

// allocate claims the slots of ids and returns what a container gets for them.
func (p *Plugins) allocate(ctx context.Context, k key, ids []string) (answer *pluginapi.ContainerAllocateResponse,
	err error) {
	ctx, span := p.Tracer.Call(ctx, "Allocate")
	defer func() { span.End(err) }()
	taken, _, err := p.take(ctx, k, func(*deviceids.Resource) ([]string, error) { return ids, nil })
	if err != nil {
		return nil, err
	}
	slots := make([]string, 0, len(ids))
	for _, g := range taken.grants {
		slots = append(slots, g.Slot.String())
	}
	span.Slots(slots)
	klog.FromContext(ctx).Info("Allocated slots", "resource", assignment.ResourcePrefix+k.name(), "devices", ids, "slots", slots)
	return taken.answer, nil
}

// taken is what a container gets.
type taken struct {
	grants []deviceids.Grant
	answer *pluginapi.ContainerAllocateResponse
}

// take claims the slots of the ids that choose returns, all or none.
//
// The kubelet's list of ids may be old, and so may be what this node knows of claims. So
// when another node has a slot already, there is another choice, by what is known now. When
// there is none, what this node holds for nobody, or for containers that have ended since, is released first.
func (p *Plugins) take(ctx context.Context, k key, choose func(*deviceids.Resource) ([]string, error),
) (*taken, []string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %s", patience))
	defer cancel()
	if p.allocating.Acquire(ctx, 1) != nil {
		return nil, nil, fmt.Errorf("wait for another container's allocation: %w", context.Cause(ctx))
	}
	defer p.allocating.Release(1)
	defer p.asks.chosen()
	var wrote []slot.Name
	listed, refreshed := false, false
	for {
		t, ids, err := p.decide(ctx, k, choose)
		if err == nil && !listed && p.asks.lately(t.grants) {
			if err = p.relist(ctx, t.grants); err == nil {
				listed = true
				continue
			}
		}
		if err == nil {
			var more []slot.Name
			more, err = p.claim(ctx, k, t.grants)
			wrote = append(wrote, more...)
			if err == nil {
				p.asks.asked(t.grants, p.Clock.Now()) // writes may have taken longer than settling
				p.Metrics.ClaimsTaken(len(wrote))
				return t, ids, nil
			}
			if errors.As(err, &conflict{}) && ctx.Err() == nil {
				continue // decided by what is known now
			}
		} else if !refreshed && ctx.Err() == nil {
			refreshed = true
			if p.claims.Refresh(ctx) == nil {
				listed = true
				continue
			}
		}
		// Whoever has the other slots: the kubelet is to know it before its next pod.
		p.asks.refused(wrote)
		p.claims.Resync()
		p.resyncs.Send() // devices may be listed because of these slots
		p.slotsChanged(k.configuration, "")
		return nil, nil, err
	}
}

// decide chooses ids, and prepares what a container gets for them: everything that can go
// wrong without a claim goes wrong before there is one.
func (p *Plugins) decide(ctx context.Context, k key, choose func(*deviceids.Resource) ([]string, error),
) (*taken, []string, error) {
	r := p.resource(k)
	if r == nil {
		return nil, nil, fmt.Errorf("this node has no devices of %s%s", assignment.ResourcePrefix, k.name())
	}
	ids, err := choose(r)
	if err != nil {
		return nil, nil, err
	}
	grants, err := r.Map(ids)
	if err != nil {
		return nil, nil, err
	}
	p.asks.choose(grants) // before it is known that the devices are there: see Agent.state
	answer, err := p.answer(ctx, k, grants)
	return &taken{grants, answer}, ids, err
}

// relist asks what is in use. The slots are not released meanwhile.
func (p *Plugins) relist(ctx context.Context, grants []deviceids.Grant) error {
	p.asks.asked(grants, p.Clock.Now())
	err := p.untilDecided(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, relistTimeout)
		defer cancel()
		return p.claims.Relist(ctx)
	})
	if err != nil {
		return fmt.Errorf("whether a container has slot %s still is not known: %w", grants[0].Slot, err)
	}
	return nil
}

// answer is what a container gets for the grants.
func (p *Plugins) answer(ctx context.Context, k key, grants []deviceids.Grant,
) (*pluginapi.ContainerAllocateResponse, error) {
	devices := map[string]discovery.Device{}
	var all []inject.Grant
	for _, g := range grants {
		device, ok := devices[g.Slot.Instance]
		if !ok {
			var err error
			if device, err = p.Device(ctx, g.Slot.Instance); err != nil {
				return nil, fmt.Errorf("slot %s cannot be given: %w", g.Slot, err)
			}
			devices[g.Slot.Instance] = device
		}
		grant := inject.Grant{Slot: g.Slot, Device: device}
		if p.CDI != nil {
			grant.CDI = p.CDI(ctx, g.Slot.Instance, device)
		}
		if k.level() == v1alpha1.ConfigurationLevel {
			grant.Holder = g.ID
		}
		all = append(all, grant)
	}
	edits, err := inject.SlotEdits(k.name(), all)
	if err != nil {
		return nil, err
	}
	add, err := inject.Merge(inject.Container{}, edits...)
	if err != nil {
		return nil, err
	}
	return add.AllocateResponse(), nil
}

// conflict is the error for a slot that another has claimed.
type conflict struct {
	slot slot.Name
	by   *v1alpha1.SlotClaim
}

func (c conflict) Error() string {
	return fmt.Sprintf("slot %s is claimed by %s", c.slot, c.by.HeldBy())
}

// claim makes the slots this node's. It returns those that it wrote, also with an error.
func (p *Plugins) claim(ctx context.Context, k key, grants []deviceids.Grant) (wrote []slot.Name, err error) {
	p.asks.asked(grants, p.Clock.Now())
	made, errs := make([]bool, len(grants)), make([]error, len(grants))
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), writers, len(grants), func(i int) {
		errs[i] = p.untilDecided(ctx, func() (err error) {
			made[i], err = p.hold(ctx, grants[i], k.level())
			return err
		})
	})
	for i, g := range grants {
		if made[i] {
			wrote = append(wrote, g.Slot)
		}
		p.slotsChanged(k.configuration, g.Slot.Instance)
	}
	for _, err := range errs { // a failure that is no conflict will not pass
		if err != nil && !errors.As(err, &conflict{}) {
			return wrote, err
		}
	}
	return wrote, cmp.Or(errs...)
}

// hold makes one slot this node's, or returns a conflict; made says that it was not before.
func (p *Plugins) hold(ctx context.Context, g deviceids.Grant, level v1alpha1.Level) (made bool, err error) {
	if g.Former != nil {
		p.asks.endUnclaimed(*g.Former)
		if err := p.claims.GiveBack(ctx, *g.Former); err != nil {
			return false, err
		}
	}
	use := claims.Use{Level: level, Holder: g.ID}
	made, other, err := p.claims.Hold(ctx, g.Slot, use)
	switch {
	case errors.Is(err, claims.ErrNotBelieved):
		// It is claimed once its container runs and the other's claim is deleted, which the controller does.
		p.asks.holdUnclaimed(g.Slot, use)
		return false, nil
	case other == nil:
		return made, err
	}
	p.met.Wrote(other)
	if g.Held && p.heldAs(g.Slot, use) { // a container has lost it, which is reported
		return false, nil
	}
	return false, conflict{g.Slot, other}
}

func (p *Plugins) heldAs(name slot.Name, use claims.Use) bool {
	return slices.ContainsFunc(p.holds(name.Instance), func(h held) bool { return h.Slot == name && h.Use == use })
}

// untilDecided calls write until the API server has done or refused it, or ctx ends. It
// retries what a restarting or overloaded API server may do later.
func (p *Plugins) untilDecided(ctx context.Context, write func() error) (err error) {
	_ = wait.PollUntilContextCancel(ctx, p.retryEvery, true, func(context.Context) (bool, error) {
		err = write()
		return err == nil || decided(err), nil
	})
	return err
}

// decided reports whether the API server has refused a write. A failed connection, a timeout,
// a 5xx or a 429 decides nothing.
func decided(err error) bool {
	if errors.As(err, &conflict{}) || errors.Is(err, claims.ErrContested) {
		return true
	}
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code < 500 && !apierrors.IsTooManyRequests(err)
}
