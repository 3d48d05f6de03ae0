package slotsearch

import akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"

// allows reports whether a container may use a slot more of the Instance: one that the pod
// has and nobody uses while the container runs, or a free one.
func (p *Problem) allows(in *Instance, container, level int) bool {
	if p.Unique != "" && in.usedBy(container) {
		return false
	}
	own, other := in.slotsWith(level, p.Spans[container]), in.slots[1-level]
	return own <= p.most(in, level, other) && own+other <= in.Free
}

// most is how many slots of the Instance uniqueness lets the pod have at a level, when it
// has others at the other level.
func (p *Problem) most(in *Instance, level, others int) int {
	switch {
	case p.Unique == akriv0.UniquePerPod:
		return 1 - others
	case p.Unique == akriv0.UniquePerNode && level == anyInstance && in.UsedOnNode:
		return 0
	case p.Unique == akriv0.UniquePerNode && level == anyInstance:
		return 1
	}
	return in.Free
}

// interchangeable reports whether a slot of one Instance serves every container as well as
// one of another. Then the first choice serves as many as any.
func (p *Problem) interchangeable() bool {
	return p.Unique == "" || p.Unique == akriv0.UniquePerPod
}
