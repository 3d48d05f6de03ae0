package metrics

import (
	"time"

	"k8s.io/component-base/metrics"
)

// devicePluginMode are of kubecri --mode=device-plugin.
type devicePluginMode struct {
	devices     *metrics.GaugeVec
	allocations *metrics.CounterVec
	latency     *metrics.Histogram
}

// Values of kubecri_device_plugin_devices's label health.
const (
	healthy   = "healthy"
	unhealthy = "unhealthy"
)

func newDevicePluginMode(registry Registry) devicePluginMode {
	p := devicePluginMode{
		devices: metrics.NewGaugeVec(&metrics.GaugeOpts{Subsystem: subsystem, Name: "device_plugin_devices",
			Help: "Device ids reported to the kubelet, by resource and health. Those that pods hold " +
				"are healthy.",
			StabilityLevel: metrics.ALPHA}, []string{"resource", "health"}),
		allocations: results("device_plugin_allocations_total", "Calls of the kubelet for a container's devices, by result: after an error the pod fails with UnexpectedAdmissionError."),
		latency: metrics.NewHistogram(&metrics.HistogramOpts{Subsystem: subsystem, Name: "device_plugin_allocation_duration_seconds",
			Help:           "How long the kubelet waited for an Allocate that succeeded. It admits one pod after the other.",
			Buckets:        []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 1.5},
			StabilityLevel: metrics.ALPHA}),
	}
	registry.MustRegister(p.devices, p.allocations, p.latency)
	return p
}

// DevicePluginListed sets how many ids of a resource the kubelet knows.
func (m *Metrics) DevicePluginListed(resource string, healthyIDs, unhealthyIDs int) {
	m = m.or()
	m.kubelet.devices.WithLabelValues(resource, healthy).Set(float64(healthyIDs))
	m.kubelet.devices.WithLabelValues(resource, unhealthy).Set(float64(unhealthyIDs))
}

// DevicePluginEnded forgets a resource that is gone.
func (m *Metrics) DevicePluginEnded(resource string) {
	m = m.or()
	for _, health := range []string{healthy, unhealthy} {
		m.kubelet.devices.Delete(map[string]string{"resource": resource, "health": health})
	}
}

// DevicePluginAllocated counts a call of the kubelet, and how long one took that succeeded.
func (m *Metrics) DevicePluginAllocated(ok bool, took time.Duration) {
	m = m.or()
	if !ok {
		m.kubelet.allocations.WithLabelValues(failure).Inc()
		return
	}
	m.kubelet.allocations.WithLabelValues(success).Inc()
	m.kubelet.latency.Observe(took.Seconds())
}
