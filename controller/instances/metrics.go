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

var _ prometheus.Collector = &Reconciler{}

// Describe implements prometheus.Collector.
func (r *Reconciler) Describe(ch chan<- *prometheus.Desc) { ch <- withheld }

// Collect implements prometheus.Collector.
func (r *Reconciler) Collect(ch chan<- prometheus.Metric) {
	for configuration, n := range r.limits.Withheld() {
		ch <- prometheus.MustNewConstMetric(withheld, prometheus.GaugeValue, float64(n), configuration)
	}
}

func init() {
	metrics.Registry.MustRegister(writes, waiting)
	for _, v := range []verb{create, patch, remove} {
		writes.WithLabelValues(string(v))
	}
}
