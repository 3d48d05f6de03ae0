package remote

import (
	"sync"
	"time"

	"github.com/kubeslot/kubeslot/discovery"
)

// endpoint is one registered endpoint: the Handler of its source.
type endpoint struct {
	name    string
	address address
	server  *Server
	source  *discovery.Source

	mu         sync.Mutex
	shared     bool          // as registered last
	reshared   chan struct{} // closed and replaced when shared changes
	registered time.Time     // first
	renewed    time.Time     // when the source was renewed last
	renewal    *time.Timer   // of a renewal that is to come; nil for none
	streams    int           // open ones
	// unreachableSince is when the first of the latest attempts to connect failed;
	// zero when the last one did not.
	unreachableSince time.Time
}

var _ discovery.Handler = (*endpoint)(nil)

func newEndpoint(name string, at address, shared bool, server *Server) *endpoint {
	e := &endpoint{name: name, address: at, server: server, shared: shared,
		reshared: make(chan struct{}), registered: time.Now()}
	e.source = discovery.NewSource(e, at.text)
	return e
}

// Name implements discovery.Handler.
func (e *endpoint) Name() string { return e.name }

// renew ends a backoff, at most once each renewInterval; the last of several
// registrations is not lost.
func (e *endpoint) renew(shared bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unreachableSince = time.Time{}
	if shared != e.shared {
		e.shared = shared
		close(e.reshared)
		e.reshared = make(chan struct{})
	}
	if e.renewal != nil {
		return
	}
	wait := renewInterval - time.Since(e.renewed)
	if wait <= 0 {
		e.renewed = time.Now()
		e.source.Renew()
		return
	}
	e.renewal = time.AfterFunc(wait, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.renewed, e.renewal = time.Now(), nil
		e.source.Renew()
	})
}

// sharing returns whether devices are shared, as registered, and what is closed when
// that changes.
func (e *endpoint) sharing() (shared bool, changed <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.shared, e.reshared
}

// connected says that a stream was opened; closed is to be called once it has ended.
func (e *endpoint) connected() (closed func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.streams++
	e.unreachableSince = time.Time{}
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.streams--
	}
}

// unreachable says that an attempt to connect failed.
func (e *endpoint) unreachable() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.unreachableSince.IsZero() {
		e.unreachableSince = time.Now()
	}
}

// state is what decides which endpoint is forgotten first.
type state struct {
	streams                      int
	unreachableSince, registered time.Time
}

func (e *endpoint) state() state {
	e.mu.Lock()
	defer e.mu.Unlock()
	return state{streams: e.streams, unreachableSince: e.unreachableSince, registered: e.registered}
}

// before reports whether a is forgotten before b.
func (a state) before(b state) bool {
	switch aFails, bFails := !a.unreachableSince.IsZero(), !b.unreachableSince.IsZero(); {
	case aFails && bFails:
		return a.unreachableSince.Before(b.unreachableSince)
	case aFails != bFails:
		return aFails
	default:
		return a.registered.After(b.registered)
	}
}
