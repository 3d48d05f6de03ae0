package crilist

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/wait"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Events calls happened for each of the runtime's events, one after the other, until the
// runtime ends the stream or ctx is done. Its error is never nil, and its code is
// Unimplemented of a runtime that has no events.
func Events(ctx context.Context, runtime Runtime, happened func(*runtimeapi.ContainerEventResponse)) error {
	began := time.Now()
	stream, err := runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		return err
	}
	for first := true; ; first = false {
		event, err := stream.Recv()
		// CRI-O's way, without enable_pod_events. With it a CRI-O that stops ends a stream like this.
		if errors.Is(err, io.EOF) && first && time.Since(began) < MinRetry {
			return status.Error(codes.Unimplemented, "the runtime ended the stream at once")
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

// MinRetry and MaxRetry bound the wait before a runtime is asked again after an error.
const MinRetry, MaxRetry = time.Second, time.Minute

// Retries are the waits after errors of a runtime that follow each other.
func Retries() wait.Backoff {
	return wait.Backoff{Duration: MinRetry, Factor: 2, Jitter: 0.1, Steps: 10, Cap: MaxRetry}
}

// Followed is a runtime whose events Follow listens to.
type Followed struct {
	Runtime Runtime
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
	for backoff := Retries(); ; {
		began := f.Clock.Now()
		err := Events(ctx, f.Runtime, f.Happened)
		if ctx.Err() != nil {
			return
		}
		if f.Clock.Since(began) > MaxRetry {
			backoff = Retries()
		}
		after := MinRetry
		switch status.Code(err) {
		case codes.Unimplemented:
			if !logged {
				logged = true
				logger.Info("The runtime has no container events: what bypasses kubecri is found at the next resync",
					"resync", f.Otherwise)
			}
			after = f.Otherwise
		case codes.Unavailable: // the runtime is away, which costs nothing to ask
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
