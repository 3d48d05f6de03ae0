// Package conformance checks that a plugin's server keeps the rules of the protocol, as the host
// relies on them. It needs no cluster: it takes the host's part on the plugin's socket.
//
//   - conformance.go: what a check is, and the run of all
//   - registration.go, device.go, scheduler.go, nodes.go: the checks
package conformance

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/kubeslot/kubeslot/types/plugin/registration"
	pb "github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
)

const (
	// quick is the host's deadline of what a scheduling cycle waits for, and of a first answer.
	quick = time.Second
	// slow is the host's deadline of a container's Allocate, and of Start.
	slow = 5 * time.Second
	// connectTimeout is how long a plugin may take to listen.
	connectTimeout = 5 * time.Second
	// concurrent is how many calls are made at once: the scheduler asks about nodes in parallel.
	concurrent = 64
	// repetitions show what a plugin keeps from one call to the next.
	repetitions = 100
)

// Check is a rule that servers keep.
type Check struct {
	Name string
	Want string // what is expected
	Why  string // what goes wrong otherwise
	run  func(context.Context, *target) error
}

// Result is what a check found. At most one of Err and Skipped is set.
type Result struct {
	Check
	Err     error
	Skipped Skipped
}

// Skipped says why a check could not be made.
type Skipped string

// Error makes it the error of such a check.
func (s Skipped) Error() string { return string(s) }

const notImplemented = Skipped("not implemented, which the protocol allows")

// target is the server that is checked.
type target struct {
	socket       string
	info         *registration.PluginInfo // nil until it could be read
	registration registration.RegistrationClient
	conns        []*grpc.ClientConn
	device       pb.DeviceClient
	scheduler    pb.DeviceSchedulerClient
}

// Run makes the checks of registration and of the half that the server says it is, and reports each
// one's result. It returns whether none failed.
func Run(ctx context.Context, socket string, report func(Result)) bool {
	t, passed := &target{socket: socket}, true
	check := func(checks ...Check) {
		for _, c := range checks {
			r := Result{Check: c, Err: c.run(ctx, t)}
			if errors.As(r.Err, &r.Skipped) {
				r.Err = nil
			}
			report(r)
			passed = passed && r.Err == nil
		}
	}
	defer func() {
		for _, c := range t.conns {
			c.Close()
		}
	}()
	check(registered)
	if t.info == nil {
		return false
	}
	check(bothHalves...)
	if t.info.GetHalf() == registration.Half_DEVICE {
		check(deviceHalf...)
	} else {
		check(schedulerHalf...)
	}
	return passed
}

// dial connects to a socket of the plugin.
func (t *target) dial(socket string) (*grpc.ClientConn, error) {
	path, err := filepath.Abs(socket)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err == nil {
		t.conns = append(t.conns, conn)
	}
	return conn, err
}

// call makes a unary call with a deadline.
func call[In, Out any](ctx context.Context, timeout time.Duration,
	method func(context.Context, In, ...grpc.CallOption) (Out, error), in In) (Out, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out, err := method(ctx, in)
	switch status.Code(err) {
	case codes.DeadlineExceeded:
		err = fmt.Errorf("no answer within %s", timeout)
	case codes.Unavailable:
		err = fmt.Errorf("the server is gone: %w", err)
	}
	return out, err
}

// refused returns an error unless err is a refusal by a server that goes on: bad input must be
// answered by an error, not by the end of the process.
func (t *target) refused(ctx context.Context, err error) error {
	switch _, ok := status.FromError(err); {
	case err == nil:
		return errors.New("it was accepted")
	case !ok, status.Code(err) == codes.Unimplemented, status.Code(err) == codes.Unavailable:
		return err
	}
	if err := t.start(ctx); err != nil {
		return fmt.Errorf("the server does not answer any more: %w", err)
	}
	return nil
}

// start calls the half's Start.
func (t *target) start(ctx context.Context) error {
	if t.info.GetHalf() == registration.Half_SCHEDULER {
		_, err := call(ctx, slow, t.scheduler.Start, &pb.SchedulerStartRequest{})
		return err
	}
	_, err := call(ctx, slow, t.device.Start, &pb.DeviceStartRequest{Node: node})
	if status.Code(err) == codes.Unimplemented {
		return nil
	}
	return err
}

// with returns a check that needs what get finds out.
func with[T any](get func(*target, context.Context) (T, error),
	run func(context.Context, *target, T) error) func(context.Context, *target) error {
	return func(ctx context.Context, t *target) error {
		got, err := get(t, ctx)
		if err != nil {
			return err
		}
		return run(ctx, t, got)
	}
}

// same asks once, and again as often as repeat does. Each answer has to be the first one, which it
// returns.
func same[M proto.Message](ask func() (M, error), repeat func(func() error) error) (M, error) {
	first, err := ask()
	if err != nil {
		return first, err
	}
	return first, repeat(func() error {
		again, err := ask()
		if err == nil && !proto.Equal(first, again) {
			err = fmt.Errorf("the answer was %v, and then %v", first, again)
		}
		return err
	})
}

// once calls f.
func once(f func() error) error { return f() }

// oftentimes calls f one time after another, until there is an error.
func oftentimes(f func() error) error {
	for range repetitions {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// atOnce calls f concurrently, and returns the first error.
func atOnce(f func() error) error {
	var calls errgroup.Group
	for range concurrent {
		calls.Go(f)
	}
	return calls.Wait()
}
