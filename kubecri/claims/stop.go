package claims

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"k8s.io/client-go/util/workqueue"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/types/slot"
)

const (
	// fenceStopGrace is at most how long a container that is stopped has to end by itself.
	fenceStopGrace = 5 * time.Second
	// fenceKillTimeout is at least how long the runtime has to stop a container.
	fenceKillTimeout = 5 * time.Second
	// fenceStops is how many containers are stopped at a time. Each has less time than the one before.
	fenceStops = 32
	// fenceIdle is how often it is looked whether there is a promise, where none is known of.
	fenceIdle = time.Minute
	// fenceRetry is between two tries to renew the Lease when one has failed.
	fenceRetry = 5 * time.Second
	// fenceStopRetry is between two tries to stop a container, and bounds the renewal before one.
	fenceStopRetry = time.Second
)

// Stopper is the part of the runtime that stops containers.
type Stopper interface {
	StopContainer(ctx context.Context, in *runtimeapi.StopContainerRequest, opts ...grpc.CallOption) (*runtimeapi.StopContainerResponse, error)
	RemoveContainer(ctx context.Context, in *runtimeapi.RemoveContainerRequest, opts ...grpc.CallOption) (*runtimeapi.RemoveContainerResponse, error)
	ContainerStatus(ctx context.Context, in *runtimeapi.ContainerStatusRequest, opts ...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error)
}

// fenceLoop renews the Lease while the node has promised something, and stops containers when it
// cannot.
func (c *Claims) fenceLoop(ctx context.Context) {
	if c.fence.leases == nil {
		return
	}
	for {
		after := c.keepPromises(ctx)
		select {
		case <-ctx.Done():
			return
		case <-c.fenced:
		case <-c.config.Clock.After(after):
		}
	}
}

// keepPromises does so once, and returns after what time to do so again. It does not wait for
// containers that are stopped.
func (c *Claims) keepPromises(ctx context.Context) time.Duration {
	shortest, ok := c.shortestPromise()
	if !ok {
		return fenceIdle
	}
	// When a process that was frozen goes on, or a suspended machine, nothing has failed yet, and the
	// API server may be there: the renewal comes first then.
	due := c.due()
	if c.fence.isFailing() {
		c.stopAll(ctx, due)
	}
	next := shortest / 8
	timeout := c.fence.beforeStop(min(next, apiTimeout)) // a renewal that hangs delays no stop
	if len(due) > 0 {
		timeout = min(timeout, fenceStopRetry)
	}
	renewing, cancel := context.WithTimeout(ctx, timeout)
	err := c.fence.renew(renewing)
	cancel()
	if err == nil || ctx.Err() != nil {
		return next
	}
	silent, _ := c.fence.silent()
	klog.FromContext(ctx).Error(err,
		"Cannot say that this node is there: containers whose slots would be released are stopped before that",
		"silent", silent.Round(time.Second))
	next = c.fence.beforeStop(min(next, fenceRetry))
	if due = c.due(); len(due) > 0 {
		c.stopAll(ctx, due)
		next = min(next, fenceStopRetry)
	}
	return next
}

// fenceSoon has promises kept now.
func (c *Claims) fenceSoon() { Ask(c.fenced) }

// fenceCreated stops a container whose creation began before the fence was up. It does not wait.
func (c *Claims) fenceCreated(u *user) {
	for name := range u.slots {
		if p, ok := c.fence.promised(name); ok && c.fence.up(p.after()) {
			c.stopAll(context.Background(), c.due())
			c.fenceSoon() // which tries again
			return
		}
	}
}

// shortestPromise returns the shortest of the node's promises; false when there is none. It forgets
// those of slots that are neither claimed nor used any more.
func (c *Claims) shortestPromise() (shortest time.Duration, ok bool) {
	for name, p := range c.fence.all() {
		if c.isSynced() && c.isKnown() && c.store.get(name) == nil && !c.containers.uses(name) {
			c.fence.forget(name)
			continue
		}
		if !ok || p.after() < shortest {
			shortest, ok = p.after(), true
		}
	}
	return shortest, ok
}

