package ledger

import (
	"cmp"

	"github.com/kubeslot/kubeslot/device-scheduler/slotsearch"
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

// Request is what a pod asks for, its containers that ask for slots in the order of the pod's spec:
// init containers and sidecars first.
type Request struct {
	Pod
	Containers []ContainerRequest
	// Budget bounds the searches of one try on all nodes together; nil for a single one.
	Budget *slotsearch.Budget
}

// spans say when the containers run. The times are those of the init containers, each of
// which runs alone but for the sidecars before it, and the last one, when all others run.
func (req *Request) spans() []slotsearch.Span {
	spans := make([]slotsearch.Span, len(req.Containers))
	time := 0
	for i, c := range req.Containers {
		if spans[i].From = time; c.Role == Init {
			time++
		}
	}
	for i, c := range req.Containers {
		switch spans[i].To = time; c.Role {
		case Init:
			spans[i].To = spans[i].From
		case App:
			spans[i].From = time
		}
	}
	return spans
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

// Pod identifies a pod. UIDs tell same-named pods apart.
type Pod struct {
	UID, Namespace, Name string
	// Priority is spec.priority.
	Priority int32
	// Bound is when the pod was bound, in Unix seconds; 0 while it is not.
	Bound int64
}

// WithNewBudget returns a copy of the request with a Budget of its own. What a try has found is taken with
// another one: the search for it may have spent that of the try.
func (req *Request) WithNewBudget() *Request {
	with := *req
	with.Budget = &slotsearch.Budget{}
	return &with
}

func (p Pod) String() string { return p.Namespace + "/" + p.Name }
