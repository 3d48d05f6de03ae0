// Package health serves kubecri's /metrics, /healthz and /readyz.
//
// /healthz answers 200 while this process does its own part: restart it when it
// does not. /readyz answers 200 while the kubelet can work through it, which
// includes the runtime. An API server that cannot be reached fails neither: the
// kubelet's calls go on without it, and restarting kubecri would not bring it
// back. What the API is needed for shows in /readyz as advice.
//
// Why a check fails may name paths, addresses and pods. It is told on the node itself, and
// to who may get the path; others read "reason withheld", as with Kubernetes' components.
package health

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/serve"
	"github.com/kubeslot/kubeslot/serve/delegatedauth"
)

const (
	// checkTimeout bounds all checks of one request.
	checkTimeout = 5 * time.Second
	// checking is how many requests of one path have their checks run at once: each may
	// connect to our own socket and ask the runtime. The others wait.
	checking = 4
	// logEvery is at least between two lines of the log about a check that goes on to fail: reasons
	// say for how long, and the kubelet asks every few seconds.
	logEvery = 10 * time.Minute
	// listenRetry is between two attempts to get the address.
	listenRetry = 5 * time.Second

	// MaxConnections are the most at once, and maxPerAddress those of one address. The
	// kubelet has two, and each Prometheus one.
	MaxConnections = 256
	maxPerAddress  = 64
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
	// Guard, if set, says who may read Metrics, and over the network why a check fails.
	// Whether it fails is everybody's to know. Without it all is for whoever can connect.
	Guard *delegatedauth.Guard
	// TLS, if set, is what to serve with.
	TLS *tls.Config
	// Dropped, if set, is called for each connection that was closed because there were too many.
	Dropped func()
}

// Handler returns the handler of all endpoints.
func (e Endpoints) Handler() http.Handler {
	mux := http.NewServeMux()
	metrics := e.Metrics
	if e.Guard != nil {
		metrics = e.Guard.Wrap(metrics)
	}
	mux.Handle("GET /metrics", metrics)
	for path, checks := range map[string][]Check{"/healthz": e.Live, "/readyz": e.Ready} {
		r := &reporter{checks: checks, guard: e.Guard, running: make(chan struct{}, checking),
			logged: map[string]time.Time{}}
		mux.HandleFunc("GET "+path, r.report)
	}
	return mux
}

// reporter reports the checks of one path.
type reporter struct {
	checks []Check
	guard  *delegatedauth.Guard
	// running has an element for each request whose checks run.
	running chan struct{}

	mu     sync.Mutex
	logged map[string]time.Time // by check, when a reason that was withheld was logged last
}

// report writes a line a check, in the form of the API server's ?verbose.
func (p *reporter) report(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
	defer cancel()
	select {
	case p.running <- struct{}{}:
		defer func() { <-p.running }()
	case <-ctx.Done():
		http.Error(w, "too many requests", http.StatusTooManyRequests)
		return
	}
	why := func(_ Check, err error) string { return err.Error() }
	if p.guard != nil && !delegatedauth.Loopback(r.RemoteAddr) && !p.guard.Allows(r) {
		why = func(check Check, err error) string {
			p.log(ctx, check, err)
			return "reason withheld"
		}
	}
	var text strings.Builder
	code, verdict := http.StatusOK, "passed"
	for _, check := range p.checks {
		err := check.Run(ctx)
		switch {
		case err == nil:
			fmt.Fprintf(&text, "[+]%s ok\n", check.Name)
			p.forget(check)
		case check.Advice:
			fmt.Fprintf(&text, "[!]%s: %s (advice)\n", check.Name, why(check, err))
		default:
			fmt.Fprintf(&text, "[-]%s failed: %s\n", check.Name, why(check, err))
			code, verdict = http.StatusServiceUnavailable, "failed"
		}
	}
	fmt.Fprintf(&text, "%s check %s\n", strings.TrimPrefix(r.URL.Path, "/"), verdict)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	fmt.Fprint(w, text.String())
}

// log logs a reason that is withheld, once until the check passes and now and then.
func (p *reporter) log(ctx context.Context, check Check, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last, logged := p.logged[check.Name]; logged && time.Since(last) < logEvery {
		return
	}
	p.logged[check.Name] = time.Now()
	klog.FromContext(ctx).Info("A health check fails", "check", check.Name, "advice", check.Advice, "reason", err)
}

func (p *reporter) forget(check Check) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.logged, check.Name)
}

// Serve serves on the address until ctx is done. An address that cannot be had
// is tried again: numbers are not worth a node whose kubelet is not served.
func (e Endpoints) Serve(ctx context.Context, address string) {
	logger := klog.FromContext(ctx).WithName("health")
	server := serve.NewHTTPServer(klog.NewContext(ctx, logger), e.Handler())
	defer context.AfterFunc(ctx, func() { server.Close() })()
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err == nil {
			logger.Info("Serving metrics and health", "address", l.Addr().String())
			l = serve.Bounded(ctx, l, serve.Bounds{Server: "metrics", Connections: MaxConnections, PerAddress: maxPerAddress, Dropped: e.Dropped})
			if e.TLS != nil {
				l = tls.NewListener(l, e.TLS)
			}
			err = server.Serve(l)
		}
		if ctx.Err() == nil {
			logger.Error(err, "Cannot serve --metrics-bind-address, trying again", "address", address,
				"every", listenRetry)
		}
	}, listenRetry)
}
