package configurations

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// checked is what is wrong with one generation of a Configuration, "" for nothing.
type checked struct {
	uid        types.UID
	generation int64
	message    string
}

// invalid says what is wrong with a Configuration that was stored nevertheless: before
// there was a webhook, or while it was down. "" for nothing.
func (r *Reconciler) invalid(c *akriv0.Configuration) string {
	key := types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
	r.mu.Lock()
	known, ok := r.checked[key]
	r.mu.Unlock()
	if ok && known.uid == c.UID && known.generation == c.Generation {
		return known.message
	}
	known = checked{uid: c.UID, generation: c.Generation, message: r.Check(c).Message()}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checked[key] = known
	return known.message
}

var invalidCount = prometheus.NewDesc("kubeslot_controller_invalid_configurations",
	"Configurations with a field that cannot work, as their status says.", nil, nil)

// Invalid counts the invalid Configurations.
func (r *Reconciler) Invalid() prometheus.Collector {
	return prometheus.CollectorFunc(func(ch chan<- prometheus.Metric) {
		r.mu.Lock()
		defer r.mu.Unlock()
		n := 0
		for _, c := range r.checked {
			if c.message != "" {
				n++
			}
		}
		ch <- prometheus.MustNewConstMetric(invalidCount, prometheus.GaugeValue, float64(n))
	})
}
