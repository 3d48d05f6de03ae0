package claims

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var deleted = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "kubeslot_controller_claims_deleted_total",
	Help: "SlotClaims that were deleted because they were nobody's, by reason: NodeGone, PodGone, DoesNotCount, NeverCounted.",
}, []string{"reason"})

func init() {
	metrics.Registry.MustRegister(deleted)
	for _, reason := range []string{nodeGone, podGone, doesNotCount, neverCounted} {
		deleted.WithLabelValues(reason)
	}
}
