package crilist

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
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
