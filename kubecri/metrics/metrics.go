// Package metrics has kubecri's Prometheus metrics. Every label set that can be foreseen
// starts at zero, so that a rate exists before the first failure.
//
// A nil *Metrics counts nothing.
package metrics

import (
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"k8s.io/component-base/metrics"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const subsystem = "kubecri"

// Results of a CreateContainer call that concerned devices.
const (
	Injected = "injected" // the container exists and has its devices
	Refused  = "refused"  // the assignment must not be used
	Failed   = "failed"   // the devices or the API server could not be reached in time
	Rejected = "rejected" // the runtime did not create the container
	Ignored  = "ignored"  // an unusable assignment of a container that requests no devices
)

// What an attempt came to, of the metrics with label result.
const (
	success = "success"
	failure = "error"
)

// other is the method of calls that this CRI version does not have: names that a
// client makes up must not become time series.
const other = "other"

// Metrics are all of them. Safe for concurrent use.
type Metrics struct {
	methods map[string]*method
	unknown *method

	injections *metrics.CounterVec
	taken      *metrics.Counter
	released   *metrics.Counter
	lost       *metrics.Counter
	without    *metrics.Counter
	reconciles *metrics.CounterVec
	resyncs    *metrics.CounterVec
	checkpoint *metrics.CounterVec
	patches    *metrics.CounterVec
	advertised *metrics.GaugeVec
	plugins    soPlugins
	discovery  discovery
	kubelet    devicePluginMode
	dropped    *metrics.CounterVec

	// known are the Configurations of the last Advertised; nil before.
	known atomic.Pointer[map[string]bool]

	registry Registry
}

// Registry takes metrics; a metrics.KubeRegistry is one.
type Registry interface {
	MustRegister(...metrics.Registerable)
	CustomMustRegister(...metrics.StableCollector)
}

// method is resolved once: a call costs two atomic additions, no look-up of labels.
type method struct {
	latency metrics.ObserverMetric
	errors  [codes.Unauthenticated + 1]metrics.CounterMetric
}

// New registers the metrics.
func New(registry Registry) *Metrics {
	latency := metrics.NewHistogramVec(&metrics.HistogramOpts{Subsystem: subsystem, Name: "rpc_duration_seconds",
		Help:           "How long CRI calls took from here, by method; the runtime's part is in it. Of GetContainerEvents, which lasts, none.",
		Buckets:        []float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 120},
		StabilityLevel: metrics.ALPHA}, []string{"method"})
	errors := metrics.NewCounterVec(&metrics.CounterOpts{Subsystem: subsystem, Name: "rpc_errors_total",
		Help:           "CRI calls that ended with an error, the runtime's or ours, by method and gRPC code.",
		StabilityLevel: metrics.ALPHA}, []string{"method", "code"})
	m := &Metrics{
		methods: map[string]*method{},
		injections: results("injections_total", "CreateContainer calls that concerned devices, by result: injected, "+
			"refused, failed (to be retried), rejected (by the runtime), ignored."),
		taken:      counter("claims_taken_total", "Claims created for containers about to be created."),
		released:   counter("claims_released_total", "Claims deleted."),
		lost:       counter("slots_lost_total", "Slots that a container here uses and that another node has claimed meanwhile: both use the device."),
		without:    counter("containers_without_devices_total", "Containers that were found to have bypassed kubecri at their creation, and so to run without the devices that they were assigned."),
		reconciles: results("claim_reconciles_total", "Comparisons of a slot's claim with the containers, by result."),
		resyncs:    results("runtime_resyncs_total", "Times that the runtime was asked for its containers, by result."),
		checkpoint: results("checkpoint_writes_total", "Times that the checkpoint of the node's claims and devices was written, by result."),
		patches:    results("advertise_patches_total", "Patches of the resources in the node's status, by result."),
		advertised: metrics.NewGaugeVec(&metrics.GaugeOpts{Subsystem: subsystem, Name: "advertised_slots",
			Help:           "Slots that the node can reach and advertises, by Configuration; what pods hold beyond that is not counted.",
			StabilityLevel: metrics.ALPHA}, []string{"configuration"}),
		registry: registry,
	}
	m.plugins = newSOPlugins(registry)
	m.discovery = newDiscovery(registry)
	m.kubelet = newDevicePluginMode(registry)
	m.dropped = newConnections(registry)
	registry.MustRegister(latency, errors, m.injections, m.taken, m.released, m.lost, m.without, m.reconciles,
		m.resyncs, m.checkpoint, m.patches, m.advertised)

	resolve := func(name string) *method {
		r := &method{latency: latency.WithLabelValues(name)}
		for code := codes.OK + 1; int(code) < len(r.errors); code++ {
			r.errors[code] = errors.WithLabelValues(name, code.String())
		}
		return r
	}
	m.unknown = resolve(other)
	for _, path := range Methods() {
		m.methods[path] = resolve(path[1:])
	}
	for _, result := range []string{Injected, Refused, Failed, Rejected, Ignored} {
		m.injections.WithLabelValues(result)
	}
	for _, vec := range []*metrics.CounterVec{m.reconciles, m.resyncs, m.checkpoint, m.patches, m.kubelet.allocations} {
		vec.WithLabelValues(success)
		vec.WithLabelValues(failure)
	}
	return m
}

