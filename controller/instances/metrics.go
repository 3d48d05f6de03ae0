package instances

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	writes = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubeslot_controller_instance_writes_total",
		Help: "Writes of Instances that the API server accepted, by verb.",
	}, []string{"verb"})
	waiting = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kubeslot_controller_instances_waiting",
		Help: "Instances from before DeviceSlices that are left as they are until kubecri is upgraded on all their nodes.",
	})
)

var withheld = prometheus.NewDesc("kubeslot_controller_instances_withheld",
	"Devices that have no Instance because of spec.maxInstances, by Configuration.", []string{"configuration"}, nil)

// Withheld is what the reconciler does not make because of limits.
func (r *Reconciler) Withheld() prometheus.Collector { return r.limits.Metric(withheld) }

func init() {
	metrics.Registry.MustRegister(writes, waiting)
	for _, v := range []verb{create, patch, remove} {
		writes.WithLabelValues(string(v))
	}
}
