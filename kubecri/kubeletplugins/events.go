package kubeletplugins

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
)

// eventLoop listens to the runtime for what ends. Without events such slots stay taken
// until the next refresh.
func (p *Plugins) eventLoop(ctx context.Context) {
	logger := klog.FromContext(ctx)
	logged := false
	for {
		err := p.listen(ctx)
		if ctx.Err() != nil {
			return
		}
		retry := runtimeRetry
		if status.Code(err) == codes.Unimplemented {
			if !logged {
				logged = true
				logger.Info("The runtime has no container events: slots are released at the next refresh", "refresh", refreshEvery)
			}
			retry = refreshEvery // another version may run by then
		} else {
			logger.V(2).Info("The runtime's container events ended, listening again", "reason", err, "every", runtimeRetry)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(retry):
		}
		p.relist() // for what was missed
	}
}

// listen asks for a relist for each of the runtime's events about a container with slots, until the
// runtime ends the stream. The error's code is Unimplemented of a runtime that has no events.
func (p *Plugins) listen(ctx context.Context) error {
	stream, err := p.Runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
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
		switch event.ContainerEventType {
		case runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT:
			if p.account.anyUnused() { // it may be a container of these
				p.relist()
			}
		case runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT:
			p.mu.Lock()
			concerns := p.containers[event.ContainerId]
			p.mu.Unlock()
			if concerns {
				p.relist()
			}
		}
	}
}
