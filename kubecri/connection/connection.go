// Package connection connects kubecri to the API server.
package connection

import (
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// longestTurn is how long a request may keep others from connecting. A dial may hang for
// longer, and the next may not. It is long beside what a handshake takes when a thousand nodes
// come together, for then it matters most.
const longestTurn = 5 * time.Second

// New returns the one client for all that kubecri asks of the API server.
//
// Go's HTTP client dials for each request that finds no connection: five watches that begin
// together, at the start or when the API server comes back, are five TLS handshakes, of
// which four connections are not used. With a thousand nodes they are most of what these
// cost the API server. So requests get their connection one after the other, and all get
// the first one's.
func New(config *rest.Config) (*http.Client, error) { return newClient(config, longestTurn) }

func newClient(config *rest.Config, longest time.Duration) (*http.Client, error) {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &turns{next: next, longest: longest, turn: make(chan struct{}, 1)}
	})
	return rest.HTTPClientFor(config)
}

// turns lets one request at a time get its connection. Safe for concurrent use.
type turns struct {
	next    http.RoundTripper
	longest time.Duration
	turn    chan struct{} // holds a value while a request has its turn
}

func (t *turns) RoundTrip(request *http.Request) (*http.Response, error) {
	select {
	case t.turn <- struct{}{}:
	case <-request.Context().Done():
		if request.Body != nil { // it is ours to close, also when the request fails
			_ = request.Body.Close()
		}
		return nil, request.Context().Err()
	}
	end := sync.OnceFunc(func() { <-t.turn })
	defer end() // it has failed, then
	late := time.AfterFunc(t.longest, end)
	defer late.Stop()
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { end() }}
	return t.next.RoundTrip(request.WithContext(httptrace.WithClientTrace(request.Context(), trace)))
}

// WrappedRoundTripper is what is below, for client-go, which closes its idle connections.
func (t *turns) WrappedRoundTripper() http.RoundTripper { return t.next }
