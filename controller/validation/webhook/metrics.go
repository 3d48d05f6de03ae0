package webhook

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Results of reviews.
const (
	allowed = "allowed"
	denied  = "denied"
	failed  = "failed" // let through without having been checked
)

var (
	reviews = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubeslot_controller_webhook_reviews_total",
		Help: "Configurations that API servers asked about: allowed, denied, or failed, which were let through unchecked.",
	}, []string{"result"})
	expiry = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kubeslot_controller_webhook_certificate_expiration_timestamp_seconds",
		Help: "When the certificate ends that the webhook serves, in seconds since 1970; 0 while it serves none.",
	})
	trusted = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kubeslot_controller_webhook_trusted",
		Help: "1 while the certificate that is served is in the caBundle of the ValidatingWebhookConfiguration, so that API servers call the webhook; else 0.",
	})
)

func init() {
	metrics.Registry.MustRegister(reviews, expiry, trusted)
	for _, result := range []string{allowed, denied, failed} {
		reviews.WithLabelValues(result)
	}
}
