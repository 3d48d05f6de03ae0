package dra

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Reasons of failed writes, as the metric has them.
const (
	droppedFields = "dropped_fields"
	invalidSlice  = "invalid"
	otherReason   = "other"
)

var failures = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "kubeslot_controller_resourceslice_failures_total",
	Help: "ResourceSlices that could not be written as they should be, by reason: the API server dropped fields, " +
		"took them for invalid, or another.",
}, []string{"reason"})

func init() {
	for _, reason := range []string{droppedFields, invalidSlice, otherReason} {
		failures.WithLabelValues(reason)
	}
	metrics.Registry.MustRegister(failures)
}

const (
	// settle is how long changes of a pool are gathered for one write.
	settle = 200 * time.Millisecond
	// rate is how many bytes of nodes' names are written in a second. A device that many nodes see has all of these,
	// which each node that comes changes.
	rate = 1 << 20
	// retryMin and retryMax are between two attempts to write a pool.
	retryMin, retryMax = 100 * time.Millisecond, 30 * time.Second
)

// poolQueue is the queue of the ResourceSlice controller. The controller validates all that it is to publish whenever
// it looks at a pool, and Update copies it and adds all pools: so it is given each pool alone, when it is about to look
// at that. Its one worker calls Get, Forget and failed in turn.
type poolQueue struct {
	workqueue.TypedRateLimitingInterface[string]
	publisher *Publisher
	problems  *problems
	done      <-chan struct{} // closed when the process leads no longer

	current string        // the pool that Get returned last
	pause   time.Duration // after it
	// dropped are pools of which the API server has dropped something: it would do so again. The Publisher's lock is
	// held for it.
	dropped sets.Set[string]
}

func newPoolQueue(p *Publisher) *poolQueue {
	retries := workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryMin, retryMax)
	return &poolQueue{publisher: p, problems: newProblems(p.Changed), dropped: sets.New[string](),
		TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueueWithConfig(retries,
			workqueue.TypedRateLimitingQueueConfig[string]{Clock: p.Clock})}
}

// changed has a pool published that is another. The Publisher's lock is held.
func (q *poolQueue) changed(pool string) {
	q.dropped.Delete(pool)
	q.TypedRateLimitingInterface.AddAfter(pool, settle)
}

// Add is called by Update alone, with the pool that Get returns.
func (q *poolQueue) Add(string) {}

// Get returns the next pool to be looked at, which is all that the controller then has.
func (q *poolQueue) Get() (pool string, shutdown bool) {
	if q.pause > 0 { // what changes meanwhile is one write
		select {
		case <-q.publisher.Clock.After(q.pause):
		case <-q.done:
		}
	}
	for {
		if pool, shutdown = q.TypedRateLimitingInterface.Get(); shutdown || q.give(pool) {
			return pool, shutdown
		}
		q.Done(pool)
	}
}

// give gives the controller a pool as it is to be, or reports that it is as far as it can be.
func (q *poolQueue) give(pool string) bool {
	q.publisher.mu.Lock()
	defer q.publisher.mu.Unlock()
	if q.dropped.Has(pool) {
		return false
	}
	resources := resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{}}
	if devices := q.publisher.pools[pool]; len(devices) > 0 {
		resources.Pools[pool] = poolOf(devices)
	}
	q.current = pool
	q.pause = pauseAfter(resources.Pools[pool])
	q.publisher.controller.Update(&resources)
	return true
}

// pauseAfter is how long no other pool is looked at after this one.
func pauseAfter(pool resourceslice.Pool) time.Duration {
	return time.Duration(pool.NodeSelector.Size()) * time.Second / rate
}

// failed is the controller's error handler.
func (q *poolQueue) failed(ctx context.Context, err error, message string) {
	_, isDropped := errors.AsType[*resourceslice.DroppedFieldsError](err)
	reason := otherReason
	switch {
	case isDropped:
		reason = droppedFields
		q.publisher.mu.Lock()
		q.dropped.Insert(q.current)
		q.publisher.mu.Unlock()
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		reason = invalidSlice
	}
	failures.WithLabelValues(reason).Inc()
	klog.FromContext(ctx).Error(err, "Cannot publish devices as they should be", "pool", q.current, "step", message)
	if reason != otherReason || apierrors.IsForbidden(err) { // which stay until somebody does something
		q.problems.set(q.current, err.Error())
	}
}

// Forget is called when a pool is as it should be, but for what the API server dropped.
func (q *poolQueue) Forget(pool string) {
	q.TypedRateLimitingInterface.Forget(pool)
	q.publisher.mu.Lock()
	isDropped := q.dropped.Has(pool)
	q.publisher.mu.Unlock()
	if !isDropped {
		q.problems.set(pool, "")
	}
}
