package metrics

import (
	"time"

	"k8s.io/component-base/metrics"
)

// discovery has Akri's two metrics of discovery, by Akri's names, since dashboards have
// them, how many devices are known, and how many changes of them are not reported yet.
type discovery struct {
	time    *metrics.HistogramVec
	result  *metrics.CounterVec
	devices *metrics.GaugeVec
	held    *metrics.GaugeVec
}

// Values of kubecri_discovered_devices's label state.
const (
	usable        = "usable"
	unschedulable = "unschedulable"
)

// Values of akri_discovery_response_result's label result.
const (
	responded = "Success"
	failed    = "Fail"
)

func newDiscovery(registry Registry) discovery {
	d := discovery{
		time: metrics.NewHistogramVec(&metrics.HistogramOpts{Name: "akri_discovery_response_time",
			Help:           "Seconds from asking a discovery handler for a Configuration's devices to its first report.",
			Buckets:        []float64{.25, .5, 1, 2.5, 5, 10, 30, 60},
			StabilityLevel: metrics.ALPHA}, []string{"configuration"}),
		result: metrics.NewCounterVec(&metrics.CounterOpts{Name: "akri_discovery_response_result",
			Help:           "Times that a discovery handler was asked for devices: Success when it reported, Fail when it broke.",
			StabilityLevel: metrics.ALPHA}, []string{"discovery_handler_name", "result"}),
	}
	d.devices = metrics.NewGaugeVec(&metrics.GaugeOpts{Subsystem: subsystem, Name: "discovered_devices",
		Help:           "Devices that this node reports, by Configuration and state: usable, or unschedulable since their discovery handler does not work.",
		StabilityLevel: metrics.ALPHA}, []string{"configuration", "state"})
	d.held = metrics.NewGaugeVec(&metrics.GaugeOpts{Subsystem: subsystem, Name: "device_changes_held",
		Help:           "Devices whose changes wait, since they change too often, by Configuration.",
		StabilityLevel: metrics.ALPHA}, []string{"configuration"})
	registry.MustRegister(d.time, d.result, d.devices, d.held)
	return d
}

// DiscoveryReported counts the first report after a handler was asked, and how long it took.
func (m *Metrics) DiscoveryReported(handler, configuration string, took time.Duration) {
	m = m.or()
	m.discovery.time.WithLabelValues(configuration).Observe(took.Seconds())
	m.discovery.result.WithLabelValues(handler, responded).Inc()
	m.discovery.result.WithLabelValues(handler, failed).Add(0)
}

// DiscoveryFailed counts a handler that broke, or could not work with what it was asked.
func (m *Metrics) DiscoveryFailed(handler string) {
	m = m.or()
	m.discovery.result.WithLabelValues(handler, failed).Inc()
	m.discovery.result.WithLabelValues(handler, responded).Add(0)
}

// Discovered sets how many devices of a Configuration the node reports.
func (m *Metrics) Discovered(configuration string, usableDevices, unschedulableDevices int) {
	m = m.or()
	m.discovery.devices.WithLabelValues(configuration, usable).Set(float64(usableDevices))
	m.discovery.devices.WithLabelValues(configuration, unschedulable).Set(float64(unschedulableDevices))
}

// ChangesHeld sets how many devices of a Configuration have changes that are not reported yet.
func (m *Metrics) ChangesHeld(configuration string, devices int) {
	m.or().discovery.held.WithLabelValues(configuration).Set(float64(devices))
}

// DiscoveryEnded forgets a Configuration that is no longer discovered here.
func (m *Metrics) DiscoveryEnded(configuration string) {
	m = m.or()
	m.discovery.time.Delete(map[string]string{"configuration": configuration})
	m.discovery.held.Delete(map[string]string{"configuration": configuration})
	for _, state := range []string{usable, unschedulable} {
		m.discovery.devices.Delete(map[string]string{"configuration": configuration, "state": state})
	}
}
