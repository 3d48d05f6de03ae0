package configurations

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kubeslot/kubeslot/controller/inventory"
)

var writes = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "kubeslot_controller_configuration_status_writes_total",
	Help: "Writes of the status of Configurations.",
})

func init() { metrics.Registry.MustRegister(writes) }

// InstanceCount counts Instances, as Akri's metric of the name does.
type InstanceCount struct{ *inventory.Inventory }

var instanceCount = prometheus.NewDesc("akri_instance_count", "Instances, by Configuration and whether several nodes can reach the device.", []string{"configuration", "is_shared"}, nil)

var _ prometheus.Collector = InstanceCount{}

// Describe implements prometheus.Collector.
func (InstanceCount) Describe(ch chan<- *prometheus.Desc) { ch <- instanceCount }

// Collect implements prometheus.Collector.
func (i InstanceCount) Collect(ch chan<- prometheus.Metric) {
	for k, n := range i.Count() {
		ch <- prometheus.MustNewConstMetric(instanceCount, prometheus.GaugeValue, float64(n), k.Configuration, strconv.FormatBool(k.Shared))
	}
}

// Problems counts what is wrong with Configurations, and the nodes that say nothing.
type Problems struct{ *inventory.Inventory }

var (
	problemCount = prometheus.NewDesc("kubeslot_controller_configuration_problems",
		"Nodes that have a problem with a Configuration, by the reason that its status has.", []string{"configuration", "reason"}, nil)
	withoutKubecri = prometheus.NewDesc("kubeslot_controller_nodes_without_kubecri",
		"Linux nodes that have no DeviceSlice: kubecri has never run there, or may not write.", nil, nil)
)

var _ prometheus.Collector = Problems{}

// Describe implements prometheus.Collector.
func (Problems) Describe(ch chan<- *prometheus.Desc) { ch <- problemCount; ch <- withoutKubecri }

// Collect implements prometheus.Collector.
func (p Problems) Collect(ch chan<- prometheus.Metric) {
	for k, n := range p.CountProblems() {
		ch <- prometheus.MustNewConstMetric(problemCount, prometheus.GaugeValue, float64(n), k.Configuration, k.Reason)
	}
	ch <- prometheus.MustNewConstMetric(withoutKubecri, prometheus.GaugeValue, float64(p.NodesWithoutSlices()))
}
