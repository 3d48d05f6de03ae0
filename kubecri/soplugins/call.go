package soplugins

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/kubeslot/kubeslot/kubecri/metrics"
	"github.com/kubeslot/kubeslot/types/contain"
	"github.com/kubeslot/kubeslot/types/device"
)

// The methods of plugins that can fault, as Fault.Method and as label.
const (
	methodNew            = "New"
	methodStart          = "Start"
	methodUpdateNodeInfo = "UpdateNodeInfo"
	methodAllocate       = "Allocate"
	methodNodeLabels     = "NodeLabels"
	methodLost           = "Lost"
)

var methods = []string{methodNew, methodStart, methodUpdateNodeInfo, methodAllocate, methodNodeLabels, methodLost}

// The kinds of fault, as label.
const (
	panicked = "panic"
	timedOut = "timeout"
	hanging  = "hanging" // not called: an earlier call has not returned
	errored  = "error"   // the plugin returned an error
	invalid  = "invalid" // its result makes no sense
	away     = "away"    // not called: its process is not there
)

var kinds = []string{panicked, timedOut, hanging, errored, invalid, away}

// Fault is a call that went wrong.
type Fault struct {
	Plugin string
	Method string
	// Kind is a metric's label: panic, timeout, hanging, error, invalid or away.
	Kind string
	Err  error
}

// Error says which plugin failed at what, and how, on one line.
func (f *Fault) Error() string {
	text, _, _ := strings.Cut(f.Err.Error(), "\n")
	if strings.HasPrefix(text, fmt.Sprintf("plugin %q ", f.Plugin)) { // of a Remote
		return "device " + text
	}
	return fmt.Sprintf("device plugin %q failed in %s: %s", f.Plugin, f.Method, text)
}

// Unwrap returns the plugin's error, contain.ErrTimeout or *contain.PanicError.
func (f *Fault) Unwrap() error { return f.Err }

var (
	// errHanging is in the error of a call that was not made.
	errHanging = errors.New("not called")
)

// caller calls one plugin.
type caller struct {
	name    string
	device  device.Device
	timeout time.Duration
	numbers *metrics.SOPlugin
	// idle holds a token while no call runs.
	idle chan struct{}

	mu sync.Mutex
	// running is the method that is being called, "" for none.
	running     string
	since, late time.Time
}

func newCaller(name string, d device.Device, timeout time.Duration, numbers *metrics.SOPlugin) *caller {
	c := &caller{name: name, device: d, timeout: timeout, numbers: numbers, idle: make(chan struct{}, 1)}
	c.idle <- struct{}{}
	return c
}

// unavailable says why the plugin cannot be called: a call has not returned in its time, or
// its process is not there. Nil when it can.
func (c *caller) unavailable() error {
	c.mu.Lock()
	running, since, hangs := c.running, c.since, c.running != "" && !time.Now().Before(c.late)
	c.mu.Unlock()
	if !hangs {
		return c.away()
	}
	return fmt.Errorf("%w: its %s has not returned for %s", errHanging, running, time.Since(since).Round(time.Second))
}

// begin waits until no call runs, or ctx is done. Calls of a Remote end by themselves, and may overlap.
func (c *caller) begin(ctx context.Context, method string, timeout time.Duration) error {
	if err := c.unavailable(); err != nil || c.remote() != nil {
		return err
	}
	select {
	case <-c.idle:
	case <-ctx.Done():
		return fmt.Errorf("%w: another call has kept it busy for %s", errHanging, timeout)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running, c.since = method, time.Now()
	c.late = c.since.Add(c.timeout) // not before, though this caller may wait for less
	return nil
}

func (c *caller) end() {
	if c.remote() != nil {
		return
	}
	c.mu.Lock()
	c.running = ""
	c.mu.Unlock()
	c.idle <- struct{}{}
}

// call calls the plugin, and waits for the plugin to be idle and for its end no longer than
// the timeout and ctx allow. What f reads and writes must be f's own: it may go
// on after call returned.
func call[T any](ctx context.Context, c *caller, method string, f func(device.Device) (T, error)) (T, *Fault) {
	start := time.Now()
	waiting, cancel := context.WithTimeout(ctx, c.timeout) // or until ctx's own deadline
	defer cancel()
	deadline, _ := waiting.Deadline()
	type result struct {
		value T
		err   error // the plugin's, which may be ErrTimeout, too
	}
	var of result
	err := c.begin(waiting, method, time.Until(deadline))
	if err == nil {
		// One deadline for the wait and the call: whoever asks has no time for both.
		left := max(time.Until(deadline), time.Millisecond)
		of, err = contain.Do(left, func() (of result, _ error) {
			of.value, of.err = f(c.device)
			return of, nil
		}, c.end)
		if !errors.Is(err, contain.ErrTimeout) {
			c.end()
		}
	}
	c.numbers.Called(method, time.Since(start))
	if err = cmp.Or(err, of.err); err != nil {
		var zero T
		return zero, c.fault(method, err)
	}
	return of.value, nil
}

func (c *caller) fault(method string, err error) *Fault {
	kind := errored
	var p *contain.PanicError
	switch {
	case errors.As(err, &p):
		kind = panicked
	case errors.Is(err, contain.ErrTimeout):
		kind = timedOut
	case errors.Is(err, errHanging):
		kind = hanging
	case isAway(err):
		kind = away
	case errors.Is(err, contain.ErrInvalid):
		kind = invalid
	}
	c.numbers.Faulted(method, kind)
	return &Fault{Plugin: c.name, Method: method, Kind: kind, Err: err}
}
