package crilist

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/wait"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// EventSource is a runtime that tells what happens to containers.
type EventSource interface {
	GetContainerEvents(ctx context.Context, in *runtimeapi.GetEventsRequest, opts ...grpc.CallOption) (grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse], error)
}

// Events calls happened for each of the runtime's events, one after the other, until the
// runtime ends the stream or ctx is done. Its error is never nil, and its code is
// Unimplemented of a runtime that has no events.
func Events(ctx context.Context, runtime EventSource, happened func(*runtimeapi.ContainerEventResponse)) error {
	stream, err := runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		return err
	}
	for first := true; ; first = false {
		event, err := stream.Recv()
		if errors.Is(err, io.EOF) && first { // CRI-O's way, without enable_pod_events
			return status.Error(codes.Unimplemented, "the runtime ended the stream before any event")
		}
		if errors.Is(err, io.EOF) {
			return errors.New("the runtime ended the stream")
		}
		if err != nil {
			return err
		}
		happened(event)
	}
}

// Between two attempts to listen are minRetry, where the runtime is away, which costs nothing to ask, or up to
// maxRetry.
const minRetry, maxRetry = time.Second, time.Minute

// Followed is a runtime whose events Follow listens to.
type Followed struct {
	Runtime EventSource
	Clock   clock.Clock
	// Otherwise is how often its containers are listed without an event, and a runtime without events is
	// asked for them again: another version may run by then.
	Otherwise time.Duration
	Happened  func(*runtimeapi.ContainerEventResponse)
	// Missed is called when it is listened to again: events may have been missed.
	Missed func()
}

// Follow listens until ctx is done.
func Follow(ctx context.Context, f Followed) {
	logger := klog.FromContext(ctx)
	logged := false
	retries := wait.Backoff{Duration: minRetry, Factor: 2, Jitter: 0.1, Steps: 10, Cap: maxRetry}
	for backoff := retries; ; {
		began := f.Clock.Now()
		err := Events(ctx, f.Runtime, f.Happened)
		if ctx.Err() != nil {
			return
		}
		if f.Clock.Since(began) > maxRetry {
			backoff = retries
		}
		after := minRetry
		switch status.Code(err) {
		case codes.Unimplemented:
			if !logged {
				logged = true
				logger.Info("The runtime has no container events: what bypasses kubecri is found at the next resync",
					"resync", f.Otherwise)
			}
			after = f.Otherwise
		case codes.Unavailable:
		default:
			after = backoff.Step()
		}
		if !logged {
			logger.V(2).Info("The runtime's container events ended, listening again", "reason", err, "after", after)
		}
		select {
		case <-ctx.Done():
			return
		case <-f.Clock.After(after):
		}
		f.Missed()
	}
}
