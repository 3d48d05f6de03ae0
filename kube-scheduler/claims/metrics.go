package claims

import (
	"errors"
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const subsystem = "kubeslot_scheduler"

// unbound is why claims are released: the pod was not bound after all.
const unbound = "unbound"

var (
	taken = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem:      subsystem,
		Name:           "claims_total",
		Help:           "Slots to be claimed before a bind, by result: claimed, held by another, or failed for want of an answer or a right.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})
	released = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem:      subsystem,
		Name:           "claims_released_total",
		Help:           "Claims released by the scheduler, by reason: unbound (the pod was not bound after all).",
		StabilityLevel: metrics.ALPHA,
	}, []string{"reason"})
)

// RegisterMetrics registers the package's metrics, once, at zero.
var RegisterMetrics = sync.OnceFunc(func() {
	legacyregistry.MustRegister(taken, released)
	for _, result := range []string{"claimed", "held", "failed"} {
		taken.WithLabelValues(result)
	}
	released.WithLabelValues(unbound)
})

func countTaken(slots int, err error) {
	result := "claimed"
	if _, held := errors.AsType[*Held](err); held {
		result = "held"
	} else if err != nil {
		result = "failed"
	}
	taken.WithLabelValues(result).Add(float64(slots))
}
