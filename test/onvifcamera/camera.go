package onvifcamera

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Auth says how a camera with a user wants to be told who asks.
type Auth string

const (
	// AuthWSS accepts a WS-UsernameToken digest, and answers others with the SOAP
	// fault ter:NotAuthorized and HTTP status 400.
	AuthWSS Auth = "wss"

	// AuthDigest accepts HTTP digest (RFC 7616) and answers others with status 401.
	AuthDigest Auth = "digest"

	// AuthBoth accepts either, and answers others with status 401.
	AuthBoth Auth = "both"
)

// Config describes a camera. Its zero value, with a UUID, is a camera without
// password on every interface.
type Config struct {
	// UUID is the camera's identity: its endpoint reference is urn:uuid:<UUID>.
	UUID string

	// Interface is the network interface to live on; every one that is up and has
	// multicast, but for loopback, when empty.
	Interface string

	// Port is the port of the HTTP server; any free one when 0.
	Port int

	// XAddrs are the addresses that the camera tells of its device service. When
	// empty, it tells those of the interface that a message leaves by, of the same
	// IP version.
	XAddrs []string

	// Types are the QNames told, of the prefixes dn (ver10/network/wsdl) and tds
	// (ver10/device/wsdl); both kinds when empty.
	Types []string

	// Scopes are told besides those that every camera has.
	Scopes []string

	// Name becomes the name scope; "Simulated" when empty.
	Name string

	// MAC and IP are what GetNetworkInterfaces tells; the interface's when empty.
	MAC, IP string

	// User and Password are needed for all but the operations that ONVIF leaves
	// open (access class PRE_AUTH). No user: nothing is needed.
	User, Password string

	// Auth is AuthBoth when empty.
	Auth Auth

	// DigestAlgorithm of HTTP digest is MD5 or SHA-256; both are offered when empty.
	DigestAlgorithm string

	// RefuseReplays refuses a WS-UsernameToken whose nonce was used before, as the
	// profile recommends. Debian's onvif-tools use nonces again, and fail.
	RefuseReplays bool

	// ClockOffset is how far the camera's clock is ahead of this machine's.
	ClockOffset time.Duration

	// MaxDelay bounds the random time before an answer to a multicast probe:
	// WS-Discovery's APP_MAX_DELAY, 500 ms when 0.
	MaxDelay time.Duration

	// NoXAddrsInMatches leaves the XAddrs out of Hello and ProbeMatches, as
	// WS-Discovery allows: clients must resolve.
	NoXAddrsInMatches bool

	// Log is told what happens; may be nil.
	Log func(format string, args ...any)
}

// Camera is a running camera. Its methods are safe for concurrent use.
type Camera struct {
	config   Config
	http     *http.Server
	listener net.Listener
	links    []*link
	auth     authenticator
	started  time.Time
	done     chan struct{}
	readers  sync.WaitGroup

	mu       sync.Mutex
	deaf     bool
	offset   time.Duration
	xaddrs   []string
	version  int             // of the metadata
	messages uint64          // of this instance, so far
	seen     map[string]bool // message IDs that were answered
	counts   map[string]int
}

// Start starts a camera and says Hello. All its sockets are opened before Start
// returns, on the calling thread, and so in that thread's network namespace.
func Start(config Config) (*Camera, error) {
	if config.UUID == "" {
		return nil, errors.New("simulated camera: it needs a UUID")
	}
	if config.Name == "" {
		config.Name = "Simulated"
	}
	if config.Auth == "" {
		config.Auth = AuthBoth
	}
	if !slices.Contains([]Auth{AuthWSS, AuthDigest, AuthBoth}, config.Auth) {
		return nil, fmt.Errorf("simulated camera: authentication %q is none of wss, digest, both", config.Auth)
	}
	if config.MaxDelay == 0 {
		config.MaxDelay = 500 * time.Millisecond
	}
	if len(config.Types) == 0 {
		config.Types = []string{"dn:NetworkVideoTransmitter", "tds:Device"}
	}
	if config.Log == nil {
		config.Log = func(string, ...any) {}
	}
	c := &Camera{
		config: config, done: make(chan struct{}), started: time.Now(), offset: config.ClockOffset,
		xaddrs: config.XAddrs, version: 1, seen: map[string]bool{}, counts: map[string]int{},
	}
	c.auth = newAuthenticator(config, c.now)

	listener, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(config.Port)))
	if err != nil {
		return nil, fmt.Errorf("simulated camera: HTTP server: %w", err)
	}
	c.listener = listener
	c.http = &http.Server{Handler: c.handler(), ReadHeaderTimeout: 10 * time.Second}
	if c.links, err = openLinks(config.Interface); err != nil {
		listener.Close()
		return nil, fmt.Errorf("simulated camera: %w", err)
	}
	go func() { _ = c.http.Serve(listener) }()
	for _, l := range c.links {
		for _, conn := range []net.PacketConn{l.group, l.own} {
			c.readers.Go(func() { c.read(l, conn) })
		}
	}
	c.Hello()
	return c, nil
}

