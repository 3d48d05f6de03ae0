package ui

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/kubeslot/kubeslot/serve"
)

// maxConnections are the most at once of a page that is one user's.
const maxConnections = 256

// Local serves the page on this machine, to the user who started it.
type Local struct {
	hub      *Hub
	listener net.Listener
	handler  http.Handler
	address  string // without a key
	keyed    *keyed
}

// NewLocal listens at the address, which has to be one of this machine alone; port 0 is
// any that is free.
func NewLocal(address string, about About, hub *Hub, events EventReader) (*Local, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("listen address %q: %w: want host:port, such as 127.0.0.1:0", address, err)
	}
	if !loopback(host) {
		return nil, fmt.Errorf("listen address %q: the page has your rights, so it is served on localhost only (127.0.0.1 or ::1). "+
			"To reach it from elsewhere use a tunnel (ssh -L); to serve it to others use kubeslot-ui, see docs/ui.md",
			address)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	all := &viewer{Hub: hub, about: about, events: events}
	keyed := newKeyed(port, routes(func(http.ResponseWriter, *http.Request) *viewer { return all }))
	return &Local{hub: hub, listener: listener, handler: guarded(onLoopback(keyed)), keyed: keyed,
		address: "http://" + net.JoinHostPort(host, port) + "/?key="}, nil
}

// Address is where to open the page, with the key to it.
func (l *Local) Address() string { return l.address + l.keyed.key }

// AddressOnce opens the page one time, for a command line.
func (l *Local) AddressOnce() string { return l.address + l.keyed.once }

// Serve serves until ctx is done.
func (l *Local) Serve(ctx context.Context) error {
	server := NewServer(ctx, l.handler)
	context.AfterFunc(ctx, func() { server.Close() }) // pages are connected as long as they are open
	go l.hub.Run(ctx)
	bounded := serve.Bounded(ctx, l.listener, serve.Bounds{Server: "page", Connections: maxConnections})
	if err := server.Serve(bounded); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the page: %w", err)
	}
	return nil
}

// NewServer makes a server of the page. No client keeps it busy by being slow; the streams
// of updates set deadlines of their own. The contexts of requests are made of ctx.
func NewServer(ctx context.Context, handler http.Handler) *http.Server {
	server := serve.NewHTTPServer(ctx, handler)
	server.WriteTimeout = 2 * time.Minute // all devices of a cluster, over a slow network
	return server
}
