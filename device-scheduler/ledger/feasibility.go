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
	// config is the Configuration, with how unique its Instances had to be when its
	// version was this; nil for an Instance's name, or one that was not known.
	config  *configRecord
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
			if conf, d := l.resource(r.Name); conf != nil && d == nil {
				p.config, p.version, p.unique, p.table = conf, conf.version, conf.unique(), conf.reached(index)
			}
			s.parts = append(s.parts, p)
		}
	}
	return s
}

// reached is what the snapshot's nodes reach; nil without a snapshot.
func (conf *configRecord) reached(index *SnapshotIndex) *table {
	if index == nil {
		return nil
	}
	if old := conf.snapshot; old == nil || old.index != index {
		conf.snapshot = &table{index, make([]*class, len(index.names))}
		for place, node := range index.names {
			if old != nil && place < len(old.classes) && old.index.names[place] == node {
				conf.snapshot.classes[place] = old.classes[place] // most nodes stay where they are
			} else {
				conf.snapshot.classes[place] = conf.classOf(node)
			}
		}
	}
	return conf.snapshot
}

// target is what a part asks for: a Configuration or, if it is not nil, an Instance of it. config is
// nil when there is neither.
type target struct {
	config *configRecord
	device *device
	unique akriv0.UniqueScope // how unique Instances have to be
	reach  *class             // of the Configuration, from the node
}

// on returns what a part asks for, as the node reaches it.
func (s *Feasibility) on(node string, place int, p *part) target {
	if p.config != nil && p.config.version == p.version {
		if t := p.table; t != nil && t == p.config.snapshot && place >= 0 && place < len(t.classes) {
			return target{p.config, nil, p.unique, t.classes[place]}
		}
		return target{p.config, nil, p.unique, p.config.classOf(node)}
	}
	conf, d := s.ledger.resource(p.Name)
	if conf == nil {
		return target{}
	}
	return target{conf, d, conf.unique(), conf.classOf(node)}
}

// Fits answers as Fit does for the most common request, one container that asks
// for one resource: choosing slots costs ten times as much. sure is false where
// only Fit can tell. The place is the node's in the snapshot, or NotInSnapshot.
func (s *Feasibility) Fits(node string, place int) (shortfall *Shortfall, sure bool) {
	if len(s.parts) != 1 {
		return nil, false
	}
	p := &s.parts[0]
	a := s.on(node, place, p)
	if a.config == nil {
		return nil, false
	}
	have := 0
	switch d := a.device; {
	case d != nil:
		if a.reach.reaches(d.group) && (a.unique == "" || p.Count == 1) {
			have = d.nfree + d.keptFor(s.req.Pod)
		}
	case a.unique != "":
		have = a.reach.offers
	default:
		have = a.reach.free
	}
	if a.device == nil && have < p.Count && p.Count <= have+a.reach.waiting {
		have += s.keptOf(a.reach, a.unique, p.Count-have)
	}
	switch {
	case have < p.Count:
		return a.config.shortfall(node, s.req.Containers[p.container].Name, p.ResourceRequest, a.device, 0), true
	case a.unique == akriv0.UniquePerNode && a.device == nil:
		return nil, false // the node's other pods may have them
	}
	return nil, true
}

// keptOf counts slots, or Instances that have no free one, which only nominations keep from
// being free, and not from the pod. It looks no further once there are enough.
func (s *Feasibility) keptOf(at *class, unique akriv0.UniqueScope, enough int) int {
	have := 0
	for _, g := range at.groups {
		for _, d := range g.nominated {
			switch {
			case unique == "":
				have += d.keptFor(s.req.Pod)
			case d.nfree == 0:
				have += min(1, d.keptFor(s.req.Pod))
			}
			if have >= enough {
				return have
			}
		}
	}
	return have
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
		a := s.on(node, place, p)
		if a.config == nil {
			continue
		}
		slots, free, local, own := 0, 0, 0, a.config.own(a.reach)
		if d := a.device; d == nil {
			slots, free = a.reach.slots, a.reach.free
			if own != nil {
				local = own.free
			}
		} else if a.reach.reaches(d.group) {
			slots, free = d.capacity, d.nfree
			if d.group == own {
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
