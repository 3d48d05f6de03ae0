package serve

import (
	"bytes"
	"context"
	"log"
	"net"
	"net/http"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/klog/v2"
)

const (
	// HandshakeTimeout bounds what comes before a request: the handshakes of TLS and HTTP/2,
	// and a request's header.
	HandshakeTimeout = 10 * time.Second
	// readTimeout bounds a whole request, and writeTimeout its answer.
	readTimeout  = 30 * time.Second
	writeTimeout = 30 * time.Second
	// idleTimeout is how long a connection is kept for the next request: longer than
	// Prometheus' and Kubernetes' clients wait between two.
	idleTimeout = 2 * time.Minute
	// maxHeaderBytes are of one request; a token of the API server has a few KiB.
	maxHeaderBytes = 64 << 10
	// maxStreams are the requests that one HTTP/2 client has at once.
	maxStreams = 100
)

// NewHTTPServer returns a server whose clients cannot keep a connection by being slow. A
// handler that streams sets deadlines of its own, by http.ResponseController. The contexts
// of requests are made of ctx.
func NewHTTPServer(ctx context.Context, handler http.Handler) *http.Server {
	return &http.Server{
		Handler: handler, BaseContext: func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: HandshakeTimeout, // also the TLS handshake's
		ReadTimeout:       readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		// With HTTP/2 the deadlines above are of requests. These are of the connection.
		HTTP2:     &http.HTTP2Config{MaxConcurrentStreams: maxStreams, WriteByteTimeout: writeTimeout, SendPingTimeout: idleTimeout},
		ConnState: note,
		ErrorLog:  log.New(&errorLog{klog.FromContext(ctx), rate.Sometimes{First: 10, Interval: 10 * time.Second}}, "", 0),
	}
}

// note tells a bounded listener whether a connection has a request.
func note(c net.Conn, state http.ConnState) {
	if tls, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = tls.NetConn()
	}
	if ours, ok := c.(*conn); ok {
		ours.hear() // an answer is on its way to the client: others end before this one
		ours.served.Store(state == http.StateActive)
	}
}

// errorLog takes what the server has to say of its clients: handshakes that fail, and so on.
// Clients decide how often, so not all of it is logged.
type errorLog struct {
	logger klog.Logger
	some   rate.Sometimes
}

// Write implements io.Writer.
func (e *errorLog) Write(line []byte) (int, error) {
	e.some.Do(func() { e.logger.Info("Serving HTTP", "problem", string(bytes.TrimSpace(line))) })
	return len(line), nil
}
