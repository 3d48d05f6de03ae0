package metrics

import "k8s.io/component-base/metrics"

// unknownConfiguration is label configuration of slots whose Configuration is gone, or
// was never there: what an assignment says must not become time series. No Configuration
// can have this name.
const unknownConfiguration = "<unknown>"

var (
	usedDesc = metrics.NewDesc(subsystem+"_used_slots",
		"Slots that containers and ResourceClaims on this node use, by Configuration (<unknown> for those "+
			"that there are "+
			"no more).", []string{"configuration"}, nil, metrics.ALPHA, "")
	heldDesc = metrics.NewDesc(subsystem+"_claims_held",
		"Slots that containers and ResourceClaims on this node use.", nil, nil, metrics.ALPHA, "")
	pendingDesc = metrics.NewDesc(subsystem+"_claims_release_pending",
		"Slots whose last container is gone and whose claim the API server still has.", nil, nil, metrics.ALPHA, "")
)

// Watch registers what is read when asked for: the slots that are used here, by
// the name of their Configuration, and how many releases the API server has not taken yet.
func (m *Metrics) Watch(used func() map[string]int, pending func() int) {
	m.or().registry.CustomMustRegister(&watched{metrics: m, used: used, pending: pending})
}

// watched collects gauges that others know the values of.
type watched struct {
	metrics.BaseStableCollector
	metrics *Metrics
	used    func() map[string]int
	pending func() int
}

// DescribeWithStability implements metrics.StableCollector.
func (w *watched) DescribeWithStability(ch chan<- *metrics.Desc) {
	ch <- usedDesc
	ch <- heldDesc
	ch <- pendingDesc
}

// CollectWithStability implements metrics.StableCollector.
func (w *watched) CollectWithStability(ch chan<- metrics.Metric) {
	all, by := w.metrics.usedSlots(w.used())
	for configuration, n := range by {
		ch <- metrics.NewLazyConstMetric(usedDesc, metrics.GaugeValue, float64(n), configuration)
	}
	ch <- metrics.NewLazyConstMetric(heldDesc, metrics.GaugeValue, float64(all))
	ch <- metrics.NewLazyConstMetric(pendingDesc, metrics.GaugeValue, float64(w.pending()))
}

// usedSlots counts slots in all and by Configuration, where each known one has an entry.
func (m *Metrics) usedSlots(used map[string]int) (all int, by map[string]int) {
	by = map[string]int{}
	known := m.known.Load()
	if known != nil {
		for configuration := range *known {
			by[configuration] = 0
		}
	}
	for configuration, n := range used {
		all += n
		if known == nil || !(*known)[configuration] {
			configuration = unknownConfiguration
		}
		by[configuration] += n
	}
	return all, by
}
