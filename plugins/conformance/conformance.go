// Package conformance checks that a plugin's server keeps the rules of the protocol, as the host
// relies on them. It needs no cluster: it takes the host's part on the plugin's socket.
//
//   - conformance.go: what a check is, and the run of all
//   - failure.go: what checks are written with
//   - registration.go, device.go, scheduler.go, nodes.go: the checks
package conformance

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/kubeslot/kubeslot/types/plugin/registration"
	pb "github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
)

const (
	// quick is the host's deadline of what a scheduling cycle waits for, and of a first answer.
	quick = time.Second
	// slow is the host's deadline of a container's Allocate, and of Start.
	slow = 5 * time.Second
	// connectTimeout is how long a plugin may take to listen, and connectInterval how often that is tried.
	connectTimeout, connectInterval = 5 * time.Second, 50 * time.Millisecond
	// concurrent is how many calls are made at once: the scheduler asks about nodes in parallel.
	concurrent = 64
)

// Check is a rule that servers keep.
type Check struct {
	Name string
	Want string // what is expected
	Why  string // what goes wrong otherwise
	run  func(*target)
}

// Result is what a check found.
type Result struct {
	Check
	Err error // nil if the rule is kept, Skipped if the check could not be made
}

// Skipped says why a check could not be made.
type Skipped string

// Error makes it the error of such a check.
func (s Skipped) Error() string { return string(s) }

// target is the server that is checked.
type target struct {
	ctx          context.Context // of the run
	quick, slow  time.Duration   // deadlines
	socket       string
	info         *registration.PluginInfo // nil until it could be read
	registration registration.RegistrationClient
	device       pb.DeviceClient
	scheduler    pb.DeviceSchedulerClient

	// What checks need to know of the plugin. The check that asks for what cannot be known fails.
	resource   func() string            // one that the scheduler's half answers for
	assignment func() map[string]string // what a container may be assigned of the node's devices
}

// Run makes the checks of registration and of the half that the server says it is, and reports each
// one's result. It returns whether none failed.
func Run(ctx context.Context, socket string, report func(Result)) bool {
	return run(&target{ctx: ctx, quick: quick, slow: slow, socket: socket}, report)
}

// run is Run with other deadlines.
func run(t *target, report func(Result)) (passed bool) {
	var cancel func()
	t.ctx, cancel = context.WithCancel(t.ctx)
	defer cancel()
	passed = true
	t.resource, t.assignment = sync.OnceValue(t.findResource), sync.OnceValue(t.findAssignment)
	check := func(checks ...Check) {
		for _, c := range checks {
			r := Result{Check: c, Err: caught(func() { c.run(t) })}
			report(r)
			passed = passed && (r.Err == nil || errors.As(r.Err, new(Skipped)))
		}
	}
	check(registered)
	if t.info == nil {
		return false
	}
	check(notified)
	check(map[registration.Half][]Check{
		registration.Half_DEVICE: deviceHalf, registration.Half_SCHEDULER: schedulerHalf}[t.info.GetHalf()]...)
	return passed
}
