package claims

import (
	"context"
	"fmt"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"github.com/kubeslot/kubeslot/kubecri/crilist"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Runtime is what is asked of the container runtime.
type Runtime = crilist.Runtime

// runtimeTimeout bounds one question to the runtime.
const runtimeTimeout = 30 * time.Second

// resyncLoop asks the runtime at start, periodically and when a relist is wanted, until it
// has an answer.
func (c *Claims) resyncLoop(ctx context.Context) {
	logger := klog.FromContext(ctx)
	ticker := c.config.Clock.NewTicker(c.config.Resync)
	defer ticker.Stop()
	backoff, failing := crilist.Retries(), false // a runtime that comes back is asked at once: its connection says so
	for step := 0; ; step++ {
		again, err := c.resync(ctx)
		var retry <-chan time.Time
		switch {
		case err != nil && ctx.Err() == nil:
			if !failing { // once an outage
				logger.Error(err, "Cannot list the runtime's containers: what they use stays as it was last seen; "+
					"trying again",
					"longestWait", crilist.MaxRetry)
			}
			failing = true
			retry = c.config.Clock.After(backoff.Step())
		case err == nil:
			if failing {
				logger.Info("Listed the runtime's containers again")
			}
			backoff, failing = crilist.Retries(), false
			if again = c.config.Kubelet.again(step, again); again > 0 {
				retry = c.config.Clock.After(again)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		case <-c.relist:
			step = -1
		case <-retry:
		}
		if c.config.Kubelet != nil { // what happens together is looked at once
			select {
			case <-ctx.Done():
				return
			case <-c.config.Clock.After(relistGap):
			}
		}
	}
}

// ResyncError returns why the runtime's containers could not be listed when last tried;
// nil when they were, or have not been asked for yet.
func (c *Claims) ResyncError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resyncError
}

// resync makes the containers those that the runtime has, and has the claims follow. It returns after
// what time to do so again at the latest; 0 for not before something happens.
func (c *Claims) resync(ctx context.Context) (again time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	if c.resyncing.Acquire(ctx, 1) != nil {
		return 0, fmt.Errorf("wait for another listing of the runtime's containers: %w", context.Cause(ctx))
	}
	defer c.resyncing.Release(1)
	if err = c.readContainers(ctx); err == nil && c.config.Kubelet != nil {
		again, err = c.config.Kubelet.Ask(ctx)
	}
	c.config.Metrics.Resynced(err)
	c.mu.Lock()
	c.resyncError = err
	c.mu.Unlock()
	if err != nil {
		return 0, err
	}
	c.enqueue(c.names())
	c.checkpointSoon() // the devices may have changed
	c.noteHeld()
	return again, nil
}

// names are the slots of which there is something to be done, or may be.
func (c *Claims) names() []slot.Name {
	names := append(c.containers.slots(), c.store.names()...)
	slices.SortFunc(names, compareSlots)
	return slices.Compact(names)
}

func (c *Claims) readContainers(ctx context.Context) error {
	since := c.containers.startSync()
	listed, err := c.list(ctx)
	if err != nil {
		c.containers.abandonSync()
		return err
	}
	c.containers.finishSync(since, listed)
	if !c.isKnown() {
		klog.FromContext(ctx).Info("Read from the runtime which containers use slots", "containers", len(listed))
		close(c.known)
		c.recordEarly()
	}
	return nil
}

// isKnown reports whether the runtime has been asked since the start.
func (c *Claims) isKnown() bool {
	select {
	case <-c.known:
		return true
	default:
		return false
	}
}

// list returns the containers that use slots.
func (c *Claims) list(ctx context.Context) ([]*user, error) {
	listed, err := crilist.List(ctx, c.config.Runtime)
	if err != nil {
		return nil, err
	}
	if was := c.parts.Swap(listed.Parts); listed.Parts && !was {
		klog.FromContext(ctx).Info("Warning: the runtime's containers do not fit in one message and are listed in parts. A kubelet without CRIListStreaming cannot list them", "containers", len(listed.Containers))
	}
	var lacking map[string]bool
	if c.config.Inspect != nil {
		lacking = c.config.Inspect(ctx, listed.Containers, listed.Sandboxes)
	}
	var users []*user
	for _, container := range listed.Containers {
		if lacking[container.Id] || !listed.Usable(container) {
			continue
		}
		if u := c.userOf(ctx, container, listed.Sandboxes[container.PodSandboxId].GetAnnotations()); u != nil {
			u.exited = container.State == runtimeapi.ContainerState_CONTAINER_EXITED
			// What a former process has stopped is as what this one has.
			u.ended = u.exited && c.fence.hasPromised(u)
			users = append(users, u)
		}
	}
	return users, nil
}

// userOf returns a container and the slots that it uses; nil when it uses none.
func (c *Claims) userOf(ctx context.Context, container *runtimeapi.Container, podAnnotations map[string]string) *user {
	u := &user{
		id: container.Id, sandbox: container.PodSandboxId,
		name: kubelettypes.GetContainerName(container.Labels), pod: PodOf(container.Labels),
	}
	var err error
	if u.slots, err = Used(container.Annotations); err != nil {
		klog.FromContext(ctx).Error(err, "Passed over a container's annotation", "containerID", container.Id)
	}
	if c.config.Kubelet == nil {
		c.holdByPod(u, podAnnotations)
	}
	if len(u.slots) == 0 {
		return nil
	}
	return u
}

// holdByPod makes the slots that a container's annotations say those that its pod holds. What NRI adds to a container
// does not show in CRI, and one that was restored from a checkpoint has the annotations of the pod that was
// checkpointed: such containers use what was assigned to them.
func (c *Claims) holdByPod(u *user, podAnnotations map[string]string) {
	ours := len(u.slots) > 0
	for name, use := range u.slots {
		ours = ours && (use.Level == v1alpha1.InstanceLevel || use.Holder == u.pod.UID)
		u.slots[name] = Use{use.Level, u.pod.UID}
	}
	if ours {
		return
	}
	assigned, err := assignment.OfContainer(podAnnotations, u.pod.UID, c.config.Node, u.name)
	if err != nil || assigned.Pod == nil { // as those that were created in device-plugin mode
		return
	}
	clear(u.slots)
	for _, g := range assigned.Grants {
		u.slots[g.Slot] = Use{levelOf(g), u.pod.UID}
	}
}
