package host

import (
	"fmt"
	"maps"
	"strings"

	"github.com/kubeslot/kubeslot/device-scheduler/group"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/contain"
)

func clone[M ~map[K]V, K comparable, V any](m M) M {
	to := make(M, len(m))
	maps.Copy(to, m)
	return to
}

// fresh returns the pod as a device scheduler has to see it before it is
// placed: DevRequests are the Requests, which the plugins then translate in
// place, so that a copy must not be used twice; no group resource is allocated.
func fresh(pod *types.PodInfo, node string) *types.PodInfo {
	p := pod.Clone()
	p.NodeName = node
	for _, containers := range []map[string]types.ContainerInfo{p.RunningContainers, p.InitContainers} {
		for name, c := range containers {
			c.DevRequests = clone(c.Requests)
			containers[name] = c
		}
	}
	group.Clear(p)
	return p
}

// adopt returns the pod with what a plugin may change, of the copy that it had:
// translated requests, scorers and allocations. Requests are the author's, and
// which containers there are is not the plugin's to say.
//
// It is an error if the plugin changed an allocation that was made before it, or
// made one of a slot, which is the ledger's: each device has one giver.
func adopt(before, after *types.PodInfo) (*types.PodInfo, error) {
	pod := before.Clone()
	for _, part := range []struct {
		to, from map[string]types.ContainerInfo
	}{
		{pod.RunningContainers, after.RunningContainers}, {pod.InitContainers, after.InitContainers}} {
		for name, c := range part.to {
			got, ok := part.from[name]
			if !ok {
				continue
			}
			if err := checkAllocation(name, c.AllocateFrom, got.AllocateFrom); err != nil {
				return nil, err
			}
			c.DevRequests, c.AllocateFrom, c.Scorer = clone(got.DevRequests), clone(got.AllocateFrom), clone(got.Scorer)
			part.to[name] = c
		}
	}
	return pod, nil
}

func checkAllocation(container string, before, after types.ResourceLocation) error {
	for want, from := range before {
		if got := after[want]; got != from {
			return fmt.Errorf("%w: it changed the allocation of container %q for %q, which another made, from %q to %q",
				contain.ErrInvalid, container, want, from, got)
		}
	}
	for want := range after {
		if _, had := before[want]; !had && strings.HasPrefix(string(want), assignment.ResourcePrefix) {
			return fmt.Errorf("%w: it allocated %q to container %q: slots are given out by the scheduler itself",
				contain.ErrInvalid, want, container)
		}
	}
	return nil
}
