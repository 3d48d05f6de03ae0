package admit

import (
	"context"
	"fmt"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/kubecri/crilist"
	"github.com/kubeslot/kubeslot/kubecri/soplugins"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/resource"
)

// inUse keeps devices of plugins from being in containers of two pods at once. The scheduler counts
// by the pods that the API server has: a pod that was deleted by force is not there while its containers
// run on, and two schedulers may bind two pods with one device. Slots have claims against both;
// for plugins' devices the runtime's containers are asked.
type inUse struct {
	node    string
	runtime crilist.Runtime

	mu sync.Mutex
	// creating are the containers that may be created, and that the runtime may not have yet.
	creating map[*user]bool
}

// user is a container and its devices.
type user struct {
	pod       claims.Pod
	container string
	devices   map[types.ResourceName]bool
}

// exclusive returns those of the container's devices of which the node has exactly one. Where it has more,
// they are shared, and the scheduler counts them.
func exclusive(c *types.ContainerInfo, node *types.NodeInfo) map[types.ResourceName]bool {
	devices := map[types.ResourceName]bool{}
	for want, from := range c.AllocateFrom {
		if !soplugins.IsSlot(want) && node.Allocatable[from] == 1 &&
			resource.Scorer(from, node.Scorer[from]) == resource.LeftoverScorer {
			devices[from] = true
		}
	}
	return devices
}

// begin lets the container have its devices until end is called, which is once the runtime has the container or
// will not have it. It returns nil for one without, and an error if another pod's container has one of them.
func (u *inUse) begin(ctx context.Context, c Container, assigned *types.ContainerInfo, node *types.NodeInfo,
) (*user, error) {
	mine := &user{c.Pod, c.Name, exclusive(assigned, node)}
	if len(mine.devices) == 0 {
		return nil, nil
	}
	// Whoever is here first wins, so that of two that come at once one starts.
	if err := u.create(mine); err != nil {
		return nil, err
	}
	if err := u.inRuntime(ctx, mine); err != nil {
		u.end(mine)
		return nil, err
	}
	return mine, nil
}

func (u *inUse) end(mine *user) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.creating, mine)
}

func (u *inUse) create(mine *user) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	for other := range u.creating {
		if err := mine.conflict(other); err != nil {
			return err
		}
	}
	u.creating[mine] = true
	return nil
}

func (u *inUse) inRuntime(ctx context.Context, mine *user) error {
	listed, err := crilist.List(ctx, u.runtime)
	if err != nil {
		return fmt.Errorf("whether another pod uses its devices still is not known: %w", err)
	}
	for _, c := range listed.Containers {
		if err := mine.conflict(u.usedBy(c, listed)); err != nil {
			return err
		}
	}
	return nil
}

// conflict says which device another pod's container has, too. Which containers of one pod may have
// one device is the scheduler's to say.
func (u *user) conflict(other *user) error {
	if other == nil || other.pod.UID == u.pod.UID {
		return nil
	}
	for name := range u.devices {
		if other.devices[name] {
			return fmt.Errorf("%q, which it was assigned, is in use by container %q of pod %s (UID %s), "+
				"which the runtime has still: "+
				"creation is retried, and goes on once that container has ended",
				name, other.container, other.pod, other.pod.UID)
		}
	}
	return nil
}

// usedBy returns what a container of the runtime was assigned, nil for one that cannot run without being
// created anew, or was assigned nothing.
func (u *inUse) usedBy(c *runtimeapi.Container, listed crilist.Listing) *user {
	sandbox := listed.Sandboxes[c.PodSandboxId]
	if sandbox == nil || c.State == runtimeapi.ContainerState_CONTAINER_EXITED || !listed.Usable(c) {
		return nil
	}
	of, err := assignment.OfContainer(sandbox.Annotations, sandbox.Metadata.GetUid(), u.node, c.Metadata.GetName())
	if err != nil || of.Info == nil {
		return nil // such a container was not started with devices
	}
	devices := make(map[types.ResourceName]bool, len(of.Info.AllocateFrom))
	for _, from := range of.Info.AllocateFrom {
		devices[from] = true
	}
	m := sandbox.Metadata
	return &user{claims.Pod{Namespace: m.GetNamespace(), Name: m.GetName(), UID: m.GetUid()},
		c.Metadata.GetName(), devices}
}