// due is a container that is to be stopped.
type due struct {
	user user
	slot slot.Name
	promise
}

// due returns the containers that are to be stopped now, those first whose slots would be released
// first.
func (c *Claims) due() []due {
	var all []due
	for name, p := range c.fence.all() {
		if !c.fence.up(p.after()) {
			continue
		}
		for _, u := range c.containers.use(name).held {
			all = append(all, due{u, name, p})
		}
	}
	slices.SortFunc(all, func(a, b due) int { return cmp.Compare(a.after(), b.after()) })
	return all
}

// stopAll begins to stop those that are not being stopped already. The kubelet creates them again,
// which is refused until the API server has been reached.
func (c *Claims) stopAll(ctx context.Context, all []due) {
	all = slices.DeleteFunc(slices.Clone(all), func(d due) bool { return !c.containers.stopping(d.user.id, true) })
	if len(all) == 0 {
		return
	}
	c.stops.Go(func() {
		workqueue.ParallelizeUntil(context.Background(), fenceStops, len(all), func(i int) {
			d := all[i]
			defer c.containers.stopping(d.user.id, false)
			silent, _ := c.fence.silent()
			logger := klog.FromContext(ctx).WithValues("slot", d.slot.String(), "pod", klog.KRef(d.user.pod.Namespace, d.user.pod.Name), "container", d.user.name,
				"silent", silent.Round(time.Second), "releaseUnreachableAfter", d.after())
			_, left := c.fence.left(d.after())
			if err := c.stop(ctx, d.user, left); err != nil {
				logger.Error(err, "Cannot stop a container whose slot may be given to another; trying again")
				return
			}
			logger.Info("Stopped a container: the node does not reach the API server, and its slot may be given to another")
		})
	})
}

// stop ends a container whose slot may be another's in the time that is left. Without an error the
// container does not run, and cannot start again.
func (c *Claims) stop(ctx context.Context, u user, left time.Duration) error {
	grace := max(0, min(fenceStopGrace, left/2)) // the other half is for killing it
	ctx, cancel := context.WithTimeout(ctx, max(fenceKillTimeout, min(left, grace+runtimeTimeout)))
	defer cancel()
	if _, err := c.config.Stopper.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: u.id, Timeout: int64(grace / time.Second)}); err != nil {
		return fmt.Errorf("stop container %s: %w", u.id, err)
	}
	// A runtime does not stop a container that has not started, and says nothing.
	there, err := c.config.Stopper.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: u.id})
	if err != nil {
		return fmt.Errorf("look whether container %s has stopped: %w", u.id, err)
	}
	switch state := there.GetStatus().GetState(); state {
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		c.containers.ended(u.id)
		return nil
	case runtimeapi.ContainerState_CONTAINER_CREATED: // the kubelet may be about to start it
		if _, err := c.config.Stopper.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: u.id}); err != nil {
			return fmt.Errorf("remove container %s before it starts: %w", u.id, err)
		}
		c.Removed(u.id)
		return nil
	default:
		return fmt.Errorf("the runtime has stopped container %s, and says that it is %s", u.id, state)
	}
}

// stopLost stops the containers here of a slot that another has claimed after this node was silent
// for longer than it had promised: they run because kubecri did not, or the machine was suspended.
func (c *Claims) stopLost(ctx context.Context, name slot.Name) (stopped []user, err error) {
	for _, u := range c.containers.use(name).held {
		if err := c.stop(ctx, u, 0); err != nil {
			return stopped, fmt.Errorf("slot %s, which is another's, is used by container %q of pod %s, delete the pod: %w", name, u.name, u.pod, err)
		}
		stopped = append(stopped, u)
	}
	return stopped, nil
}
