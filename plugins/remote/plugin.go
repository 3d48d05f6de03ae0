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
	policy  string
	folder  string
	handler Handler

	mu sync.Mutex
	// called is the newest server that is ready, nil for none; last is the same, or was it last.
	called, last *Server
	since        time.Time // when the last one went away; when the plugin was first seen
	reason       error     // why there is none
	late         int       // calls in a row, of servers of one socket
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

	dropped bool // it gets no calls any more; locked by its Plugin
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
	if p.called != nil {
		return nil
	}
	return p.wrong()
}

// Failing is Away also while a server that did not answer is connected again, and has not answered yet.
func (p *Plugin) Failing() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.called != nil && p.late < maxLate {
		return nil
	}
	return p.wrong()
}

func (p *Plugin) wrong() error {
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
	how := cut // the caller gave up, or had too little time
	switch {
	case err == nil:
		how = answered
	case s.GetState() != connectivity.Ready && status.Code(err) == codes.Unavailable:
		err = errEnded
	case limited.Err() == nil && status.Code(err) != codes.DeadlineExceeded: // which the server may see first
		how = answered
	case !errors.Is(limited.Err(), context.Canceled) && had >= min(timeout/2, enough) && time.Since(begun) >= had/2:
		how, err = late, fmt.Errorf("%w: %s", contain.ErrTimeout, had)
	}
	p.end(s, how)
	if err == nil {
		return nil
	}
	return &callError{p.name, method, err}
}

// outcome is how a call ended.
type outcome int

const (
	answered outcome = iota // also with an error
	late                    // it ran into its deadline
	cut                     // it says nothing about the server
)

// begin counts a call of the server that is called.
func (p *Plugin) begin() (*Server, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.away(); err != nil {
		return nil, err
	}
	p.called.calls.Add(1)
	return p.called, nil
}

// end ends a call that begin has counted. It drops a server that does not answer.
func (p *Plugin) end(s *Server, how outcome) {
	p.mu.Lock()
	before := p.late
	switch {
	case s != p.called: // how a call of another ended says nothing
	case how == answered:
		p.late = 0
	case how == late:
		p.late++
	}
	drop, recovered := p.late >= maxLate && how == late, p.late < before && before >= maxLate
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
	case replaced != nil && replaced.order > s.order:
		replaced = s
	default:
		if p.last != nil && p.last.order != s.order { // what the other one did says nothing
			p.late = 0
		}
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
