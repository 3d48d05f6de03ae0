package ledger

import akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"

// SnapshotIndex is a list of nodes that are known by their place in it. It never changes.
type SnapshotIndex struct {
	names  []string
	places map[string]int
}

// NewSnapshotIndex makes a snapshot of the names, in their order.
func NewSnapshotIndex(names []string) *SnapshotIndex {
	r := &SnapshotIndex{names: names, places: make(map[string]int, len(names))}
	for place, name := range names {
		r.places[name] = place
	}
	return r
}

// table is what a snapshot's nodes reach of a kind, by their place. It follows the kind's
// changes for as long as the kind has it.
type table struct {
	index   *SnapshotIndex
	reaches []reach
}

// set enters what a node reaches.
func (t *table) set(node string, r reach) {
	if t == nil {
		return
	}
	if place, found := t.index.places[node]; found {
		t.reaches[place] = r
	}
}

// NotInSnapshot is the place of a node that is not on the snapshot.
const NotInSnapshot = -1

// Feasibility is a request that is asked of many nodes: Filter and Score ask it of
// hundreds for each pod. It answers from counts alone, which lie side by side in
// the order of a snapshot: to find a node by its name, the processor would wait for
// memory several times. It stays right as the ledger changes, and may be asked by
// several goroutines between two changes.
type Feasibility struct {
	ledger *Ledger
	req    *Request
	parts  []part
}

// part is one resource that a container asks for.
type part struct {
	ResourceRequest
	container int
	// kind is the Configuration's, with how unique its Instances had to be when its
	// version was this; nil for an Instance's name, or one that was not known.
	kind    *kind
	version uint64
	unique  akriv0.UniqueScope
	table   *table
}

// Feasibility prepares the request for the nodes of a snapshot, which may be nil. It keeps
// what nodes reach for the next request: to be called like a change of the ledger.
func (l *Ledger) Feasibility(req *Request, index *SnapshotIndex) *Feasibility {
	s := &Feasibility{ledger: l, req: req}
	for i := range req.Containers {
		for _, r := range req.Containers[i].Resources {
			p := part{ResourceRequest: r, container: i}
			if k := l.kindOf(r.Name); k != nil && k.name == r.Name {
				p.kind, p.version, p.unique, p.table = k, k.version, k.unique(), k.reached(index)
			}
			s.parts = append(s.parts, p)
		}
	}
	return s
}

// reached is what the snapshot's nodes reach; nil without a snapshot.
func (k *kind) reached(index *SnapshotIndex) *table {
	if index == nil {
		return nil
	}
	if k.snapshot == nil || k.snapshot.index != index {
		k.snapshot = &table{index, make([]reach, len(index.names))}
		for place, node := range index.names {
			k.snapshot.reaches[place] = k.byNode[node]
		}
	}
	return k.snapshot
}

// at returns the kind that a part asks for, or whose Instance it names, how unique
// its Instances have to be, and what the node reaches of it. The kind is nil when
// there is none.
func (s *Feasibility) at(p *part, node string, place int) (*kind, akriv0.UniqueScope, reach) {
	if p.kind != nil && p.kind.version == p.version {
		if t := p.table; t != nil && t == p.kind.snapshot && place >= 0 && place < len(t.reaches) {
			return p.kind, p.unique, t.reaches[place]
		}
		return p.kind, p.unique, p.kind.byNode[node]
	}
	k := s.ledger.kindOf(p.Name)
	if k == nil {
		return nil, "", reach{}
	}
	return k, k.unique(), k.byNode[node]
}

// Fits answers as Fit does for the most common request, one container that asks
// for one resource: choosing slots costs ten times as much. sure is false where
// only Fit can tell. The place is the node's in the snapshot, or NotInSnapshot.
func (s *Feasibility) Fits(node string, place int) (shortfall *Shortfall, sure bool) {
	if len(s.parts) != 1 || s.ledger.mayHaveKept(s.req.Pod) {
		return nil, false
	}
	p := &s.parts[0]
	k, unique, at := s.at(p, node, place)
	if k == nil {
		return nil, false
	}
	switch {
	case p.Name != k.name:
		d := s.ledger.devices[p.Name]
		if d.reaches(node) && d.nfree >= p.Count && (unique == "" || p.Count == 1) {
			return nil, true
		}
	case unique == akriv0.UniquePerNode:
		return nil, false
	case at.offers(p.Count, unique != ""):
		return nil, true
	}
	return s.ledger.shortfall(node, s.req.Containers[p.container].Name, p.ResourceRequest, k, 0), true
}

// offers reports whether there are so many free slots, or so many Instances with a
// free slot.
func (r *reach) offers(count int, instances bool) bool {
	have := 0
	for g := range r.groups {
		if instances {
			have += g.offers
		} else {
			have += g.free
		}
		if have >= count {
			return true
		}
	}
	return false
}

// ScoreInput is how well a node can serve a request, averaged over its parts.
type ScoreInput struct {
	// Free is the share, 0 to 1, of the slots that the node reaches and that
	// are free.
	Free float64
	// Local is the share, 0 to 1, of the request that free slots of devices
	// could serve which no other node reaches.
	Local float64
}

// ScoreInput looks at the request on a node. The place is the node's in the snapshot, or NotInSnapshot.
func (s *Feasibility) ScoreInput(node string, place int) ScoreInput {
	var sum ScoreInput
	parts := 0.0
	for i := range s.parts {
		p := &s.parts[i]
		k, _, at := s.at(p, node, place)
		if k == nil {
			continue
		}
		slots, free, local := 0, 0, 0
		if p.Name == k.name {
			for g := range at.groups {
				slots, free = slots+g.slots, free+g.free
			}
			if at.own != nil {
				local = at.own.free
			}
		} else if d := s.ledger.devices[p.Name]; d.reaches(node) {
			slots, free = d.capacity, d.nfree
			if len(d.nodes()) == 1 {
				local = d.nfree
			}
		}
		parts++
		if slots > 0 {
			sum.Free += float64(free) / float64(slots)
			sum.Local += min(1, float64(local)/float64(p.Count))
		}
	}
	if parts == 0 {
		return ScoreInput{}
	}
	return ScoreInput{Free: sum.Free / parts, Local: sum.Local / parts}
}
