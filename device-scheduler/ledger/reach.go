package ledger

import "slices"

// Reach returns the nodes, sorted, that reach devices for every request of the
// pod, whether or not they have slots free; nil when each request could be
// served on more than limit nodes. The Shortfall says that there are none.
func (l *Ledger) Reach(req *Request, limit int) ([]string, *Shortfall) {
	var nodes []string
	narrowed := false
	for i := range req.Containers {
		c := &req.Containers[i]
		for _, r := range c.Resources {
			k := l.kindOf(r.Name)
			if k == nil {
				return nil, &Shortfall{Reason: Unknown, Container: c.Name, Resource: r.Name, Needed: r.Count}
			}
			size, reaches := len(k.byNode), func(n string) bool { _, ok := k.byNode[n]; return ok }
			if r.Name != k.name {
				d := l.devices[r.Name]
				size, reaches = len(d.nodes), d.reaches
			}
			switch {
			case narrowed:
				nodes = slices.DeleteFunc(nodes, func(n string) bool { return !reaches(n) })
			case size > limit:
				continue
			case r.Name != k.name:
				nodes, narrowed = slices.Clone(l.devices[r.Name].nodes), true
			default:
				nodes, narrowed = make([]string, 0, size), true
				for n := range k.byNode {
					nodes = append(nodes, n)
				}
			}
			if narrowed && len(nodes) == 0 {
				return nil, &Shortfall{Reason: NoNode, Container: c.Name, Resource: r.Name, Needed: r.Count}
			}
		}
	}
	slices.Sort(nodes)
	return nodes, nil
}

// Free returns how many slots of a resource are free in the cluster.
func (l *Ledger) Free(resource string) int {
	k := l.kindOf(resource)
	if k == nil {
		return 0
	}
	if k.name != resource {
		return l.devices[resource].nfree
	}
	return k.free
}

// Prospect is how well a node can serve a request, averaged over its parts.
type Prospect struct {
	// Free is the share, 0 to 1, of the slots that the node reaches and that
	// are free.
	Free float64
	// Local is the share, 0 to 1, of the request that free slots of devices
	// could serve which no other node reaches.
	Local float64
}

// Prospect looks at a request on a node.
func (l *Ledger) Prospect(req *Request, node string) Prospect {
	var sum Prospect
	parts := 0.0
	for i := range req.Containers {
		for _, r := range req.Containers[i].Resources {
			k := l.kindOf(r.Name)
			if k == nil {
				continue
			}
			slots, free, local := 0, 0, 0
			if r.Name == k.name {
				at := k.byNode[node]
				for g := range at.groups {
					slots, free = slots+g.slots, free+g.free
				}
				if at.own != nil {
					local = at.own.free
				}
			} else if d := l.devices[r.Name]; d.reaches(node) {
				slots, free = d.capacity, d.nfree
				if len(d.nodes) == 1 {
					local = d.nfree
				}
			}
			parts++
			if slots > 0 {
				sum.Free += float64(free) / float64(slots)
				sum.Local += min(1, float64(local)/float64(r.Count))
			}
		}
	}
	if parts == 0 {
		return Prospect{}
	}
	return Prospect{Free: sum.Free / parts, Local: sum.Local / parts}
}
