package metrics

import "k8s.io/component-base/metrics"

// Servers that bound their connections.
const (
	ServerCRI          = "cri"           // kubecri.sock
	ServerMetrics      = "metrics"       // --metrics-bind-address
	ServerRegistration = "registration"  // of discovery handlers
	ServerDevicePlugin = "device-plugin" // of the kubelet, all sockets together
)

func newConnections(registry Registry) *metrics.CounterVec {
	dropped := metrics.NewCounterVec(&metrics.CounterOpts{Subsystem: subsystem, Name: "connections_dropped_total",
		Help:           "Connections that were closed because a server had too many: those whose clients were silent the longest, by server.",
		StabilityLevel: metrics.ALPHA}, []string{"server"})
	registry.MustRegister(dropped)
	for _, server := range []string{ServerCRI, ServerMetrics, ServerRegistration, ServerDevicePlugin} {
		dropped.WithLabelValues(server)
	}
	return dropped
}

// ConnectionDropped counts a connection that was closed because the server had too many.
func (m *Metrics) ConnectionDropped(server string) {
	m.or().dropped.WithLabelValues(server).Inc()
}
