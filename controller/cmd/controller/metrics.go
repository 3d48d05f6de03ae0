package main

import (
	"crypto/tls"
	"net"

	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// metricsOptions serve on the loopback over HTTP and to whoever can connect; elsewhere
// over HTTPS, with a certificate that the process makes for itself, and to those whom the
// API server allows to get /metrics.
func metricsOptions(address string) metricsserver.Options {
	options := metricsserver.Options{BindAddress: address}
	if address == "0" || loopback(address) {
		return options
	}
	options.SecureServing, options.FilterProvider = true, filters.WithAuthenticationAndAuthorization
	options.TLSOpts = []func(*tls.Config){func(c *tls.Config) { c.MinVersion, c.NextProtos = tls.VersionTLS12, []string{"http/1.1"} }}
	return options
}

// loopback reports whether only processes of the host can connect to the address.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}
