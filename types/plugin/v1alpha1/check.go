package v1alpha1

import (
	"fmt"
	"math"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/contain"
)

const (
	// maxResources is how many resources a plugin may answer for, of maxResource bytes at most: a path
	// of a group resource is as long as three names of Kubernetes.
	maxResources = 64
	maxResource  = 3 * (253 + 1 + 63)
	// maxReasons is how many reasons a plugin may give for one node, and maxReason how long each may
	// be, in bytes: the API takes 1024 for a pod's event, with what others say.
	maxReasons = 16
	maxReason  = 300
	// maxChanges bounds what a plugin changes in a pod, in bytes: it becomes the pod's annotation, and a
	// pod's annotations may have 256 KiB together.
	maxChanges = 64 << 10
)

// invalid is the error of an answer that makes no sense.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{contain.ErrInvalid}, args...)...)
}

// Check checks which resources the plugin answers for.
func (r *SchedulerStartResponse) Check() error {
	if n := len(r.GetResources()); n == 0 || n > maxResources {
		return invalid("it answers for %d resources: want 1 to %d", n, maxResources)
	}
	for _, name := range r.GetResources() {
		if name == "" || len(name) > maxResource || strings.Contains(name[:len(name)-1], "*") {
			return invalid("it answers for %.64q: want the name of a resource, or the beginning of one and '*'", name)
		}
	}
	return nil
}

// Check checks what the plugin says about so many nodes, but for its changes of the pod.
func (r *FitResponse) Check(nodes int) error {
	if n := len(r.GetVerdicts()); n != nodes {
		return invalid("%d verdicts about %d nodes", n, nodes)
	}
	for i, v := range r.GetVerdicts() {
		if err := v.check(); err != nil {
			return fmt.Errorf("verdict %d: %w", i, err)
		}
	}
	return nil
}

func (v *Verdict) check() error {
	if score := v.GetScore(); math.IsNaN(score) || math.IsInf(score, 0) || score < 0 {
		return invalid("the score %v", score)
	}
	if n := len(v.GetReasons()); n > maxReasons {
		return invalid("%d reasons for one node, of %d that it may give", n, maxReasons)
	}
	for _, r := range v.GetReasons() {
		switch {
		case len(r.GetText()) > maxReason || len(r.GetResource()) > maxReason:
			return invalid("a reason of %d bytes for resource %.64q, of %d that each of the two may have",
				len(r.GetText()), r.GetResource(), maxReason)
		case r.GetRequested() < 0 || r.GetUsed() < 0 || r.GetCapacity() < 0:
			return invalid("a reason with a negative amount of %q", r.GetResource())
		}
	}
	return nil
}

// ChangeIn returns the pod with the changes, of which nothing is shared, if they are valid.
func (c *PodChanges) ChangeIn(pod *types.PodInfo) (*types.PodInfo, error) {
	if bytes := proto.Size(c); bytes > maxChanges {
		return nil, invalid("its changes of the pod take %d bytes, of %d that they may", bytes, maxChanges)
	}
	changed := pod.Clone()
	for _, part := range []struct {
		to      map[string]types.ContainerInfo
		changes map[string]*ContainerChanges
	}{
		{changed.InitContainers, c.GetInitContainers()},
		{changed.RunningContainers, c.GetRunningContainers()},
	} {
		for name, change := range part.changes {
			container, ok := part.to[name]
			if !ok {
				return nil, invalid("it changes container %.64q, which the pod does not have", name)
			}
			if err := change.check(name); err != nil {
				return nil, err
			}
			container.DevRequests = mapOf[types.ResourceName](change.GetDevRequests())
			container.AllocateFrom = locationOf[types.ResourceName](change.GetAllocateFrom())
			container.Scorer = mapOf[types.ResourceName](change.GetScorer())
			part.to[name] = container
		}
	}
	return changed, nil
}

func (c *ContainerChanges) check(container string) error {
	for name, n := range c.GetDevRequests() {
		if name == "" || n < 0 {
			return invalid("it requests %d of %.64q for container %q", n, name, container)
		}
	}
	for want, from := range c.GetAllocateFrom() {
		if want == "" || from == "" {
			return invalid("it meets %.64q of container %q with %.64q", want, container, from)
		}
	}
	return nil
}
