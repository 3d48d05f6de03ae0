package slotcache

import (
	"sync"
	"sync/atomic"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/kubeslot/kubeslot/kube-scheduler/waitreason"
)

const subsystem = "kubeslot_scheduler"

var (
	slotsDesc = metrics.NewDesc(subsystem+"_slots",
		"Slots of a Configuration by state: free, held (by a pod, a ResourceClaim, or in device-plugin mode a "+
			"kubelet), claimed by a node for no known pod, conflicting (held by several pods), nominated (kept for "+
			"a pod that preempted).",
		[]string{"configuration", "state"}, nil, metrics.ALPHA, "")
	ignoredDesc = metrics.NewDesc(subsystem+"_ignored",
		"What does not count: claims (SlotClaims whose node does not reach the device, or beyond the capacity) and devices (of DeviceSlices, left out because they are not what they say).",
		[]string{"what"}, nil, metrics.ALPHA, "")
	searchesDesc = metrics.NewDesc(subsystem+"_preemption_searches_total",
		"Searches for pods that would have to go for another one's slots, each on one node.",
		nil, nil, metrics.ALPHA, "")
	waitingDesc = metrics.NewDesc(subsystem+"_waiting_pods",
		"Pods not bound yet that request slots, by Configuration (<unknown> when there is none of the name) and why they were not scheduled when they were tried last. Of the scheduler that leads.",
		[]string{"configuration", "reason"}, nil, metrics.ALPHA, "")
	oldestDesc = metrics.NewDesc(subsystem+"_oldest_waiting_pod_seconds",
		"Age of the oldest of the pods that waiting_pods counts.",
		[]string{"configuration", "reason"}, nil, metrics.ALPHA, "")

	waitingSeconds = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem:      subsystem,
		Name:           "pod_waiting_seconds",
		Help:           "How long pods with slots had waited for one reason when they were bound: a pod counts once for each reason that it has met.",
		Buckets:        []float64{.1, 1, 10, 30, 60, 300, 900, 3600, 4 * 3600, 24 * 3600},
		StabilityLevel: metrics.ALPHA,
	}, []string{"reason"})
	preempted = metrics.NewCounter(&metrics.CounterOpts{
		Subsystem:      subsystem,
		Name:           "preempted_pods_total",
		Help:           "Pods that had to go because another pod was to have their slots, whichever plugin chose them.",
		StabilityLevel: metrics.ALPHA,
	})

	resolutionDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem:      subsystem,
		Name:           "resolution_duration_seconds",
		Help:           "Time to choose and take a pod's slots on its node, by result: taken, or short when they were gone.",
		Buckets:        metrics.ExponentialBuckets(1e-6, 4, 12),
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})

	conflicts = metrics.NewCounter(&metrics.CounterOpts{
		Subsystem:      subsystem,
		Name:           "ledger_conflicts_total",
		Help:           "Slots found assigned to a second pod while the first had them.",
		StabilityLevel: metrics.ALPHA,
	})
)

// RegisterMetrics registers the package's metrics, once, at zero.
var RegisterMetrics = sync.OnceFunc(func() {
	legacyregistry.MustRegister(resolutionDuration, conflicts, waitingSeconds, preempted)
	legacyregistry.CustomMustRegister(&inService)
	for _, result := range []string{"taken", "short"} {
		resolutionDuration.WithLabelValues(result)
	}
	for _, reason := range waitreason.Names {
		waitingSeconds.WithLabelValues(reason)
	}
})

// Collector reads a Cache when it is asked to.
type Collector struct {
	metrics.BaseStableCollector
	cache atomic.Pointer[Cache]
}

// inService reports on the Cache that was started last: a process has one, but
// for tests that run several schedulers.
var inService Collector

// Report has the Collector read this Cache from now on.
func (c *Collector) Report(b *Cache) { c.cache.Store(b) }

// DescribeWithStability implements metrics.StableCollector.
func (c *Collector) DescribeWithStability(ch chan<- *metrics.Desc) {
	ch <- slotsDesc
	ch <- ignoredDesc
	ch <- searchesDesc
	ch <- waitingDesc
	ch <- oldestDesc
}

// CollectWithStability implements metrics.StableCollector. It holds no lock while it sends:
// who asked may be slow to read, or have gone.
func (c *Collector) CollectWithStability(ch chan<- metrics.Metric) {
	b := c.cache.Load()
	if b == nil {
		return
	}
	b.mu.RLock()
	slots := b.ledger.SlotCounts()
	claims, devices := b.ledger.Ignored()
	searches, leads := b.ledger.PreemptionSearches(), b.leads
	b.mu.RUnlock()
	for _, n := range slots {
		for state, count := range map[string]int{"free": n.Free, "held": n.Held, "claimed": n.Claimed, "conflicting": n.Conflicting, "nominated": n.Nominated} {
			ch <- metrics.NewLazyConstMetric(slotsDesc, metrics.GaugeValue, float64(count), n.Configuration, state)
		}
	}
	for what, n := range map[string]int{"claims": claims, "devices": devices} {
		ch <- metrics.NewLazyConstMetric(ignoredDesc, metrics.GaugeValue, float64(n), what)
	}
	ch <- metrics.NewLazyConstMetric(searchesDesc, metrics.CounterValue, float64(searches))
	if !leads {
		return // why a pod waits is known to the scheduler that tries it
	}
	now := b.clock.Now()
	for key, n := range b.countWaiting() {
		ch <- metrics.NewLazyConstMetric(waitingDesc, metrics.GaugeValue, float64(n.pods), key.configuration, key.reason)
		ch <- metrics.NewLazyConstMetric(oldestDesc, metrics.GaugeValue, max(0, now.Sub(n.oldest).Seconds()), key.configuration, key.reason)
	}
}
