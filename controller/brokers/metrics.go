package brokers

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kubeslot/kubeslot/controller/naming"
)

var (
	created = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubeslot_controller_brokers_created_total",
		Help: "Broker pods and Jobs that were created, by kind.",
	}, []string{"kind"})
	removed = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubeslot_controller_brokers_deleted_total",
		Help: "Broker pods and Jobs that were deleted, by kind. Those that go with their Instance are not counted.",
	}, []string{"kind"})
	refused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubeslot_controller_brokers_refused_total",
		Help: "Broker pods, Jobs and ResourceClaimTemplates that the API server refused to create, by kind: " +
			"quota, admission, an invalid spec, a name that is taken.",
	}, []string{"kind"})
	ended = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kubeslot_controller_brokers_ended_total",
		Help: "Broker pods that have failed or ended, and get a successor after a delay.",
	})
)

const podKind, jobKind, instanceKind, templateKind = "Pod", "Job", "Instance", "ResourceClaimTemplate"

func init() {
	metrics.Registry.MustRegister(created, removed, refused, ended)
	for _, c := range []*prometheus.CounterVec{created, removed, refused} {
		c.WithLabelValues(podKind)
		c.WithLabelValues(jobKind)
	}
	refused.WithLabelValues(templateKind)
}

var withheld = prometheus.NewDesc("kubeslot_controller_brokers_withheld",
	"Broker pods that are not made because of spec.brokerLimits, by Configuration.", []string{"configuration"}, nil)

// Withheld is what the reconciler does not make because of limits.
func (r *Reconciler) Withheld() prometheus.Collector { return r.limits.Metric(withheld) }

var podCount = prometheus.NewDesc("akri_broker_pod_count", "Broker pods that are scheduled and have not ended, by "+
	"Configuration and node.", []string{"configuration", "node"}, nil)

// PodCount counts broker pods that are scheduled and have not ended, as Akri's metric
// of the name does. It reads the cache's store: a list would copy each pod, for every scrape.
func PodCount(made cache.Informers) prometheus.Collector {
	return prometheus.CollectorFunc(func(ch chan<- prometheus.Metric) {
		informer, err := made.GetInformer(context.Background(), &corev1.Pod{}, cache.BlockUntilSynced(false))
		pods, ok := informer.(toolscache.SharedIndexInformer)
		if err != nil || !ok {
			return // the cache is not there yet
		}
		type key struct{ configuration, node string }
		counts := map[key]int{}
		for _, obj := range pods.GetStore().List() {
			pod := obj.(*corev1.Pod)
			configuration := pod.Labels[naming.Configuration]
			if configuration != "" && pod.Spec.NodeName != "" && !isEnded(pod) {
				counts[key{configuration, pod.Spec.NodeName}]++
			}
		}
		for k, n := range counts {
			ch <- prometheus.MustNewConstMetric(podCount, prometheus.GaugeValue, float64(n), k.configuration, k.node)
		}
	})
}
