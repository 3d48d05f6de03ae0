package deviceplugins

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/kubeslot/kubeslot/device-scheduler/host"
	"github.com/kubeslot/kubeslot/plugins/load"
)

const subsystem = "kubeslot_scheduler"

var (
	loaded = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem:      subsystem,
		Name:           "device_plugin_loaded",
		Help:           "1 for each device scheduler plugin that is loaded.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"plugin"})
	up = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: subsystem,
		Name:      "device_plugin_up",
		Help: "1 for each device scheduler plugin over gRPC that is connected and answers, 0 while it is " +
			"away.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"plugin"})
	badFiles = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem:      subsystem,
		Name:           "device_plugin_bad_files_total",
		Help:           "What is wrong with files of --devschedpath that were not loaded, by the reason that `kube-scheduler plugin check` gives.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"reason"})
	callDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem:      subsystem,
		Name:           "device_plugin_call_duration_seconds",
		Help:           "How long calls of device scheduler plugins took, waiting for their turn included.",
		Buckets:        metrics.ExponentialBuckets(1e-6, 4, 13),
		StabilityLevel: metrics.ALPHA,
	}, []string{"plugin", "method"})
	faults = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem,
		Name:      "device_plugin_faults_total",
		Help: "Calls of device scheduler plugins that went wrong: panic, timeout, hanging (not called: an " +
			"earlier call has not returned), error, invalid (the result makes no sense), or away (a plugin over gRPC " +
			"was not called: it is not there, or does not answer).",
		StabilityLevel: metrics.ALPHA,
	}, []string{"plugin", "method", "kind"})
	unusableNodes = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem:      subsystem,
		Name:           "device_plugin_unusable_nodes",
		Help:           "Nodes whose KubeDevice/DeviceInfo annotation cannot be read, so that no pod with device requests runs there.",
		StabilityLevel: metrics.ALPHA,
	})
)

var registerMetrics = sync.OnceFunc(func() {
	legacyregistry.MustRegister(loaded, up, badFiles, callDuration, faults, unusableNodes)
	for _, reason := range load.Reasons() {
		badFiles.WithLabelValues(string(reason))
	}
})

// methods are those of a device scheduler that can fault.
var methods = []string{"AddNode", "RemoveNode", "PodFitsDevice", "PodAllocate", "TakePodResources", "ReturnPodResources"}

// startAtZero makes the plugin's faults visible before there are any.
func startAtZero(plugin string) {
	for _, method := range methods {
		for _, kind := range host.Kinds() {
			faults.WithLabelValues(plugin, method, string(kind))
		}
	}
}
