package remote

import (
	"fmt"
	"math"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/contain"
	pb "github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
)

const (
	// maxReasons is how many reasons a plugin may give for one node, and maxReason how long each may
	// be, in bytes: the API takes 1024 for a pod's event, with what others say.
	maxReasons = 16
	maxReason  = 300
	// maxChanges bounds the names in what a plugin changes in a pod, in bytes: they become the pod's
	// annotation, and a pod's annotations may have 256 KiB together.
	maxChanges = 64 << 10
)

// invalid is the error of an answer that makes no sense.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{contain.ErrInvalid}, args...)...)
}

// changed returns a copy of the pod with what a plugin changes in it.
func changed(pod *types.PodInfo, changes *pb.PodChanges) (*types.PodInfo, error) {
	bytes := 0
	for _, part := range []struct {
		has     map[string]types.ContainerInfo
		changes map[string]*pb.ContainerChanges
	}{
		{pod.InitContainers, changes.GetInitContainers()},
		{pod.RunningContainers, changes.GetRunningContainers()},
	} {
		for container, change := range part.changes {
			if _, ok := part.has[container]; !ok {
				return nil, invalid("it changes container %.64q, which the pod does not have", container)
			}
			n, err := checkChange(container, change)
			if err != nil {
				return nil, err
			}
			bytes += n
		}
	}
	if bytes > maxChanges {
		return nil, invalid("the names in its changes of the pod take %d bytes, of %d that they may", bytes, maxChanges)
	}
	pod = pod.Clone()
	changes.Apply(pod)
	return pod, nil
}

// checkChange returns how many bytes the names in the change take.
func checkChange(container string, change *pb.ContainerChanges) (bytes int, err error) {
	for name, n := range change.GetDevRequests() {
		bytes += len(name)
		if name == "" || n < 0 {
			return 0, invalid("it requests %d of %.64q for container %q", n, name, container)
		}
	}
	for want, from := range change.GetAllocateFrom() {
		bytes += len(want) + len(from)
		if want == "" || from == "" {
			return 0, invalid("it meets %.64q of container %q with %.64q", want, container, from)
		}
	}
	for name := range change.GetScorer() {
		bytes += len(name)
	}
	return bytes, nil
}

// checkVerdict checks what a plugin says of one node, but for the changes.
func checkVerdict(v *pb.Verdict) error {
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
