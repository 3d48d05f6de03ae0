package services

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var writes = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "kubeslot_controller_service_writes_total",
	Help: "Writes of Services that the API server accepted, by verb.",
}, []string{"verb"})

func init() {
	metrics.Registry.MustRegister(writes)
	for _, v := range []verb{create, update, remove} {
		writes.WithLabelValues(string(v))
	}
}
