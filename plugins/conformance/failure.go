package conformance

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/kubeslot/kubeslot/types/plugin/registration"
)

// failure is what a check panics with, as tests end themselves: what it calls returns no errors.
type failure struct{ error }

// fail ends the check.
func fail(format string, args ...any) { ensure(fmt.Errorf(format, args...)) }

// ensure ends the check if there is an error.
func ensure(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// must returns what was got, and ends the check if there is an error.
func must[T any](got T, err error) T {
	ensure(err)
	return got
}

// caught calls f, and returns why it ended itself.
func caught(f func()) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case failure:
			err = v.error
		default:
			panic(v)
		}
	}()
	f()
	return nil
}

// method is a unary one of a client.
type method[In, Out any] func(context.Context, In, ...grpc.CallOption) (Out, error)

// try makes a call with a deadline.
func try[In, Out any](ctx context.Context, timeout time.Duration, of method[In, Out], in In) (Out, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out, err := of(ctx, in)
	switch status.Code(err) {
	case codes.DeadlineExceeded:
		err = fmt.Errorf("no answer within %s", timeout)
	case codes.Unavailable:
		err = fmt.Errorf("the server is gone: %w", err)
	}
	return out, err
}

// call makes a call with a deadline, which must succeed.
func call[In, Out any](t *target, timeout time.Duration, of method[In, Out], in In) Out {
	return must(try(t.ctx, timeout, of, in))
}

// optional is must for a method that a plugin need not implement.
func optional[T any](got T, err error) T {
	if status.Code(err) == codes.Unimplemented {
		err = Skipped("not implemented, which the protocol allows")
	}
	return must(got, err)
}

// refused wants the error of a refusal by a server that goes on: bad input must be answered by an
// error, not by the end of the process.
func (t *target) refused(_ any, err error) {
	switch _, ok := status.FromError(err); {
	case err == nil:
		fail("it was accepted")
	case !ok, status.Code(err) == codes.Unimplemented, status.Code(err) == codes.Unavailable:
		ensure(err)
	}
	if _, err := try(t.ctx, t.quick, t.registration.GetInfo, &registration.GetInfoRequest{}); err != nil {
		fail("the server does not answer any more: %w", err)
	}
}

// same asks, and asks again, many times at once. Each answer has to be the first one, which it returns.
func same[M proto.Message](ask func() M) M {
	first := ask()
	atOnce(func() {
		if got := ask(); !proto.Equal(first, got) {
			fail("the answer was %v, and then %v", first, got)
		}
	})
	return first
}

// atOnce calls f many times, concurrently.
func atOnce(f func()) {
	var calls errgroup.Group
	for range concurrent {
		calls.Go(func() error { return caught(f) })
	}
	ensure(calls.Wait())
}

// cancelled makes calls that are cancelled before they are answered, and then one that must succeed.
func cancelled[In, Out any](t *target, timeout time.Duration, of method[In, Out], in In) Out {
	atOnce(func() { _, _ = try(t.ctx, time.Millisecond, of, in) })
	return call(t, timeout, of, in)
}
