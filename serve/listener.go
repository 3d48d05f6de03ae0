// Package serve bounds what clients can take from a server by connecting to it: how many
// connections they hold, and for how long without a use.
//
// A listener that stops to accept when it is full would be full for everybody, so a new
// connection is always taken, and another one ends for it: see Bounded.
package serve

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/klog/v2"
)

// HTTP2Greeting is the length of what each HTTP/2 client, and so each gRPC client, sends first.
const HTTP2Greeting = len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")

// Bounds are those of one listener.
type Bounds struct {
	// Server names it in the log.
	Server string
	// Connections are the most at once; at least 1.
	Connections int
	// PerAddress is the most at once of one IP address (IPv6: of one /64, which is what one
	// machine has). 0 means no such bound, as for Unix sockets.
	PerAddress int
	// Greeting, if set, is how many bytes a client sends before it counts as served. A
	// server of NewHTTPServer tells by itself which connections are.
	Greeting int
	// Dropped, if set, is called for each connection that ended for a new one.
	Dropped func()
}

// Bounded returns a listener with bounds on l's connections. When a new one is too many for
// its address, one of that address ends; when it is too many in all, one of any address. It
// is one that is not served, if there is such a one: of these, the one whose client has been
// silent for the longest time. Put TLS above it. The logger is ctx's.
func Bounded(ctx context.Context, l net.Listener, bounds Bounds) net.Listener {
	return &listener{Listener: l, bounds: bounds, logger: klog.FromContext(ctx), began: time.Now(),
		told: rate.Sometimes{First: 1, Interval: time.Minute}, open: map[*conn]struct{}{}, from: map[netip.Prefix]int{}}
}

type listener struct {
	net.Listener
	bounds Bounds
	logger klog.Logger
	began  time.Time
	told   rate.Sometimes

	mu   sync.Mutex
	open map[*conn]struct{}
	from map[netip.Prefix]int // connections by address
}

// conn is an open connection.
type conn struct {
	net.Conn
	l       *listener
	address netip.Prefix
	served  atomic.Bool  // a request, or after the greeting
	heard   atomic.Int64 // when bytes came last, or it was accepted; since l.began
	read    int          // bytes, up to the greeting's; of the one goroutine that reads
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: accepted, l: l, address: addressOf(accepted.RemoteAddr())}
	c.hear()
	if dropped := l.add(c); dropped != nil {
		dropped.drop()
		l.told.Do(func() {
			l.logger.Info("Too many connections: those that were silent longest are closed", "server", l.bounds.Server, "limit", l.bounds.Connections,
				"limitOfAnAddress", l.bounds.PerAddress, "new", accepted.RemoteAddr().String(), "closed", dropped.RemoteAddr().String())
		})
		if l.bounds.Dropped != nil {
			l.bounds.Dropped()
		}
	}
	return c, nil
}

// add takes note of c, and returns the connection that has to end for it, or nil.
func (l *listener) add(c *conn) (dropped *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.bounds.PerAddress > 0 && l.from[c.address] >= l.bounds.PerAddress:
		dropped = l.idlest(func(other *conn) bool { return other.address == c.address })
	case len(l.open) >= l.bounds.Connections:
		dropped = l.idlest(func(*conn) bool { return true })
	}
	if dropped != nil {
		l.remove(dropped)
	}
	l.open[c] = struct{}{}
	l.from[c.address]++
	return dropped
}

// idlest returns, of the connections to choose from, the one to end. The lock is held.
func (l *listener) idlest(among func(*conn) bool) (found *conn) {
	for c := range l.open {
		if among(c) && (found == nil || c.idlerThan(found)) {
			found = c
		}
	}
	return found
}

func (c *conn) idlerThan(other *conn) bool {
	if mine, its := c.served.Load(), other.served.Load(); mine != its {
		return its
	}
	return c.heard.Load() < other.heard.Load()
}

// remove forgets c, which may have been forgotten. The lock is held.
func (l *listener) remove(c *conn) {
	if _, open := l.open[c]; !open {
		return
	}
	delete(l.open, c)
	if l.from[c.address]--; l.from[c.address] == 0 {
		delete(l.from, c.address)
	}
}

// drop closes it at once. The server that reads it gets an error, and closes it too.
func (c *conn) drop() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok && c.served.Load() {
		_ = tcp.SetLinger(0) // half an answer is of no use, and would stay in the kernel
	}
	_ = c.Conn.Close()
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.l.mu.Lock()
	c.l.remove(c)
	c.l.mu.Unlock()
	return c.Conn.Close()
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.hear()
		if c.read < c.l.bounds.Greeting {
			if c.read += n; c.read >= c.l.bounds.Greeting {
				c.served.Store(true)
			}
		}
	}
	return n, err
}

func (c *conn) hear() { c.heard.Store(int64(time.Since(c.l.began))) }

// addressOf is the client's IP address, or its IPv6 /64; the zero value of a Unix socket's.
func addressOf(remote net.Addr) netip.Prefix {
	tcp, ok := remote.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	return Client(tcp.AddrPort().Addr())
}

// Client is what one client has of addresses: an IPv4 address, or an IPv6 /64.
func Client(ip netip.Addr) netip.Prefix {
	ip = ip.Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	prefix, _ := ip.Prefix(bits) // of an address that is valid
	return prefix
}
