package claims

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"github.com/kubeslot/kubeslot/kubecri/crilist"
)

// eventLoop listens for what happens without a call that went through us: a
// sandbox whose process dies, a container that somebody removes with ctr or
// crictl, one that the runtime starts past us. Without it such slots stay taken, and
// such a container runs, until the next resync, which is how it is with a runtime that
// has no events.
func (c *Claims) eventLoop(ctx context.Context) {
	crilist.Follow(ctx, crilist.Followed{Runtime: c.config.Runtime, Clock: c.config.Clock, Otherwise: c.config.Resync,
		Happened: c.happened, Missed: c.Resync})
}

// happened is called with each event, of a container or of a sandbox. An end is
// no proof that the slots are free: the kubelet restarts a container in a ready
// sandbox, and containers may outlive their sandbox's process. So the runtime is
// asked.
func (c *Claims) happened(event *runtimeapi.ContainerEventResponse) {
	id := event.ContainerId
	if c.config.Kubelet != nil { // the kubelet says what an end means
		created := event.ContainerEventType == runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT
		if c.containers.has(id) || created && c.anyUnused() {
			c.Resync()
		}
		return
	}
	switch event.ContainerEventType {
	case runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT:
		c.Removed(id)
	case runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT:
		if c.containers.has(id) {
			c.Resync()
		}
	case runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT:
		for _, s := range event.ContainersStatuses {
			if s.GetId() == id {
				c.Started(id, PodOf(s.Labels), kubelettypes.GetContainerName(s.Labels),
					event.GetPodSandboxStatus().GetAnnotations())
			}
		}
	}
}

// drainPoll is how often Drain looks whether all is released.
const drainPoll = 5 * time.Millisecond

// Drain waits until no release is outstanding or ctx is done, so that a process
// about to end leaves no slot taken that it knows to be free: the next one would
// have to wait out the grace period.
func (c *Claims) Drain(ctx context.Context) {
	err := wait.PollUntilContextCancel(ctx, drainPoll, true,
		func(context.Context) (bool, error) { return c.containers.pending() == 0, nil })
	if n := c.containers.pending(); err != nil && n > 0 {
		klog.FromContext(ctx).Info("Ending with claims that are not released yet: the next start releases them "+
			"after the grace period", "slots", n)
	}
}
