package opcua

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/test/await"
)

// quick is how often the tests' URLs are asked.
const quick = 50 * time.Millisecond

// discovering is a Discover that runs until the test ends.
type discovering struct {
	t       *testing.T
	mu      sync.Mutex
	reports []discovery.Result
	warned  []string
	cancel  context.CancelFunc
	done    chan error
}

func discover(t *testing.T, h *Handler, details string) *discovering {
	t.Helper()
	if h.Interval == 0 {
		h.Interval = quick
	}
	if h.answers == nil { // what the tests' servers name, nobody is at
		h.answers = func(context.Context, target, string) error { return nil }
	}
	ctx, cancel := context.WithCancel(t.Context())
	d := &discovering{t: t, cancel: cancel, done: make(chan error, 1)}
	note := func(add func()) {
		d.mu.Lock()
		defer d.mu.Unlock()
		add()
	}
	request := discovery.Request{Details: details, Warn: func(text string) {
		note(func() { d.warned = append(d.warned, text) })
	}}
	go func() {
		d.done <- h.Discover(ctx, request, func(r discovery.Result) {
			note(func() { d.reports = append(d.reports, r) })
		})
	}()
	t.Cleanup(d.end)
	return d
}

// end checks that Discover ends at once when its context does.
func (d *discovering) end() {
	if d.cancel == nil {
		return
	}
	d.cancel()
	d.cancel = nil
	if err := await.Next(d.t, "the end of Discover", d.done); !errors.Is(err, context.Canceled) {
		d.t.Errorf("Discover() = %v after its context ended", err)
	}
}

// await waits until something holds of all reports and warnings.
func (d *discovering) await(what string, holds func() bool) {
	d.t.Helper()
	await.That(d.t, what, func() (bool, string) {
		d.mu.Lock()
		defer d.mu.Unlock()
		select {
		case err := <-d.done:
			d.t.Fatalf("Discover() = %v", err)
		default:
		}
		return holds(), fmt.Sprintf("reports: %v\nwarnings: %q", d.reports, d.warned)
	})
}

// wants waits until the last report has these devices' IDs.
func (d *discovering) wants(what string, ids ...string) {
	d.t.Helper()
	slices.Sort(ids)
	d.await(what, func() bool {
		if len(d.reports) == 0 {
			return false
		}
		var got []string
		for _, device := range d.reports[len(d.reports)-1].Devices {
			got = append(got, device.ID)
		}
		return slices.Equal(got, ids)
	})
}

// warns waits until there is a warning with these parts.
func (d *discovering) warns(parts ...string) {
	d.t.Helper()
	d.await(fmt.Sprintf("a warning with %q", parts), func() bool {
		return slices.ContainsFunc(d.warned, func(warning string) bool {
			return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(warning, part) })
		})
	})
}

func urls(list ...string) string {
	return fmt.Sprintf("opcuaDiscoveryMethod: {standard: {discoveryUrls: [%s]}}", strings.Join(list, ", "))
}

func noHosts(context.Context, string) ([]string, error) {
	return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
}

func plc(url string) *ua.ApplicationDescription {
	return description("PLC", ua.ApplicationTypeServer, url)
}

// closedURL is a URL that refuses connections.
func closedURL(t *testing.T) string {
	s := serve(t)
	s.stop()
	return s.url
}

// silent is a server that takes connections and never answers.
func silent(t *testing.T) *fakeServer {
	s := serve(t)
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) })
	s.set(func() { s.behave = func(net.Conn) { <-ended } })
	return s
}
