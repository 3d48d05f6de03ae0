package v1alpha1

import (
	"cmp"
	"time"
)

// Contender is one of several devices whose Instances would have the same name, as a hash of few
// digits has it: the least by Compare gets the name. Scheduler and controller decide by it alike.
// It is made of the reports that may count and by which nodes give slots of the device.
//
// +k8s:deepcopy-gen=false
type Contender struct {
	Shared bool
	// Nodes is how many nodes report it.
	Nodes int
	// Created and Slice are the creation time and the name of the oldest slice that lists it, by
	// both in turn, and Index is the device's place in that slice.
	Created time.Time
	Slice   string
	Index   int
}

// Compare orders contenders: the device that most nodes report comes first, of equal ones a local
// one, then the one in the oldest slice. So whoever reads the same slices, in whatever order, finds
// the same. A node can find an id whose hash is another device's: a shared one that only it reports
// takes no node's own device, and none that several nodes share, and so does a local one.
func (c Contender) Compare(other Contender) int {
	local := func(c Contender) int {
		if c.Shared {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(other.Nodes, c.Nodes), local(c)-local(other), c.Created.Compare(other.Created),
		cmp.Compare(c.Slice, other.Slice), cmp.Compare(c.Index, other.Index))
}
