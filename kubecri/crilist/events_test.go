package crilist

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"
)

// quiet is a runtime without an event, that ends each stream when it has lasted for a while.
type quiet struct {
	Runtime
	lasts time.Duration
	asked int
}

func (q *quiet) GetContainerEvents(context.Context, *runtimeapi.GetEventsRequest, ...grpc.CallOption) (
	grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse], error) {
	q.asked++
	return &quietStream{lasts: q.lasts}, nil
}

type quietStream struct {
	grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse]
	lasts time.Duration
}

func (q *quietStream) Recv() (*runtimeapi.ContainerEventResponse, error) {
	<-time.After(q.lasts)
	return nil, io.EOF
}

// A runtime that ends a stream at once has no events, and one that does so later has been stopped: it is listened to
// again as soon as it may be back.
func TestStreamThatEndsWithoutAnEvent(t *testing.T) {
	for name, test := range map[string]struct {
		lasts time.Duration
		asked int
	}{
		"at once": {time.Millisecond, 1},
		"later":   {time.Minute, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 150*time.Second)
				defer cancel()
				q := &quiet{lasts: test.lasts}
				Follow(ctx, Followed{Runtime: q, Clock: clock.RealClock{}, Otherwise: time.Hour, Missed: func() {}})
				if q.asked != test.asked {
					t.Errorf("asked for events %d times in 150 s, want %d", q.asked, test.asked)
				}
			})
		})
	}
}
