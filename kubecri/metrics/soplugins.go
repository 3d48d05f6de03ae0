package metrics

import (
	"strings"
	"time"

	"k8s.io/component-base/metrics"
)

// soPlugins are the numbers of KubeDevice's .so plugins.
type soPlugins struct {
	latency  *metrics.HistogramVec
	faults   *metrics.CounterVec
	up       *metrics.GaugeVec
	badFiles *metrics.GaugeVec
}

func newSOPlugins(registry Registry) soPlugins {
	d := soPlugins{
		latency: metrics.NewHistogramVec(&metrics.HistogramOpts{Subsystem: subsystem,
			Name: "so_plugin_call_duration_seconds",
			Help: "How long calls of device plugins, .so files and sockets, took, the wait for another call of the " +
				"same plugin " +
				"included, by plugin and method.",
			Buckets: []float64{.0001, .001, .005, .025, .1, .5, 1, 5, 10, 30, 60}, StabilityLevel: metrics.ALPHA}, []string{"plugin", "method"}),
		faults: metrics.NewCounterVec(&metrics.CounterOpts{Subsystem: subsystem, Name: "so_plugin_faults_total",
			Help: "Calls of device plugins, .so files and sockets, that went wrong, by plugin, method and kind: " +
				"panic, " +
				"timeout, hanging (not called, since an earlier call has not returned), error, invalid (its result " +
				"makes no sense), away (not called, since nothing serves its socket).",
			StabilityLevel: metrics.ALPHA}, []string{"plugin", "method", "kind"}),
		up: metrics.NewGaugeVec(&metrics.GaugeOpts{Subsystem: subsystem, Name: "so_plugin_up",
			Help: "Whether a device plugin, a .so file or a socket, is started and says what the node has, " +
				"by plugin: 1 or 0.",
			StabilityLevel: metrics.ALPHA}, []string{"plugin"}),
		badFiles: metrics.NewGaugeVec(&metrics.GaugeOpts{Subsystem: subsystem, Name: "so_plugin_bad_files",
			Help:           "Files of --cridevices that were not loaded, by the reason that `kubecri plugin check` gives.",
			StabilityLevel: metrics.ALPHA}, []string{"reason"}),
	}
	registry.MustRegister(d.latency, d.faults, d.up, d.badFiles)
	return d
}

// SOPlugin are the numbers of one .so plugin. A nil one counts nothing.
type SOPlugin struct {
	latency map[string]metrics.ObserverMetric
	faults  *metrics.CounterVec
	up      metrics.GaugeMetric
	name    string
}

// SOPlugin returns a plugin's numbers, for calls of the methods and faults of
// the kinds.
func (m *Metrics) SOPlugin(name string, methods, kinds []string) *SOPlugin {
	if m == nil {
		return nil
	}
	name = strings.ToValidUTF8(name, "?") // one bad label would spoil all metrics
	d := &SOPlugin{latency: map[string]metrics.ObserverMetric{}, faults: m.plugins.faults,
		up: m.plugins.up.WithLabelValues(name), name: name}
	d.up.Set(0)
	for _, method := range methods {
		d.latency[method] = m.plugins.latency.WithLabelValues(name, method)
		for _, kind := range kinds {
			d.faults.WithLabelValues(name, method, kind)
		}
	}
	return d
}

// Called counts a call.
func (d *SOPlugin) Called(method string, took time.Duration) {
	if d != nil {
		d.latency[method].Observe(took.Seconds())
	}
}

// Faulted counts a call that went wrong.
func (d *SOPlugin) Faulted(method, kind string) {
	if d != nil {
		d.faults.WithLabelValues(d.name, method, kind).Inc()
	}
}

// Up says whether the plugin works.
func (d *SOPlugin) Up(up bool) {
	if d == nil {
		return
	}
	value := 0.
	if up {
		value = 1
	}
	d.up.Set(value)
}

// BadSOPlugins counts the files that were not loaded, by reason, of which
// reasons are all.
func (m *Metrics) BadSOPlugins(reasons []string, bad map[string]int) {
	m = m.or()
	for _, reason := range reasons {
		m.plugins.badFiles.WithLabelValues(reason).Set(float64(bad[reason]))
	}
}
