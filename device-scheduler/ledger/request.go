package ledger

import (
	"cmp"

	"github.com/kubeslot/kubeslot/types/slot"
)

// Role says when a container runs, and so which slots it can share with others
// of its pod.
type Role int

const (
	// App containers run together, until the pod ends.
	App Role = iota
	// Init containers run before them, one at a time, to completion.
	Init
	// Sidecar containers (restartable init) start in turn and then run on.
	Sidecar
)

// Request is what a pod asks for, its containers in the order of the pod's spec:
// init containers and sidecars first.
type Request struct {
	Pod
	Containers []ContainerRequest
}

// together reports whether there is a time at which containers i and j both run: init
// containers run alone but for the sidecars before them, all others together.
func (req *Request) together(i, j int) bool {
	earlier, later := req.Containers[min(i, j)].Role, req.Containers[max(i, j)].Role
	switch {
	case i == j:
		return true
	case later == Init:
		return earlier == Sidecar
	}
	return earlier != Init
}

// ContainerRequest is what one container asks for, sorted by resource.
type ContainerRequest struct {
	Name      string
	Role      Role
	Resources []ResourceRequest
}

// ResourceRequest is a count of one resource.
type ResourceRequest struct {
	// Name is a Configuration's or an Instance's: the resource name without
	// akri.sh/. Where both exist, the Configuration is meant.
	Name string
	// Count is at least 1.
	Count int
}

func compareSlots(a, b slot.Name) int {
	return cmp.Or(cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.Index, b.Index))
}
