package ui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/source"
)

// objects are those that some sessions' users may list, all of them the same: a cache, and the Hub
// that makes pages of it. It is read with the token of one of these sessions.
type objects struct {
	ready chan struct{} // closed once the three below are set
	live  *source.Live
	hub   *Hub
	err   error
	end   context.CancelFunc

	mu       sync.Mutex
	sessions []*session
}

// join gives the session the objects of its Reach, and reads them when no other session has them.
func (s *Sessions) join(ctx context.Context, one *session) error {
	s.mu.Lock()
	if one.ctx.Err() != nil { // it was dropped, and would not leave
		s.mu.Unlock()
		return context.Cause(one.ctx)
	}
	o := s.caches[one.reach]
	if o == nil {
		o = &objects{ready: make(chan struct{})}
		var own context.Context
		own, o.end = context.WithCancel(s.ctx)
		s.caches[one.reach] = o
		go s.read(own, o, one.reach)
	}
	one.objects = o
	o.mu.Lock()
	o.sessions = append(o.sessions, one)
	o.mu.Unlock()
	s.mu.Unlock()
	select {
	case <-o.ready:
		return o.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// leave takes the session from its objects, which end with the last. The lock is held.
func (s *Sessions) leave(one *session) {
	o := one.objects
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sessions = slices.DeleteFunc(o.sessions, func(other *session) bool { return other == one })
	if len(o.sessions) == 0 {
		o.end()
		delete(s.caches, one.reach)
	}
}

// read reads objects, and keeps them up to date until ctx is done.
func (s *Sessions) read(ctx context.Context, o *objects, reach source.Reach) {
	defer close(o.ready)
	config := rest.CopyConfig(s.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &borrower{o, next} })
	from, err := source.New(config, "")
	if err != nil {
		o.err = err
		return
	}
	if o.live, o.err = from.Follow(ctx, reach); o.err == nil {
		o.hub = NewHub(o.live, s.clock)
		go o.hub.Run(ctx)
	}
}

// lender is a session whose token is used: one that the API server has not refused, if there is one.
func (o *objects) lender() *session {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, one := range o.sessions {
		if !one.refused.Load() {
			return one
		}
	}
	if len(o.sessions) > 0 {
		return o.sessions[0]
	}
	return nil
}

// borrower sends each request with the token of one of the sessions, and ends it with that session:
// a watch goes on with the token of another.
type borrower struct {
	objects *objects
	next    http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b *borrower) RoundTrip(r *http.Request) (*http.Response, error) {
	one := b.objects.lender()
	if one == nil {
		return nil, errors.New("no session is left that may read this")
	}
	ctx, cancel := context.WithCancel(r.Context())
	stop := context.AfterFunc(one.ctx, cancel)
	done := func() { stop(); cancel() }
	r = r.Clone(ctx)
	r.Header.Set("Authorization", "Bearer "+one.token)
	response, err := b.next.RoundTrip(r)
	if err != nil {
		done()
		return nil, err
	}
	if response.StatusCode == http.StatusUnauthorized || response.StatusCode == http.StatusForbidden {
		one.refused.Store(true)
		response.Body.Close()
		done()
		return nil, fmt.Errorf("the API server refuses a session's token: %s",
			response.Status) // its message names the user
	}
	response.Body = &borrowed{response.Body, one.ctx, done}
	return response, nil
}

// borrowed is the answer to a request with the token of a session.
type borrowed struct {
	io.ReadCloser
	session context.Context
	done    func()
}

// Read ends a watch as the API server does when its session has ended: it goes on where it was, and
// all objects are not listed again.
func (b *borrowed) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && b.session.Err() != nil {
		err = io.EOF
	}
	return n, err
}

// Close implements io.Closer.
func (b *borrowed) Close() error {
	defer b.done()
	return b.ReadCloser.Close()
}
