package scheduler

// shape is a cluster and what of it is in use before the measured pods come.
type shape struct {
	name  string
	nodes int
	// deviceNodes reach devices, the others do not.
	deviceNodes int
	// slots that each of deviceNodes has, or shows of the shared ones.
	slots int
	// shared devices are reached by all nodes.
	shared bool
	// twoKinds: there are as many devices of another kind, and each pod has two containers, which
	// ask for one kind each.
	twoKinds bool
	// fill pods of fillSlots each are scheduled first and not measured.
	fill, fillSlots int
	pods            int
}

const (
	slotsPerInstance = 2
	// fillSlots is below DRA's limit of 32 devices a claim.
	fillSlots = 19
	// fullSlots is two fills and 5 % more.
	fullSlots = 40
)

// shapes are the clusters of so many nodes, and as many measured pods. Dense and
// shared have ten slots for each node, two ten of each kind, sparse five, and full,
// which takes many pods to fill, forty, but no more than 50,000 in all.
func shapes(nodes, pods int) []shape {
	full := min(nodes, 50_000/fullSlots)
	return []shape{
		{name: "dense", nodes: nodes, deviceNodes: nodes, slots: 10, pods: pods},
		{name: "two", nodes: nodes, deviceNodes: nodes, slots: 10, twoKinds: true, pods: pods},
		{name: "sparse", nodes: nodes, deviceNodes: nodes / 20, slots: 100, pods: pods},
		{name: "shared", nodes: nodes, deviceNodes: nodes, slots: 10, shared: true, pods: pods},
		// The last 5 % of the slots are all taken.
		{name: "full", nodes: nodes, deviceNodes: full, slots: fullSlots, fill: 2 * full, fillSlots: fillSlots,
			pods: full * (fullSlots - 2*fillSlots)},
	}
}

// kinds are the kinds of device.
func (s shape) kinds() []string {
	if s.twoKinds {
		return []string{kindName, otherKind}
	}
	return []string{kindName}
}

// instances is how many devices of a kind there are, and how many slots each has.
func (s shape) instances() (n, capacity int) {
	if s.shared {
		const devices = 100
		return devices, s.nodes * s.slots / devices
	}
	return s.deviceNodes * s.slots / slotsPerInstance, slotsPerInstance
}
