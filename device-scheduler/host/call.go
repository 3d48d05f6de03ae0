package host

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubeslot/kubeslot/types/contain"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
)

// FaultKind is the way in which a plugin's call went wrong: a metric's label.
type FaultKind string

// The kinds of fault.
const (
	Panicked FaultKind = "panic"
	TimedOut FaultKind = "timeout"
	Hanging  FaultKind = "hanging" // not called: an earlier call has not returned
	Errored  FaultKind = "error"   // the plugin returned an error
	Lied     FaultKind = "invalid" // its result makes no sense
	Away     FaultKind = "away"    // not called: a Remote that should be asked is not there, or does not answer
)

// Kinds are all kinds of fault, to begin a metric's label set with zeros.
func Kinds() []FaultKind { return []FaultKind{Panicked, TimedOut, Hanging, Errored, Lied, Away} }

// Fault is a call that went wrong.
type Fault struct {
	Plugin string
	Method string // of devicescheduler.DeviceScheduler
	Node   string
	Pod    string // "" if the call is not about a pod
	Kind   FaultKind
	Err    error

	remote bool // Err names the plugin
}

// Error says which plugin failed at what, and how.
func (f *Fault) Error() string {
	about := ""
	if f.Node != "" {
		about = " for node " + f.Node
	}
	if f.Pod != "" {
		about += " and pod " + f.Pod
	}
	return fmt.Sprintf("device scheduler %s: %s%s: %v", f.Plugin, f.Method, about, f.Err)
}

// Unwrap returns the plugin's error, contain.ErrTimeout or *contain.PanicError.
func (f *Fault) Unwrap() error { return f.Err }

// reason is Error without the node, so that nodes share a line in the pod's event.
func (f *Fault) reason() string {
	text, _, _ := strings.Cut(f.Err.Error(), "\n")
	if f.remote {
		return text
	}
	return fmt.Sprintf("device scheduler %s failed in %s: %s", f.Plugin, f.Method, text)
}

// errHanging is the error of a call that was not made.
var errHanging = errors.New("not called: an earlier call has not returned yet")

// plugin is a device scheduler with what contains it.
type plugin struct {
	name      string
	scheduler devicescheduler.DeviceScheduler
	remote    Remote // the scheduler, if it is one
	group     bool   // UsingGroupScheduler
	timeout   time.Duration
	onFault   func(*Fault)
	onCall    func(plugin, method string, took time.Duration)

	// mu is held by the call itself, not by its caller, who does not wait for
	// ever: shared by PodFitsDevice, which runs for many nodes at once. Calls of a Remote do not hold it.
	mu sync.RWMutex
	// behind counts the calls that were left behind and still run.
	behind atomic.Int32
}

// about is what a call is about.
type about struct {
	method, node, pod string
	shared            bool
}

// call calls the plugin. What f reads and writes must be f's own: it may go on
// after call returned.
func call[T any](p *plugin, a about, f func(devicescheduler.DeviceScheduler) (T, error)) (T, *Fault) {
	var value T
	err := errHanging
	if p.behind.Load() <= 0 {
		if p.onCall != nil {
			start := time.Now()
			defer func() { p.onCall(p.name, a.method, time.Since(start)) }()
		}
		value, err = contain.Do(p.timeout, func() (T, error) {
			switch {
			case p.remote != nil: // nobody waits for another's call over gRPC
			case a.shared:
				p.mu.RLock()
				defer p.mu.RUnlock()
			default:
				p.mu.Lock()
				defer p.mu.Unlock()
			}
			return f(p.scheduler)
		}, func() { p.behind.Add(-1) })
		if errors.Is(err, contain.ErrTimeout) && p.remote == nil { // a Remote's call has returned
			p.behind.Add(1)
		}
	}
	if err == nil {
		return value, nil
	}
	var zero T
	return zero, p.fault(a, err)
}

// fault reports an error of a call, and returns it as a Fault.
func (p *plugin) fault(a about, err error) *Fault {
	kind := Errored
	var panicked *contain.PanicError
	switch {
	case errors.As(err, &panicked):
		kind = Panicked
	case errors.Is(err, contain.ErrTimeout):
		kind = TimedOut
	case errors.Is(err, errHanging):
		kind = Hanging
	case errors.Is(err, contain.ErrInvalid):
		kind = Lied
	}
	return p.report(a, kind, err)
}

func (p *plugin) report(a about, kind FaultKind, err error) *Fault {
	f := &Fault{Plugin: p.name, Method: a.method, Node: a.node, Pod: a.pod, Kind: kind, Err: err,
		remote: p.remote != nil}
	if p.onFault != nil {
		p.onFault(f)
	}
	return f
}
