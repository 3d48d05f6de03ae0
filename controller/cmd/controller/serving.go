package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kubeslot/kubeslot/serve"
)

// The most connections of each server, in all and of one address.
const maxConnections, maxPerAddress = 256, 64

// stopTimeout is how long requests that have begun may go on when the process ends.
const stopTimeout = 5 * time.Second

// The servers, as the metric has them.
const (
	serverMetrics = "metrics"
	serverHealth  = "health"
	serverWebhook = "webhook"
)

var dropped = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubeslot_controller_connections_dropped_total",
	Help: "Connections that were closed because a server had too many: those whose clients were silent the longest, by server."}, []string{"server"})

func init() {
	for _, server := range []string{serverMetrics, serverHealth, serverWebhook} {
		dropped.WithLabelValues(server)
	}
	metrics.Registry.MustRegister(dropped)
}

// listen listens on the address of the server, with bounds on its connections.
func listen(ctx context.Context, server, address string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s server: %w", server, err)
	}
	return serve.Bounded(ctx, l, serve.Bounds{Server: server, Connections: maxConnections, PerAddress: maxPerAddress,
		Dropped: dropped.WithLabelValues(server).Inc}), nil
}

// addServer has the manager serve the handler, whether it leads or not; "0" is no address.
// controller-runtime's own servers have no bounds. config is nil for plain HTTP.
func addServer(ctx context.Context, mgr manager.Manager, name, address string, handler http.Handler, config *tls.Config) error {
	if address == "0" {
		return nil
	}
	l, err := listen(ctx, name, address)
	if err != nil {
		return err
	}
	if config != nil {
		l = tls.NewListener(l, config)
	}
	return mgr.Add(&manager.Server{
		Name: name, Server: serve.NewHTTPServer(ctx, handler), Listener: l, ShutdownTimeout: new(stopTimeout)})
}

// healthHandler serves the checks: live at /healthz, and ready at /readyz.
func healthHandler(live, ready map[string]healthz.Checker) http.Handler {
	mux := http.NewServeMux()
	for path, checks := range map[string]map[string]healthz.Checker{"/healthz": live, "/readyz": ready} {
		handler := http.StripPrefix(path, &healthz.Handler{Checks: checks})
		mux.Handle(path, handler)
		mux.Handle(path+"/", handler) // one check
	}
	return mux
}
