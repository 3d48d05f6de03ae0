// Package health serves kubecri's /metrics, /healthz and /readyz.
//
// /healthz answers 200 while this process does its own part: restart it when it
// does not. /readyz answers 200 while the kubelet can work through it, which
// includes the runtime. An API server that cannot be reached fails neither: the
// kubelet's calls go on without it, and restarting kubecri would not bring it
// back. What the API is needed for shows in /readyz as advice.
package health

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"k8s.io/klog/v2"
)

const (
	// checkTimeout bounds all checks of one request.
	checkTimeout = 5 * time.Second
	// listenRetry is between two attempts to get the address.
	listenRetry = 5 * time.Second
)

// Check is one thing that has to be well.
type Check struct {
	Name string
	// Advice is set when failing is to be shown, but does not fail the whole.
	Advice bool
	// Run returns what is wrong.
	Run func(context.Context) error
}

// Endpoints are what is served.
type Endpoints struct {
	Metrics http.Handler
	Live    []Check
	Ready   []Check
	// Guard, if set, says who may read Metrics; the checks are everybody's.
	Guard *Guard
	// TLS, if set, is what to serve with.
	TLS *tls.Config
}

// Handler returns the handler of all endpoints.
func (e Endpoints) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", e.Guard.wrap(e.Metrics))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { report(w, r, e.Live) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { report(w, r, e.Ready) })
	return mux
}

// Failing runs the checks and returns what is wrong, advice left out.
func Failing(ctx context.Context, checks []Check) error {
	var errs []error
	for _, check := range checks {
		if check.Advice {
			continue
		}
		if err := check.Run(ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", check.Name, err))
		}
	}
	return errors.Join(errs...)
}

// report writes a line a check, in the form of the API server's ?verbose.
func report(w http.ResponseWriter, r *http.Request, checks []Check) {
	ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
	defer cancel()
	var text strings.Builder
	code, verdict := http.StatusOK, "passed"
	for _, check := range checks {
		err := check.Run(ctx)
		switch {
		case err == nil:
			fmt.Fprintf(&text, "[+]%s ok\n", check.Name)
		case check.Advice:
			fmt.Fprintf(&text, "[!]%s: %v (advice)\n", check.Name, err)
		default:
			fmt.Fprintf(&text, "[-]%s failed: %v\n", check.Name, err)
			code, verdict = http.StatusServiceUnavailable, "failed"
		}
	}
	fmt.Fprintf(&text, "%s check %s\n", strings.TrimPrefix(r.URL.Path, "/"), verdict)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	fmt.Fprint(w, text.String())
}

// Serve serves on the address until ctx is done. An address that cannot be had
// is tried again: numbers are not worth a node whose kubelet is not served.
func (e Endpoints) Serve(ctx context.Context, address string) {
	logger := klog.FromContext(ctx).WithName("health")
	server := &http.Server{Handler: e.Handler(), ReadHeaderTimeout: checkTimeout}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	for {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err == nil {
			logger.Info("Serving metrics and health", "address", l.Addr().String())
			if e.TLS != nil {
				l = tls.NewListener(l, e.TLS)
			}
			err = server.Serve(l)
		}
		if ctx.Err() != nil {
			return
		}
		logger.Error(err, "Cannot serve --metrics-bind-address, trying again", "address", address, "every", listenRetry)
		select {
		case <-ctx.Done():
			return
		case <-time.After(listenRetry):
		}
	}
}
