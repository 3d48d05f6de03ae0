package binding

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var lostBinds = metrics.NewCounterVec(&metrics.CounterOpts{
	Subsystem:      "kubeslot_scheduler",
	Name:           "lost_binds_total",
	Help:           "Binds whose answer was lost, by what the API said afterwards: applied, not-applied, by-another (another scheduler bound the pod to the node), unknown (this one ended).",
	StabilityLevel: metrics.ALPHA,
}, []string{"result"})

// RegisterMetrics registers the package's metrics, once.
var RegisterMetrics = sync.OnceFunc(func() {
	legacyregistry.MustRegister(lostBinds)
	for _, result := range []string{applied, notApplied, byAnother, unknown} {
		lostBinds.WithLabelValues(result)
	}
})
