package remote

import (
	"context"
	"errors"
	"fmt"
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

// errLate is why a server gets no calls for a while.
var errLate = fmt.Errorf("each %w; it is called again after a while", contain.ErrTimeout)

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
	policy  string
	folder  string
	handler Handler

	mu sync.Mutex
	// called is the newest server that is ready, nil for none; last is the same, or was it last.
	called, last *Server
	since        time.Time // when the last one went away; when the plugin was first seen
	reason       error     // why there is none
}

// Server is a connection to a plugin's server, on which Connect runs.
type Server struct {
	*grpc.ClientConn
	// State is the Handler's: it sets it before the server is ready.
	State any

	order int // of its socket: the newest has the highest
	// running is Connect's context, which end ends.
	running context.Context
	end     context.CancelCauseFunc
	calls   sync.WaitGroup // in flight

	// These are locked by its Plugin.
	breaker breaker
	dropped bool // it gets no calls any more
}

// Name returns the plugin's name.
func (p *Plugin) Name() string { return p.name }

// Required reports whether pods wait for the plugin while it is away.
func (p *Plugin) Required() bool { return p.policy != Ignore }

// Away returns nil while a server of the plugin is ready; otherwise why none is, since when, and
// what to do.
func (p *Plugin) Away() error { return p.locked(p.away) }

func (p *Plugin) away() error {
	if p.called != nil {
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

// Failing returns nil while the plugin answers; otherwise that it is away, or that its last calls ran
// into their deadlines.
func (p *Plugin) Failing() error { return p.locked(p.failing) }

func (p *Plugin) failing() error {
	if s := p.called; s != nil && s.breaker.open() {
		return &callError{p.name, "its last calls", errLate}
	}
	return p.away()
}

// Unavailable is Failing while no call reaches the plugin: not when one is to try whether it answers.
func (p *Plugin) Unavailable() error { return p.locked(p.unavailable) }

func (p *Plugin) unavailable() error {
	if s := p.called; s != nil && !s.breaker.paused(time.Now()) {
		return nil
	}
	return p.failing()
}

func (p *Plugin) locked(f func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return f()
}

// Call has f call the plugin's server. f's context ends after the timeout. An error of f's is one of
// the plugin, and names it and the method: status.Code gives its code, and errors.Is tells whether
// it was contain.ErrTimeout or ErrAway. After some calls that ran into the timeout the next ones
// fail at once for a while.
func (p *Plugin) Call(ctx context.Context, timeout time.Duration, method string,
	f func(ctx context.Context, s *Server) error) error {
	s, err := p.begin(timeout)
	if err != nil {
		return err
	}
	begun := time.Now()
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err = f(limited, s)
	how := answered
	switch {
	case err == nil:
	case s.GetState() != connectivity.Ready && status.Code(err) == codes.Unavailable:
		how, err = cut, errEnded
	case limited.Err() == nil && status.Code(err) != codes.DeadlineExceeded: // which the server may see first
	case !errors.Is(limited.Err(), context.Canceled) && time.Since(begun) >= timeout/2:
		how, err = late, fmt.Errorf("%w: %s", contain.ErrTimeout, timeout)
	default: // the caller gave up, or its own deadline came much sooner
		how = cut
	}
	p.end(s, how)
	if err == nil {
		return nil
	}
	return &callError{p.name, method, err}
}

// begin counts a call of the server that is called.
func (p *Plugin) begin(timeout time.Duration) (*Server, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.unavailable(); err != nil {
		return nil, err
	}
	s := p.called
	if s.breaker.begin(time.Now(), timeout) {
		p.changeAfterPause(s)
	}
	s.calls.Add(1)
	return s, nil
}

// end ends a call that begin has counted.
func (p *Plugin) end(s *Server, how outcome) {
	p.mu.Lock()
	changed := s.breaker.end(time.Now(), how)
	if changed && s.breaker.open() {
		p.changeAfterPause(s)
	}
	p.mu.Unlock()
	s.calls.Done()
	if changed {
		p.handler.Changed()
	}
}

// changeAfterPause calls Changed when a call may try again.
func (p *Plugin) changeAfterPause(s *Server) {
	time.AfterFunc(time.Until(s.breaker.until), p.handler.Changed)
}

// ready has the server called from now on, unless a newer one is.
func (p *Plugin) ready(s *Server) {
	p.mu.Lock()
	replaced := p.called
	switch {
	case s.dropped:
		replaced = nil
	case replaced != nil && replaced.order > s.order:
		replaced = s
	default:
		p.called, p.last = s, s
	}
	p.mu.Unlock()
	if replaced != nil {
		p.drop(replaced, errReplaced)
	}
	p.handler.Changed()
}

// drop gives the server no more calls, for the reason, and has it end once none is in flight.
func (p *Plugin) drop(s *Server, reason error) {
	p.mu.Lock()
	first, called := !s.dropped, p.called == s
	s.dropped = true
	if called {
		p.called, p.since = nil, time.Now()
	}
	p.mu.Unlock()
	if !first {
		return
	}
	p.unreachable(reason)
	go func() {
		s.calls.Wait()
		s.end(reason)
	}()
	if called {
		p.handler.Changed()
	}
}

// unreachable takes why no server could be connected, or why one went away.
func (p *Plugin) unreachable(reason error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.called == nil {
		p.reason = reason
	}
}

// newer returns nil unless a server of a newer socket is called; then a channel that is closed when
// that one has ended. There is none of a plugin that is nil, since it is not known yet.
func (p *Plugin) newer(order int) <-chan struct{} {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.called; s != nil && s.order > order {
		return s.running.Done()
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
