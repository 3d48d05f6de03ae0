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

// maxProblemLength is how long what the API server says of a slice may be, in characters, in a status: it may
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

// poolQueue is the queue of the ResourceSlice controller, and has what is to be published. The controller
// validates all that it is to publish whenever it looks at a pool, and Update copies it and adds all pools: so it
// is given each pool alone, when it is about to look at that. Its one worker calls Get, Forget and failed in turn.
type poolQueue struct {
	workqueue.TypedRateLimitingInterface[string]
	// notify is called with the name of a Configuration whose problem is another.
	notify func(configuration string)
	// started has the controller, once it is there.
	started chan *resourceslice.Controller
	current string // the pool that Get returned last

	mu       sync.Mutex
	wanted   map[string]*resourceslice.Pool // by name
	problems map[string]string              // by pool
}

func newPoolQueue(notify func(configuration string)) *poolQueue {
	return &poolQueue{notify: notify, wanted: map[string]*resourceslice.Pool{}, problems: map[string]string{}}
}

// start starts a controller, of which none is running, with all that is wanted.
func (q *poolQueue) start(ctx context.Context, options resourceslice.Options) (*resourceslice.Controller, error) {
	q.TypedRateLimitingInterface =
		workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	q.started = make(chan *resourceslice.Controller, 1)
	options.Queue, options.ErrorHandler = q, q.failed
	c, err := resourceslice.StartController(ctx, options)
	if err != nil {
		return nil, err
	}
	q.started <- c
	for pool := range q.wanted {
		q.TypedRateLimitingInterface.Add(pool)
	}
	return c, nil
}

// set has a pool published from now on, as soon as a controller runs; nil for not at all. It keeps the pool. The
// goroutine that starts controllers calls it.
func (q *poolQueue) set(pool string, as *resourceslice.Pool) {
	q.mu.Lock()
	if q.wanted[pool] = as; as == nil {
		delete(q.wanted, pool)
	}
	q.mu.Unlock()
	q.setProblem(pool, "")
	if q.TypedRateLimitingInterface != nil {
		q.TypedRateLimitingInterface.Add(pool)
	}
}

// Add is called by Update alone, with the pool that Get returns.
func (q *poolQueue) Add(string) {}

// Get returns the next pool to be looked at, which is all that the controller then has.
func (q *poolQueue) Get() (pool string, shutdown bool) {
	if q.current, shutdown = q.TypedRateLimitingInterface.Get(); shutdown {
		return "", true
	}
	c := <-q.started
	q.started <- c
	resources := resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{}}
	q.mu.Lock()
	if wanted := q.wanted[q.current]; wanted != nil {
		resources.Pools[q.current] = *wanted
	}
	c.Update(&resources)
	q.mu.Unlock()
	return q.current, false
}

// failed is the controller's error handler.
func (q *poolQueue) failed(ctx context.Context, err error, message string) {
	dropped, isDropped := errors.AsType[*resourceslice.DroppedFieldsError](err)
	reason := otherReason
	switch {
	case isDropped:
		reason = droppedFields
		q.accept(dropped)
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		reason = invalidSlice
	}
	failures.WithLabelValues(reason).Inc()
	klog.FromContext(ctx).Error(err, "Cannot publish devices as they should be", "pool", q.current, "step", message)
	if reason != otherReason {
		q.setProblem(q.current, naming.CutText(err.Error(), maxProblemLength))
	}
}

// accept has what the API server made of a slice be what is wanted, so that it is not written again and again.
func (q *poolQueue) accept(dropped *resourceslice.DroppedFieldsError) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if pool := q.wanted[dropped.PoolName]; pool != nil && dropped.SliceIndex < len(pool.Slices) &&
		resourceslice.DevicesDeepEqual(pool.Slices[dropped.SliceIndex].Devices, dropped.DesiredSlice.Spec.Devices) {
		pool.Slices[dropped.SliceIndex].Devices = dropped.ActualSlice.Spec.Devices
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
