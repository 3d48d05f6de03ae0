package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kubeslot/kubeslot/serve"
	"github.com/kubeslot/kubeslot/serve/delegatedauth"
)

// addMetrics has the manager serve /metrics: on the loopback over HTTP and to whoever can
// connect; elsewhere over HTTPS, with a certificate that the process makes for itself, and
// to those whom the API server allows to get /metrics.
func addMetrics(ctx context.Context, mgr manager.Manager, kube kubernetes.Interface, address string) error {
	if address == "0" {
		return nil
	}
	handler, config, err := metricsHandler(ctx, address, kube)
	if err != nil {
		return err
	}
	return addServer(ctx, mgr, serverMetrics, address, handler, config)
}

// metricsHandler is what to serve at the address, and with which TLS; nil for none.
func metricsHandler(ctx context.Context, address string, kube kubernetes.Interface) (http.Handler, *tls.Config, error) {
	mux := http.NewServeMux()
	handler := promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError})
	if delegatedauth.Loopback(address) {
		mux.Handle("/metrics", handler)
		return mux, nil, nil
	}
	guard, err := delegatedauth.New(kube)
	if err != nil {
		return nil, nil, err
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, nil, err
	}
	pair, err := serve.SelfSigned(ctx, serverMetrics, cmp.Or(host, "kubeslot-controller"))
	if err != nil {
		return nil, nil, err
	}
	mux.Handle("/metrics", guard.Wrap(handler))
	return mux, &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, Certificates: []tls.Certificate{*pair}}, nil
}
