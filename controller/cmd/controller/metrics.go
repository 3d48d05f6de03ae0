package main

import (
	"crypto/tls"
	"net/http"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kubeslot/kubeslot/types/client/delegatedauth"
)

// metricsOptions serve on the loopback over HTTP and to whoever can connect; elsewhere
// over HTTPS, with a certificate that the process makes for itself, and to those whom the
// API server allows to get /metrics.
func metricsOptions(address string) metricsserver.Options {
	options := metricsserver.Options{BindAddress: address}
	if address == "0" || delegatedauth.Loopback(address) {
		return options
	}
	options.SecureServing, options.FilterProvider = true, filter
	options.TLSOpts = []func(*tls.Config){func(c *tls.Config) { c.MinVersion, c.NextProtos = tls.VersionTLS12, []string{"http/1.1"} }}
	return options
}

// filter has the API server say who may get what the handler serves. controller-runtime's
// own answers 500 to a token that the API server does not know, and logs each as an error.
func filter(config *rest.Config, client *http.Client) (metricsserver.Filter, error) {
	kube, err := kubernetes.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, err
	}
	guard, err := delegatedauth.New(kube)
	if err != nil {
		return nil, err
	}
	return func(_ logr.Logger, handler http.Handler) (http.Handler, error) { return guard.Wrap(handler), nil }, nil
}
