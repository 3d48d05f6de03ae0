// Package instances writes Instances: what nodes report and claim of a device, as
// people, brokers and Akri's tools see it. Nobody decides anything by them.
//
// The view is a function of the inventory (view.go), and so is the one write that
// comes next (decide.go): whenever the controller is killed, it goes on where it was.
package instances

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubeslot/kubeslot/controller/inventory"
	"github.com/kubeslot/kubeslot/controller/limits"
	"github.com/kubeslot/kubeslot/controller/watch"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

const (
	// Interval is the least time between two writes of one Instance. The first change
	// is written at once, those that follow are written together.
	Interval = time.Second
	// LookAgain is when an Instance that waits for nodes to be upgraded is looked at
	// again.
	LookAgain = 10 * time.Second
)

// Reconciler makes one Instance at a time what it should be.
type Reconciler struct {
	client    client.Client // reads from the cache
	inventory *inventory.Inventory
	clock     clock.PassiveClock
	limits    *limits.Keeper
	changed   func(configuration types.NamespacedName)

	mu      sync.Mutex
	written map[types.NamespacedName]time.Time // in the last Interval
	waiting map[types.NamespacedName]string    // and why
}

var _ reconcile.Reconciler = &Reconciler{}

// New makes a Reconciler. wake has an Instance looked at for which there is room now, within
// its Configuration's spec.maxInstances; changed a Configuration of whose devices more or
// fewer wait for room.
func New(c client.Client, inv *inventory.Inventory, clock clock.PassiveClock, wake, changed func(types.NamespacedName)) *Reconciler {
	r := &Reconciler{
		client: c, inventory: inv, clock: clock, changed: changed,
		written: map[types.NamespacedName]time.Time{}, waiting: map[types.NamespacedName]string{},
	}
	r.limits = limits.New(r.existing, wake)
	return r
}

// Reconcile does at most one write.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	key := request.NamespacedName
	if pause := r.pause(key); pause > 0 {
		return reconcile.Result{RequeueAfter: pause}, nil
	}
	existing, err := watch.Get(ctx, r.client, key, &akriv0.Instance{})
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read Instance %s: %w", key, err)
	}
	s, err := r.decide(key, existing)
	if err != nil {
		return reconcile.Result{}, err
	}
	r.note(ctx, key, s)
	switch s.verb {
	case "":
		return reconcile.Result{}, nil
	case wait:
		return reconcile.Result{RequeueAfter: LookAgain}, nil
	}
	err = r.write(ctx, s, existing)
	r.mu.Lock()
	r.written[key] = r.clock.Now() // when it was done: the API server may have been slow
	r.mu.Unlock()
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
		// The cache was behind. It is read again once it may have caught up.
		klog.FromContext(ctx).V(2).Info("An Instance was not as it was read", "instance", klog.KRef(key.Namespace, key.Name), "verb", s.verb, "err", err)
		return reconcile.Result{RequeueAfter: Interval}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("%s Instance %s: %w", s.verb, key, err)
	}
	if s.verb == patch && s.want.ResourceVersion == existing.ResourceVersion {
		// The API server dropped what was written: its CRD is older, and lacks a field.
		// Another try would be in vain until something else changes.
		klog.FromContext(ctx).Info("The API server keeps an Instance as it is: apply the CRDs of this version", "instance", klog.KRef(key.Namespace, key.Name))
		r.mu.Lock()
		delete(r.written, key)
		r.mu.Unlock()
		return reconcile.Result{}, nil
	}
	klog.FromContext(ctx).V(2).Info("Wrote an Instance", "instance", klog.KRef(key.Namespace, key.Name), "verb", s.verb, "reason", s.reason)
	writes.WithLabelValues(string(s.verb)).Inc()
	// Looked at once more when it may be written again, which also forgets the time.
	return reconcile.Result{RequeueAfter: Interval}, nil
}

func (r *Reconciler) write(ctx context.Context, s step, existing *akriv0.Instance) error {
	switch s.verb {
	case create:
		return r.client.Create(ctx, s.want)
	case patch:
		// Only what differs is sent, and no resourceVersion: nobody else's write is
		// lost, for what others write is undone or is not the view's.
		return r.client.Patch(ctx, s.want, client.MergeFrom(existing))
	default:
		return r.client.Delete(ctx, existing, client.Preconditions{UID: &existing.UID, ResourceVersion: &existing.ResourceVersion})
	}
}

// pause is how long an Instance must not be written yet.
func (r *Reconciler) pause(key types.NamespacedName) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.written[key]
	if !ok {
		return 0
	}
	pause := Interval - r.clock.Since(at)
	if pause <= 0 {
		delete(r.written, key)
	}
	return pause
}

// note logs once that an Instance waits, and counts those that do.
func (r *Reconciler) note(ctx context.Context, key types.NamespacedName, s step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.verb != wait {
		delete(r.waiting, key)
	} else if r.waiting[key] != s.reason {
		r.waiting[key] = s.reason
		klog.FromContext(ctx).Info("An Instance is left as it is", "instance", klog.KRef(key.Namespace, key.Name), "reason", s.reason)
	}
	waiting.Set(float64(len(r.waiting)))
}