// Stop says Bye and ends the camera.
func (c *Camera) Stop() {
	c.Bye()
	c.Kill()
}

// Kill ends the camera without a Bye, as a loss of power does.
func (c *Camera) Kill() {
	c.mu.Lock()
	select {
	case <-c.done:
		c.mu.Unlock()
		return
	default:
		close(c.done)
	}
	c.mu.Unlock()
	_ = c.http.Close()
	for _, l := range c.links {
		l.close()
	}
	c.readers.Wait()
}

// StopHTTP ends the HTTP server alone: probes are answered as before.
func (c *Camera) StopHTTP() { _ = c.http.Shutdown(context.Background()) }

// SetDeaf makes the camera ignore all that comes by multicast, or hear it again.
// HTTP requests are answered as before.
func (c *Camera) SetDeaf(deaf bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deaf = deaf
}

// SetClockOffset sets how far the camera's clock is ahead of this machine's.
func (c *Camera) SetClockOffset(offset time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset = offset
}

// SetXAddrs changes the addresses told, as a DHCP server does, with a new version
// of the metadata. It says no Hello.
func (c *Camera) SetXAddrs(xaddrs ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.xaddrs, c.version = xaddrs, c.version+1
}

// Count returns how many messages of a kind came in so far: the name of an ONVIF
// operation such as "GetNetworkInterfaces", "Probe", "Resolve", or "unauthorized"
// for requests that were turned down.
func (c *Camera) Count(kind string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[kind]
}

func (c *Camera) count(kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[kind]++
}

// Port returns the port of the HTTP server.
func (c *Camera) Port() int { return c.listener.Addr().(*net.TCPAddr).Port }

// XAddrs returns the addresses of the device service on all interfaces.
func (c *Camera) XAddrs() []string {
	var all []string
	for _, l := range c.links {
		for _, xaddr := range c.xaddrsOn(l) {
			if !slices.Contains(all, xaddr) {
				all = append(all, xaddr)
			}
		}
	}
	return all
}

// xaddrsOn returns the addresses to tell on a link.
func (c *Camera) xaddrsOn(l *link) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.xaddrs) > 0 {
		return c.xaddrs
	}
	var xaddrs []string
	for _, address := range l.addresses {
		xaddrs = append(xaddrs, serviceURL(address, c.Port(), devicePath))
	}
	return xaddrs
}

func serviceURL(address netip.Addr, port int, path string) string {
	host := address.WithZone("").String()
	if address.Is6() {
		host = "[" + host + "]"
	}
	if port != 80 {
		host += ":" + strconv.Itoa(port)
	}
	return "http://" + host + path
}

// scopes returns all scopes of the camera.
func (c *Camera) scopes() []string {
	return append([]string{
		"onvif://www.onvif.org/type/video_encoder",
		"onvif://www.onvif.org/Profile/Streaming",
		"onvif://www.onvif.org/name/" + url.PathEscape(c.config.Name),
		"onvif://www.onvif.org/hardware/" + url.PathEscape(model),
	}, c.config.Scopes...)
}

// types returns the types as QNames of the prefixes that messages declare.
func (c *Camera) types() string { return strings.Join(c.config.Types, " ") }

// now returns the time of the camera's clock.
func (c *Camera) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.offset).UTC()
}
