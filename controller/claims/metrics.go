package claims

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var deleted = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "kubeslot_controller_claims_deleted_total",
	Help: "SlotClaims that were deleted because they were nobody's, by reason: NodeGone, OutOfService, Unreachable, DoesNotCount, NeverCounted.",
}, []string{"reason"})

var unreachableSlots = prometheus.NewGauge(prometheus.GaugeOpts{
	Name: "kubeslot_controller_unreachable_slots",
	Help: "Slots whose pod is gone, cannot go or is not known, and whose node is not Ready, so that it cannot release them: they wait for the node, or for somebody to say that it is off.",
})

func init() {
	metrics.Registry.MustRegister(deleted, unreachableSlots)
	for _, reason := range []string{nodeGone, outOfService, unreachable, doesNotCount, neverCounted} {
		deleted.WithLabelValues(reason)
	}
}
