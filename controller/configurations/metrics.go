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

var (
	instanceCount = prometheus.NewDesc("akri_instance_count",
		"Instances, by Configuration and whether several nodes can reach the device.",
		[]string{"configuration", "is_shared"}, nil)
	problemCount = prometheus.NewDesc("kubeslot_controller_configuration_problems",
		"Nodes that have a problem with a Configuration, by the reason that its status has.",
		[]string{"configuration", "reason"}, nil)
	withoutKubecri = prometheus.NewDesc("kubeslot_controller_nodes_without_kubecri",
		"Linux nodes that have no DeviceSlice: kubecri has never run there, or may not write.", nil, nil)
	ignoredReports = prometheus.NewDesc("kubeslot_controller_ignored_devices",
		"Reports of devices that do not count: their hash does not fit, another Configuration has the name, "+
			"or another device has the Instance's.", nil, nil)
	ignoredClaims = prometheus.NewDesc("kubeslot_controller_ignored_claims",
		"SlotClaims that do not count: their node does not see the device, or the capacity is smaller.", nil, nil)
)

// Counts are what the inventory knows, in numbers, when somebody asks.
func Counts(inv *inventory.Inventory) prometheus.Collector {
	return prometheus.CollectorFunc(func(ch chan<- prometheus.Metric) {
		gauge := func(d *prometheus.Desc, n int, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
		}
		for k, n := range inv.Count() {
			gauge(instanceCount, n, k.Configuration, strconv.FormatBool(k.Shared))
		}
		for k, n := range inv.CountProblems() {
			gauge(problemCount, n, k.Configuration, k.Reason)
		}
		gauge(withoutKubecri, inv.NodesWithoutSlices())
		reports, claims := inv.Ignored()
		gauge(ignoredReports, reports)
		gauge(ignoredClaims, claims)
	})
}
