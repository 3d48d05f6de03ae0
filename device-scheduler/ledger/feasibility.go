package ledger

import akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"

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
			if conf := l.configOf(r.Name); conf != nil && conf.name == r.Name {
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

// at returns the Configuration that a part asks for, or whose Instance it names, how unique
// its Instances have to be, and what the node reaches of it. It is nil when
// there is none.
func (s *Feasibility) at(p *part, node string, place int) (*configRecord, akriv0.UniqueScope, *class) {
	if p.config != nil && p.config.version == p.version {
		if t := p.table; t != nil && t == p.config.snapshot && place >= 0 && place < len(t.classes) {
			return p.config, p.unique, t.classes[place]
		}
		return p.config, p.unique, p.config.classOf(node)
	}
	conf := s.ledger.configOf(p.Name)
	if conf == nil {
		return nil, "", unreached
	}
	return conf, conf.unique(), conf.classOf(node)
}

// Fits answers as Fit does for the most common request, one container that asks
// for one resource: choosing slots costs ten times as much. sure is false where
// only Fit can tell. The place is the node's in the snapshot, or NotInSnapshot.
func (s *Feasibility) Fits(node string, place int) (shortfall *Shortfall, sure bool) {
	if len(s.parts) != 1 {
		return nil, false
	}
	p := &s.parts[0]
	conf, unique, at := s.at(p, node, place)
	if conf == nil {
		return nil, false
	}
	have := 0
	switch {
	case p.Name != conf.name:
		if d := s.ledger.devices[p.Name]; at.reaches(d.group) && (unique == "" || p.Count == 1) {
			have = d.nfree + d.keptFor(s.req.Pod)
		}
	case unique != "":
		have = at.offers
	default:
		have = at.free
	}
	if have < p.Count && p.Count <= have+at.waiting && p.Name == conf.name {
		have += s.keptOf(at, unique, p.Count-have)
	}
	switch {
	case have < p.Count:
		return s.ledger.shortfall(node, s.req.Containers[p.container].Name, p.ResourceRequest, conf, 0), true
	case unique == akriv0.UniquePerNode && p.Name == conf.name:
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
		conf, _, at := s.at(p, node, place)
		if conf == nil {
			continue
		}
		slots, free, local := 0, 0, 0
		if p.Name == conf.name {
			slots, free = at.slots, at.free
			if own := conf.own(at); own != nil {
				local = own.free
			}
		} else if d := s.ledger.devices[p.Name]; at.reaches(d.group) {
			slots, free = d.capacity, d.nfree
			if d.group == conf.own(at) {
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
