package dra

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kubeslot/kubeslot/controller/naming"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Reasons of failed writes, as the metric has them.
const (
	droppedFields = "dropped_fields"
	invalidSlice  = "invalid"
	otherReason   = "other"
)

// maxProblemLength is how long what the API server says of a slice may be, in bytes, in a status: it may
// name each field of each device.
const maxProblemLength = 512

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

// poolQueue is the queue of the ResourceSlice controller. The controller's Update adds all pools to it, and
// to look at one costs a look at all devices: only pools that changed get in. The controller's one worker
// calls Get, Forget and failed in turn, so that what failed is the pool that Get returned last.
type poolQueue struct {
	workqueue.TypedRateLimitingInterface[string]
	changed sets.Set[string] // of the goroutine that calls Update
	current string           // of the worker

	// notify is called with the name of a Configuration whose problem is another.
	notify func(configuration string)

	mu       sync.Mutex
	problems map[string]string // by pool
}

func newPoolQueue(notify func(configuration string)) *poolQueue {
	return &poolQueue{notify: notify, problems: map[string]string{}}
}

// restart gives another controller, of which none is running, an empty queue.
func (q *poolQueue) restart() {
	q.changed = nil
	q.TypedRateLimitingInterface =
		workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
}

// Add is called by Update alone.
func (q *poolQueue) Add(pool string) {
	if q.changed.Has(pool) {
		q.setProblem(pool, "")
		q.TypedRateLimitingInterface.Add(pool)
	}
}

// Get returns the next pool to be looked at.
func (q *poolQueue) Get() (pool string, shutdown bool) {
	q.current, shutdown = q.TypedRateLimitingInterface.Get()
	return q.current, shutdown
}

// failed is the controller's error handler.
func (q *poolQueue) failed(ctx context.Context, err error, message string) {
	dropped := &resourceslice.DroppedFieldsError{}
	reason := otherReason
	switch {
	case errors.As(err, &dropped):
		reason = droppedFields
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		reason = invalidSlice
	}
	failures.WithLabelValues(reason).Inc()
	klog.FromContext(ctx).Error(err, "Cannot publish devices as they should be", "pool", q.current, "step", message)
	if reason != otherReason {
		q.setProblem(q.current, naming.CutText(err.Error(), maxProblemLength))
	}
}

func (q *poolQueue) setProblem(pool, problem string) {
	q.mu.Lock()
	before := q.problems[pool]
	if q.problems[pool] = problem; problem == "" {
		delete(q.problems, pool)
	}
	q.mu.Unlock()
	if before != problem {
		q.notify(configurationOf(pool))
	}
}

// problem returns how many pools of a Configuration have a problem, and the first one's, by name.
func (q *poolQueue) problem(configuration string) (pools int, first, problem string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, pool := range slices.Sorted(maps.Keys(q.problems)) {
		if configurationOf(pool) != configuration {
			continue
		}
		if pools++; pools == 1 {
			first, problem = pool, q.problems[pool]
		}
	}
	return pools, first, problem
}

// configurationOf is the name of the Configuration that a pool is of.
func configurationOf(pool string) string {
	if configuration, _, local := strings.Cut(pool, "/"); local {
		return configuration
	}
	configuration, _ := slot.SplitInstance(pool)
	return configuration
}
