package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/kubeslot/kubeslot/types/contain"
)

// ErrAway is in errors of calls while no server of the plugin is ready.
var ErrAway = errors.New("is away")

// errEnded is why a server takes no calls.
var errEnded = errors.New("its server ended, or closed the connection")

// errReplaced ends the connection to a server that a newer one has replaced.
var errReplaced = errors.New("a newer server of the plugin has replaced it")

const (
	// maxErrorBytes is how much of a plugin's own error is given on: it is for an Event.
	maxErrorBytes = 512
	// maxQuoted is how many bytes of a plugin's words are quoted in a sentence.
	maxQuoted = 80
)

// Plugin is one half of a plugin by its name, for as long as the process runs: its servers come and
// go. It is safe for concurrent use.
type Plugin struct {
	name    string
	policy  Policy
	folder  string
	handler Handler

	mu sync.Mutex
	// servers are those that are ready, in the order of their sockets. The last one is called; the
	// others have calls in flight.
	servers []*server
	since   time.Time // when the last one went away; when the plugin was first seen
	reason  error     // why there is none
}

// server is a connection to a plugin on which Connect runs.
type server struct {
	conn  *grpc.ClientConn
	order int // of its socket: the newest has the highest
	// end ends Connect.
	end     context.CancelCauseFunc
	breaker breaker
	calls   int           // in flight
	gone    bool          // takes no calls any more
	left    chan struct{} // is closed then
}

// Name returns the plugin's name.
func (p *Plugin) Name() string { return p.name }

// Required reports whether pods wait for the plugin while it is away.
func (p *Plugin) Required() bool { return p.policy != Ignore }

// Away returns nil while a server of the plugin is ready; otherwise why none is, since when, and
// what to do.
func (p *Plugin) Away() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.away()
}

func (p *Plugin) away() error {
	if len(p.servers) > 0 {
		return nil
	}
	reason, remedy := "no socket in "+p.folder+" is its", "start it"
	if p.reason != nil {
		reason = p.reason.Error()
	}
	if p.Required() {
		remedy += fmt.Sprintf(", or run without it by --plugin-policy=%s=%s", p.name, Ignore)
	}
	return fmt.Errorf("plugin %q %w since %s: %s; %s", p.name, ErrAway, p.since.UTC().Format(time.RFC3339), reason,
		remedy)
}

// Unavailable returns nil while calls reach the plugin; otherwise that it is away, or that its last
// calls ran into their deadlines, and until when it is not called.
func (p *Plugin) Unavailable() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.current()
	switch {
	case s == nil:
		return p.away()
	case s.breaker.paused(time.Now()):
		return p.paused(s)
	}
	return nil
}

func (p *Plugin) paused(s *server) error {
	return fmt.Errorf("plugin %q did not answer its last calls in time, and is called again at %s",
		p.name, s.breaker.until.UTC().Format(time.RFC3339))
}

// Call has f call the plugin's server. f's context ends after the timeout. An error of f's is one of
// the plugin, and names it and the method: status.Code gives its code, and errors.Is tells whether
// it was contain.ErrTimeout or ErrAway. After some calls that ran into the timeout the next ones
// fail at once for a while.
func (p *Plugin) Call(ctx context.Context, timeout time.Duration, method string,
	f func(ctx context.Context, conn grpc.ClientConnInterface) error) error {
	s, try, err := p.begin()
	if err != nil {
		return err
	}
	begun := time.Now()
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err = f(limited, s.conn)
	how := answered
	switch {
	case err == nil:
	case s.conn.GetState() != connectivity.Ready && status.Code(err) == codes.Unavailable:
		how, err = cut, errEnded
	case limited.Err() == nil && status.Code(err) != codes.DeadlineExceeded: // which the server may see first
	case !errors.Is(limited.Err(), context.Canceled) && time.Since(begun) >= timeout/2:
		how, err = late, fmt.Errorf("%w: %s", contain.ErrTimeout, timeout)
	default: // the caller gave up, or its own deadline came much sooner
		how = cut
	}
	p.end(s, try, how)
	if err == nil {
		return nil
	}
	return &callError{p.name, method, err}
}

// begin counts a call of the current server.
func (p *Plugin) begin() (s *server, try int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s = p.current(); s == nil {
		return nil, 0, p.away()
	}
	try, ok := s.breaker.begin(time.Now())
	if !ok {
		return nil, 0, p.paused(s)
	}
	s.calls++
	return s, try, nil
}

// end ends a call that begin has counted.
func (p *Plugin) end(s *server, try int, how outcome) {
	p.mu.Lock()
	s.calls--
	was := s.breaker.pause
	s.breaker.end(time.Now(), try, how)
	pause := s.breaker.pause
	p.settle(s)
	p.mu.Unlock()
	if try > 0 || pause != was {
		p.handler.Changed()
	}
	if pause != was && pause > 0 {
		time.AfterFunc(pause, p.handler.Changed) // a call may try
	}
}

func (p *Plugin) current() *server {
	if len(p.servers) == 0 {
		return nil
	}
	return p.servers[len(p.servers)-1]
}

// settle ends a server that has no calls and gets none.
func (p *Plugin) settle(s *server) {
	switch current := p.current(); {
	case s.calls > 0:
	case s.gone:
		s.end(context.Canceled)
	case s != current:
		s.end(errReplaced)
	}
}

// ready adds a server.
func (p *Plugin) ready(s *server) {
	p.mu.Lock()
	if s.gone {
		p.mu.Unlock()
		return
	}
	p.servers = append(p.servers, s)
	slices.SortFunc(p.servers, func(a, b *server) int { return a.order - b.order })
	for _, other := range p.servers {
		p.settle(other)
	}
	p.mu.Unlock()
	p.handler.Changed()
}

// leave takes a server out, for the reason. It ends once its calls have.
func (p *Plugin) leave(s *server, reason error) {
	p.mu.Lock()
	if !s.gone {
		s.gone = true
		close(s.left)
	}
	i := slices.Index(p.servers, s)
	if i >= 0 {
		p.servers = slices.Delete(p.servers, i, i+1)
	}
	if len(p.servers) == 0 {
		p.reason = reason
		if i >= 0 {
			p.since = time.Now()
		}
	}
	p.settle(s)
	p.mu.Unlock()
	if i >= 0 {
		p.handler.Changed()
	}
}

// unreachable takes why no server could be connected.
func (p *Plugin) unreachable(reason error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.servers) == 0 {
		p.reason = reason
	}
}

// newer returns nil unless a server of a newer socket is called; then a channel that is closed when
// that one takes no calls any more.
func (p *Plugin) newer(order int) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.current(); s != nil && s.order > order {
		return s.left
	}
	return nil
}

// callError is what went wrong in a call.
type callError struct {
	plugin, method string
	err            error
}

// Error says which plugin failed at what, and how, on one short line.
func (e *callError) Error() string {
	text := e.err.Error()
	if s, ok := status.FromError(e.err); ok {
		text = s.Code().String() + ": " + s.Message()
	}
	return fmt.Sprintf("plugin %q failed in %s: %s", e.plugin, e.method, shorten(text, maxErrorBytes))
}

// Unwrap returns the error of the call.
func (e *callError) Unwrap() error { return e.err }

// shorten returns the text on one line of at most this many bytes, and whatever a log can print.
func shorten(text string, most int) string {
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
}
