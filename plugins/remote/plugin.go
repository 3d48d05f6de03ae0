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

// errLate ends the connection to a server that does not answer.
var errLate = fmt.Errorf("its last calls each %w, and it is connected again after a while", contain.ErrTimeout)

// errReplaced ends the connection to a server that a newer one has replaced.
var errReplaced = errors.New("a newer server of the plugin has replaced it")

const (
	// maxLate is how many calls in a row may run into their deadlines. It ends the connection, which is made
	// again later and later; the first call that is late then ends it again.
	maxLate = 3
	// enough is the time in which a plugin should answer callers whose own deadlines are sooner than its
	// own: NRI's is 1.5 s.
	enough = time.Second
	// maxErrorBytes is how much of a plugin's own error is given on: it is for an Event.
	maxErrorBytes = 512
	// maxQuoted is how many bytes of a plugin's words are quoted in a sentence.
	maxQuoted = 80
)

// Plugin is one half of a plugin by its name, for as long as the process runs: its servers come and
// go. It is safe for concurrent use.
type Plugin struct {
	name    string
	options *Options
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

	socket *socket
	// running is Connect's context, which end ends.
	running context.Context
	end     context.CancelCauseFunc
	calls   sync.WaitGroup // in flight

	dropped bool // it gets no calls any more; locked by its Plugin
}

// Away returns nil while a server of the plugin is ready; otherwise why none is, since when, and
// what to do.
func (p *Plugin) Away() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.called != nil {
		return nil
	}
	return p.wrong()
}

// Failing is Away also while a server that did not answer is connected again, and has not answered yet.
func (p *Plugin) Failing() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.called != nil && p.called.socket.late < maxLate {
		return nil
	}
	return p.wrong()
}

// wrong says why none is called, or none answers.
func (p *Plugin) wrong() error {
	reason, remedy := "no socket in "+p.options.Sockets+" is its", "start it"
	if p.reason != nil {
		reason = p.reason.Error()
	}
	if p.Required() {
		remedy += fmt.Sprintf(", or run without it by --plugin-policy=%s=%s", p.name, Ignore)
	}
	return fmt.Errorf("plugin %q %w since %s: %s; %s", p.name, ErrAway, p.since.UTC().Format(time.RFC3339), reason,
		remedy)
}

// Required reports whether pods wait for the plugin while it is away.
func (p *Plugin) Required() bool { return p.options.Policies[p.name] != Ignore }

// Call has f call the plugin's server. f's context ends after the timeout. An error of f's is one of
// the plugin, and names it and the method: status.Code gives its code, and errors.Is tells whether
// it was contain.ErrTimeout or ErrAway. After some calls that ran into the timeout the plugin is away
// for a while.
func (p *Plugin) Call(ctx context.Context, timeout time.Duration, method string,
	f func(ctx context.Context, s *Server) error) error {
	s, err := p.begin()
	if err != nil {
		return err
	}
	begun := time.Now()
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	due, _ := limited.Deadline()
	had := due.Sub(begun).Round(time.Millisecond)
	err = f(limited, s)
	answered, late := false, false // neither if the caller gave up, or had too little time
	switch {
	case err == nil:
		answered = true
	case s.GetState() != connectivity.Ready && status.Code(err) == codes.Unavailable:
		err = errEnded
	case limited.Err() == nil && status.Code(err) != codes.DeadlineExceeded: // which the server may see first
		answered = true
	case !errors.Is(limited.Err(), context.Canceled) && had >= min(timeout/2, enough) && time.Since(begun) >= had/2:
		late, err = true, fmt.Errorf("%w: %s", contain.ErrTimeout, had)
	}
	p.end(s, answered, late)
	if err == nil {
		return nil
	}
	return &callError{p.name, method, err}
}

// GetName returns the plugin's name.
func (p *Plugin) GetName() string { return p.name }

// begin counts a call of the server that is called.
func (p *Plugin) begin() (*Server, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.called == nil {
		return nil, p.wrong()
	}
	p.called.calls.Add(1)
	return p.called, nil
}

// end ends a call that begin has counted: it was answered, also with an error, or was late, or says nothing
// about the server. It drops a server that does not answer.
func (p *Plugin) end(s *Server, answered, late bool) {
	p.mu.Lock()
	before := s.socket.late
	switch {
	case answered:
		s.socket.late = 0
	case late:
		s.socket.late++
	}
	drop, recovered := late && s.socket.late >= maxLate, answered && before >= maxLate
	p.mu.Unlock()
	s.calls.Done()
	if drop {
		p.drop(s, errLate)
	}
	if recovered {
		p.handler.Changed()
	}
}

// ready has the server called from now on, unless a newer one is.
func (p *Plugin) ready(s *Server) {
	p.mu.Lock()
	replaced := p.called
	switch {
	case s.dropped:
		replaced = nil
	case replaced != nil && replaced.socket.order > s.socket.order:
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
	if s := p.called; s != nil && s.socket.order > order {
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
