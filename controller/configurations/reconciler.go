// Package configurations writes the status of Configurations: their devices, slots and
// brokers in numbers, and what is wrong, for people. Nobody decides anything by it, but by status.allocator, which
// it writes where Config.Allocator is set.
package configurations

import (
	"context"
	"fmt"
	"sync"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubeslot/kubeslot/controller/brokers"
	"github.com/kubeslot/kubeslot/controller/inventory"
	"github.com/kubeslot/kubeslot/controller/limits"
	"github.com/kubeslot/kubeslot/controller/validation"
	"github.com/kubeslot/kubeslot/controller/watch"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

const (
	// Interval is the least time between two writes of one status.
	Interval = 5 * time.Second
	// lookInterval is the least time between two looks at one Configuration that lead
	// to no write: it may have thousands of Instances. It is also how long the first
	// status of a Configuration waits, so that its first devices are in it.
	lookInterval = time.Second
	// brokersWithin is how long the first status of this process waits until the
	// brokers of all Instances have been looked at.
	brokersWithin = 10 * time.Second
	// akriAgain is when finalizers of Akri's are looked at again that must stay for now.
	akriAgain = 10 * time.Second
	// agentsTake is how long Akri's agents may take until they have let a Configuration go that is being deleted.
	agentsTake = time.Minute
)

// Config is what a Reconciler needs; all of it is required but Disabled, DRA and Allocator.
type Config struct {
	// Client reads Configurations from the cache.
	Client client.Client
	// Live reads Configurations from the API server.
	Live      client.Reader
	Inventory *inventory.Inventory
	// Instances tells how many devices of a Configuration have an Instance.
	Instances func(types.NamespacedName) limits.Sum
	// Brokers tells how a Configuration's brokers fare.
	Brokers func(types.NamespacedName) brokers.Sum
	// Check says what is wrong with a Configuration itself. It is called once for each
	// generation.
	Check func(*akriv0.Configuration) validation.Findings
	// DRA say, each, what is wrong with how a Configuration of the name is published for DRA; "" for nothing.
	DRA []func(configuration string) string
	// Allocator says who gives a Configuration's devices, where nobody else writes that: dra.Handover. Nil
	// leaves it to kube-scheduler.
	Allocator func(context.Context, *akriv0.Configuration) (*akriv0.AllocatorStatus, error)
	Clock     clock.PassiveClock
	// Disabled are the parts that do not run. The zero value is none.
	Disabled Disabled
}

// Reconciler writes one status at a time.
type Reconciler struct {
	Config

	mu      sync.Mutex
	times   map[types.NamespacedName]times
	checked map[types.NamespacedName]checked
}

// times say when a Configuration was looked at, and until when it is not written.
type times struct{ first, looked, quietUntil time.Time }

var _ reconcile.Reconciler = &Reconciler{}

// New makes a Reconciler.
func New(c Config) *Reconciler {
	return &Reconciler{Config: c, times: map[types.NamespacedName]times{}, checked: map[types.NamespacedName]checked{}}
}

// Reconcile brings a Configuration's status up to date.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	key := request.NamespacedName
	c, err := watch.Get(ctx, r.Client, key, &akriv0.Configuration{})
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read Configuration %s: %w", key, err)
	}
	if c == nil {
		r.forget(key)
		return reconcile.Result{}, nil
	}
	if early := r.early(key, c); early > 0 && c.DeletionTimestamp == nil {
		return reconcile.Result{RequeueAfter: early}, nil
	}
	remain, err := r.takeOff(ctx, c)
	if err != nil {
		return reconcile.Result{}, err
	}
	var after time.Duration
	if c.DeletionTimestamp == nil {
		if after, err = r.writeStatus(ctx, key, c); err != nil {
			return reconcile.Result{}, err
		}
	}
	if remain && (after == 0 || after > akriAgain) {
		after = akriAgain
	}
	return reconcile.Result{RequeueAfter: after}, nil
}

// early returns how long it is until a Configuration is to be looked at; if that is now, it notes that it was.
func (r *Reconciler) early(key types.NamespacedName, c *akriv0.Configuration) time.Duration {
	now := r.Clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.times[key]
	if t.first.IsZero() {
		t.first = now
	}
	wait := max(t.quietUntil.Sub(now), t.looked.Add(lookInterval).Sub(now))
	if c.Status.ObservedGeneration == 0 {
		wait = max(wait, t.first.Add(lookInterval).Sub(now))
	}
	if wait <= 0 {
		t.looked = now
	}
	r.times[key] = t
	return min(wait, Interval)
}

// writeStatus writes the status if it is another, and returns when to look again.
func (r *Reconciler) writeStatus(
	ctx context.Context, key types.NamespacedName, c *akriv0.Configuration,
) (time.Duration, error) {
	now := r.Clock.Now()
	r.mu.Lock()
	t := r.times[key]
	r.mu.Unlock()
	summary := r.Inventory.Summary(key)
	sum, instances := r.Brokers(key), r.Instances(key)
	unknown := sum.Instances < summary.Instances-instances.Withheld
	if c.Spec.HasBroker() && !r.Disabled.Brokers && unknown && now.Sub(t.first) < brokersWithin {
		return lookInterval, nil
	}
	want := c.DeepCopy()
	patch, again := client.MergeFrom(c), time.Duration(0)
	if r.Allocator != nil {
		var err error
		if want.Status.Allocator, err = r.Allocator(ctx, c); err != nil {
			return 0, fmt.Errorf("decide who gives the devices of Configuration %s: %w", key, err)
		}
		// A controller that leads no longer must not decide by what it knew.
		patch = client.MergeFromWithOptions(c, client.MergeFromWithOptimisticLock{})
		if want.Status.Allocator != nil && !c.Spec.IsDRA() {
			again = Interval // what DRA still has is not watched
		}
	}
	want.Status = status(want, r.Disabled, r.invalid(c), r.notPublished(c), summary, instances, sum, now)
	if apiequality.Semantic.DeepEqual(c.Status, want.Status) {
		return again, nil
	}
	err := r.Client.Status().Patch(ctx, want, patch)
	r.mu.Lock()
	t.quietUntil = r.Clock.Now().Add(Interval)
	r.times[key] = t
	r.mu.Unlock()
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("write the status of Configuration %s: %w", key, err)
	}
	writes.Inc()
	klog.FromContext(ctx).V(2).Info("Wrote a Configuration's status", "configuration", klog.KRef(key.Namespace, key.Name))
	return again, nil
}

func (r *Reconciler) forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.times, key)
	delete(r.checked, key)
}
