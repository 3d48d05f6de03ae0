package claims

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
)

// eventLoop listens for what ends without a call that went through the proxy: a
// sandbox whose process dies, a container that somebody removes with ctr or
// crictl. Without it such slots stay taken until the next resync, which is how it
// is with a runtime that has no events.
func (c *Claims) eventLoop(ctx context.Context) {
	logger := klog.FromContext(ctx)
	logged := false
	for {
		err := c.events(ctx)
		if ctx.Err() != nil {
			return
		}
		retry := c.config.Clock.After(runtimeRetry)
		if status.Code(err) == codes.Unimplemented {
			if !logged {
				logged = true
				logger.Info("The runtime has no container events: what ends unseen is found at the next resync", "resync", c.config.Resync)
			}
			retry = c.config.Clock.After(c.config.Resync) // another version may run by then
		} else {
			logger.V(2).Info("The runtime's container events ended, listening again", "reason", err, "every", runtimeRetry)
		}
		select {
		case <-ctx.Done():
			return
		case <-retry:
		}
		c.Resync() // for what was missed
	}
}

// events listens until the runtime ends the stream.
func (c *Claims) events(ctx context.Context) error {
	stream, err := c.config.Runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		return err
	}
	for {
		event, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return errors.New("the runtime ended the stream")
		}
		if err != nil {
			return err
		}
		c.happened(event.ContainerId, event.ContainerEventType)
	}
}

// happened is told of each event; id is a container's or a sandbox's. An end is
// no proof that the slots are free: the kubelet restarts a container in a ready
// sandbox, and containers may outlive their sandbox's process. So the runtime is
// asked.
func (c *Claims) happened(id string, what runtimeapi.ContainerEventType) {
	switch what {
	case runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT:
		c.ContainerRemoved(id)
		c.SandboxStopped(id)
	case runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT:
		if c.containers.has(id) {
			c.Resync()
		}
	}
}

// Drain waits until no release is outstanding or ctx is done, so that a process
// about to end leaves no slot taken that it knows to be free: the next one would
// have to wait out the grace period.
func (c *Claims) Drain(ctx context.Context) {
	select {
	case <-c.containers.whenSettled():
	case <-ctx.Done():
		if n := c.containers.pending(); n > 0 {
			klog.FromContext(ctx).Info("Ending with claims that are not released yet: the next start releases them after the grace period", "slots", n)
		}
	}
}
