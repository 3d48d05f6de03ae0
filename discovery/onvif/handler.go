package onvif

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/netif"
)

const (
	// Name is what Configurations select the handler by.
	Name = "onvif"

	// DefaultInterval is the time between rounds of probes: Akri's. A camera that is
	// plugged in says Hello, and need not wait for one.
	DefaultInterval = 10 * time.Second

	// settleTimeout is how long the first report waits for cameras that answered the
	// probe, and then have to be asked, beyond discoveryTimeoutSeconds.
	settleTimeout = 2 * requestTimeout

	// restFactor is how much longer than it took to look at the cameras a Discover waits
	// until it looks again, but for maxRest.
	restFactor, maxRest = 9, 500 * time.Millisecond
)

// Handler finds ONVIF cameras. Its zero value is ready for use. Its fields must not
// change once it is used.
//
// All Discover calls of a Handler share one scan of the network.
type Handler struct {
	// Interfaces are globs of names of network interfaces; those that begin with "!"
	// leave interfaces out, and the last that matches counts. netif.Default when nil.
	// Interfaces that are down, have no multicast or no address are never used.
	Interfaces []string

	// Interval is the time between rounds of probes; DefaultInterval when 0.
	Interval time.Duration

	mu    sync.Mutex
	scan  *scan // nil while users is 0
	users int
}

var _ discovery.Sharer = (*Handler)(nil)

// Name implements discovery.Handler.
func (*Handler) Name() string { return Name }

// Shared implements discovery.Sharer: every node of the network reaches a camera.
func (*Handler) Shared() bool { return true }

// Discover implements discovery.Handler.
func (h *Handler) Discover(ctx context.Context, request discovery.Request, report func(discovery.Result)) error {
	d, err := parseDetails(request)
	if err != nil {
		return err
	}
	s, err := h.acquire(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", Name, err)
	}
	defer h.release()

	q := newQuery(d, request, s.client)
	settled := s.started.Add(d.timeout())
	if now := time.Now(); settled.Before(now) {
		settled = now // the scan is older; this Discover has still to ask its cameras
	}
	reported := false
	report = discovery.Changes(report)
	for {
		now := time.Now()
		cameras, asking, changed := s.present()
		q.warnUnanswered(s.unanswered)
		candidates, next := d.candidates(cameras, now)
		querying, retry := q.start(ctx, candidates, now)
		next = earlier(next, retry)
		// The first report is of everything, also when it is nothing: not of the
		// cameras that happened to answer first.
		wait := settled
		if !now.Before(settled) {
			wait = settled.Add(settleTimeout)
		}
		if reported || !now.Before(settled) && (!asking && !querying || !now.Before(wait)) {
			s.warn(request.Warnf)
			report(q.result(candidates))
			reported = true
			wait = time.Time{}
		}
		var due <-chan time.Time
		if wait = earlier(wait, next); !wait.IsZero() {
			due = time.After(time.Until(wait))
		}
		// Of many cameras, which may be made up, something changes all the time.
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(restFactor*time.Since(now), maxRest)):
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-due:
		case r := <-q.results:
			q.finish(ctx, r, time.Now())
		}
	}
}

// acquire returns the scan, which it starts for the first user.
func (h *Handler) acquire(ctx context.Context) (*scan, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.users == 0 {
		interval := h.Interval
		if interval <= 0 {
			interval = DefaultInterval
		}
		// It outlives this Discover when another one uses it.
		s, err := startScan(context.WithoutCancel(ctx), newClient(netif.CheckOther), h.Interfaces, interval)
		if err != nil {
			return nil, err
		}
		h.scan = s
	}
	h.users++
	return h.scan, nil
}

// release ends the scan after its last user.
func (h *Handler) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.users--; h.users == 0 {
		h.scan.stop()
		h.scan = nil
	}
}