// or is m, or if that is nil one that counts nothing: what is not registered does not count.
func (m *Metrics) or() *Metrics {
	if m == nil {
		return none()
	}
	return m
}

var none = sync.OnceValue(func() *Metrics { return New(nowhere{}) })

// nowhere registers nothing.
type nowhere struct{}

func (nowhere) MustRegister(...metrics.Registerable)          {}
func (nowhere) CustomMustRegister(...metrics.StableCollector) {}

// Methods lists the full names of this CRI version's methods.
func Methods() []string {
	var names []string
	for _, service := range []*grpc.ServiceDesc{
		&runtimeapi.RuntimeService_ServiceDesc, &runtimeapi.ImageService_ServiceDesc} {
		for _, method := range service.Methods {
			names = append(names, "/"+service.ServiceName+"/"+method.MethodName)
		}
		for _, stream := range service.Streams {
			names = append(names, "/"+service.ServiceName+"/"+stream.StreamName)
		}
	}
	return names
}

// Call counts a CRI call by its full method name.
func (m *Metrics) Call(path string, code codes.Code, took time.Duration) {
	m = m.or()
	r := m.methods[path]
	if r == nil {
		r = m.unknown
	}
	if path != runtimeapi.RuntimeService_GetContainerEvents_FullMethodName {
		r.latency.Observe(took.Seconds())
	}
	if code == codes.OK {
		return
	}
	if int(code) >= len(r.errors) {
		code = codes.Unknown // a code that gRPC does not have
	}
	r.errors[code].Inc()
}

// Injection counts a CreateContainer call by one of the results above.
func (m *Metrics) Injection(result string) {
	m.or().injections.WithLabelValues(result).Inc()
}

// ClaimsTaken counts claims created for a container.
func (m *Metrics) ClaimsTaken(n int) {
	m.or().taken.Add(float64(n))
}

// ClaimsReleased counts claims deleted.
func (m *Metrics) ClaimsReleased(n int) {
	m.or().released.Add(float64(n))
}

// SlotLost counts a slot that a container here uses and another node has claimed.
func (m *Metrics) SlotLost() {
	m.or().lost.Inc()
}

// StartedWithoutDevices counts a container that bypassed kubecri.
func (m *Metrics) StartedWithoutDevices() {
	m.or().without.Inc()
}

// Reconciled counts a comparison of a slot's claim with the containers.
func (m *Metrics) Reconciled(err error) {
	m.or().reconciles.WithLabelValues(result(err)).Inc()
}

// Resynced counts a question to the runtime.
func (m *Metrics) Resynced(err error) {
	m.or().resyncs.WithLabelValues(result(err)).Inc()
}

// Checkpointed counts an attempt to write the checkpoint.
func (m *Metrics) Checkpointed(err error) {
	m.or().checkpoint.WithLabelValues(result(err)).Inc()
}

// Patched counts a patch of the resources in the node's status.
func (m *Metrics) Patched(err error) {
	m.or().patches.WithLabelValues(result(err)).Inc()
}

// Advertised sets how many slots of each Configuration the node has. There is an entry
// for each Configuration of the cluster.
func (m *Metrics) Advertised(slots map[string]int64) {
	m = m.or()
	m.advertised.Reset()
	known := make(map[string]bool, len(slots))
	for configuration, n := range slots {
		m.advertised.WithLabelValues(configuration).Set(float64(n))
		known[configuration] = true
	}
	m.known.Store(&known)
}

func counter(name, help string) *metrics.Counter {
	return metrics.NewCounter(&metrics.CounterOpts{Subsystem: subsystem, Name: name, Help: help, StabilityLevel: metrics.ALPHA})
}

func results(name, help string) *metrics.CounterVec {
	return metrics.NewCounterVec(&metrics.CounterOpts{Subsystem: subsystem, Name: name, Help: help, StabilityLevel: metrics.ALPHA}, []string{"result"})
}

func result(err error) string {
	if err != nil {
		return failure
	}
	return success
}
