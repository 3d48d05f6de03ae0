// Package mdns is a discovery handler for DNS-SD over multicast DNS (RFC 6762, RFC
// 6763): it finds what announces itself on the local network, such as printers, ESPHome
// and Shelly devices, and Chromecasts. See docs/discovery/mdns.md.
//
// cache.go, room.go, schedule.go and snapshot.go know what was heard and what to ask, without
// clock and I/O; browser.go drives them with the sockets of socket.go.
package mdns

import (
	"context"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/discovery"
)

const (
	// Name is what Configurations select the handler by.
	Name = "mdns"

	// settleDelay is how long to wait after a change for others: announcements come
	// in several packets, on several interfaces. It bounds the rate of reports.
	settleDelay = 100 * time.Millisecond
)

// Handler is the handler. Its zero value is ready for use; it must not be copied. Its
// Discovers share one cache and one socket per interface and address family, which exist
// while any of them runs.
type Handler struct {
	// Interfaces are globs of names of the network interfaces to browse on; "!" before
	// one leaves interfaces out, and the last that matches counts. netif.Default when nil.
	Interfaces []string

	mu      sync.Mutex
	browser *browser // nil when users is 0
	users   int
}

var _ discovery.Sharer = (*Handler)(nil)

// Name implements discovery.Handler.
func (*Handler) Name() string { return Name }

// Shared implements discovery.Sharer: every node of a network hears the same devices.
func (*Handler) Shared() bool { return true }

// Discover implements discovery.Handler. It fails at once on bad details, and when no
// interface can be used because of an error. Its first report comes 1.5 to 3 s after
// the first Discover for a service, when all that are there have answered.
func (h *Handler) Discover(ctx context.Context, request discovery.Request, report func(discovery.Result)) error {
	d, err := parse(request)
	if err != nil {
		return err
	}
	b := h.acquire(klog.FromContext(ctx))
	defer h.release()
	s := b.subscribe(d.services)
	defer b.unsubscribe(s)

	var devices map[string]discovery.Device // as reported
	next := time.After(0)
	report = discovery.Changes(report)
	for {
		// Not at each change, but settleDelay after the first.
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-next:
		}
		state := b.look(s)
		if state.err != nil {
			return state.err
		}
		for _, warning := range state.warnings {
			request.Warnf("%s: %s", Name, warning)
		}
		if devices == nil && state.wait > 0 {
			next = time.After(min(state.wait, settleDelay))
			continue
		}
		devices = d.devices(state.found, devices)
		report(discovery.Result{Devices: discovery.ByID(devices), Shared: true})
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.changed:
			next = time.After(settleDelay)
		}
	}
}

// acquire returns the handler's browser, which it starts for the first user.
func (h *Handler) acquire(logger klog.Logger) *browser {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.users++; h.users == 1 {
		h.browser = newBrowser(logger.WithValues("handler", Name), h.Interfaces)
		h.browser.start()
	}
	return h.browser
}

// release gives a browser back, and ends it after its last user.
func (h *Handler) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.users--; h.users == 0 {
		h.browser.stop()
		h.browser = nil
	}
}
