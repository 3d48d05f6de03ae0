package agent

import (
	"context"
	"sync"

	"github.com/kubeslot/kubeslot/discovery"
)

// echoes is a handler that reports what a test sets.
type echoes struct {
	mu      sync.Mutex
	result  *discovery.Result
	fail    func(run int) error
	panics  bool
	runs    int
	running int
	before  []discovery.Device // of the last request
	changed chan struct{}
}

func (h *echoes) Name() string { return "echoes" }

func (h *echoes) Discover(ctx context.Context, r discovery.Request, report func(discovery.Result)) error {
	h.mu.Lock()
	h.before = r.Before
	h.runs++
	h.running++
	run := h.runs
	h.mu.Unlock()
	defer h.change(func() { h.running-- })
	var last *discovery.Result
	for {
		h.mu.Lock()
		result, fail, panics, changed := h.result, h.fail, h.panics, h.changed
		h.mu.Unlock()
		if panics {
			panic("index out of range")
		}
		if fail != nil {
			return fail(run)
		}
		if result != nil && result != last {
			report(*result)
			last = result
		}
		select {
		case <-changed:
		case <-ctx.Done():
			report(discovery.Result{}) // as a careless handler might
			return ctx.Err()
		}
	}
}

// ran is how often it was started.
func (h *echoes) ran() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.runs
}

func (h *echoes) change(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
	if h.changed != nil {
		close(h.changed)
	}
	h.changed = make(chan struct{})
}

// see makes shared devices with the ids be all that there is.
func (h *echoes) see(ids ...string) *echoes { return h.report(true, ids...) }

func (h *echoes) report(shared bool, ids ...string) *echoes {
	result := &discovery.Result{Shared: shared}
	for _, id := range ids {
		result.Devices = append(result.Devices, discovery.Device{ID: id, Properties: map[string]string{"ID": id}})
	}
	h.change(func() { h.result = result })
	return h
}

func silent() *echoes {
	h := &echoes{}
	h.change(func() {})
	return h
}

func seeing(ids ...string) *echoes { return silent().see(ids...) }
