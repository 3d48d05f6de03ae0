package view

import (
	"time"
)

// State is what a slot is used for.
type State string

const (
	// Free: nobody has it.
	Free State = "Free"
	// Assigned: the scheduler gave it to a pod, which the node has not begun to start.
	Assigned State = "Assigned"
	// Held: a node has claimed it for a container.
	Held State = "Held"
	// Missing: the container of the pod that it is assigned to runs, and its node has not claimed
	// it: kubecri did not see that container, so it runs without the device.
	Missing State = "Missing"
)

// Slot is one slot and who has it.
type Slot struct {
	Name string `json:"name"`
	// InstanceNamespace is that of the Instance and its Configuration.
	InstanceNamespace string `json:"namespace,omitempty"`
	Instance          string `json:"instance"`
	Configuration     string `json:"configuration"`
	Device            string `json:"device,omitempty"`
	State             State  `json:"state"`
	Namespace         string `json:"podNamespace,omitempty"`
	Pod               string `json:"pod,omitempty"`
	PodUID            string `json:"podUID,omitempty"`
	// ResourceClaim is the one that has the slot, as namespace/name, and Users are its pods. Pod is the first.
	ResourceClaim string    `json:"resourceClaim,omitempty"`
	Users         []string  `json:"users,omitempty"`
	Container     string    `json:"container,omitempty"`
	Node          string    `json:"node,omitempty"`
	Level         string    `json:"level,omitempty"` // CL or IL
	Since         time.Time `json:"since,omitzero"`
	// Unreachable is true when the slot is kept since its node is not Ready: its pod is gone, or
	// is being deleted.
	Unreachable bool `json:"unreachable,omitempty"`
	// BeyondCapacity is true of a slot that is in use and beyond the Configuration's capacity, which was
	// lowered: it goes when its pod has ended.
	BeyondCapacity bool `json:"beyondCapacity,omitempty"`
	// Labels are the Instance's.
	Labels map[string]string `json:"labels,omitempty"`
}

// Holder is who has the slot, in words; empty when nobody does.
func (s *Slot) Holder() string {
	switch {
	case s.ResourceClaim != "":
		return s.claimHolder()
	case s.Pod != "":
		return s.Namespace + "/" + s.Pod
	case s.State != Free:
		return "node " + s.Node
	}
	return ""
}

// slotIndex is the slots that somebody has, made once for a view. The free ones are not among them: a device may
// have 10,000.
type slotIndex struct {
	all             []Slot            // by Configuration and name, and then those of devices without an Instance
	ofInstance      map[string][]Slot // by index
	withoutInstance []Slot
	ofPod           map[string][]Slot // by UID
}
