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
			size, reaches := len(k.byNode), func(n string) bool { return k.byNode[n] != nil }
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

// FreeShare returns the share, 0 to 1, of the requested kinds' slots on the node
// that are free, averaged over the requests.
func (l *Ledger) FreeShare(req *Request, node string) float64 {
	var sum float64
	n := 0
	for i := range req.Containers {
		for _, r := range req.Containers[i].Resources {
			k := l.kindOf(r.Name)
			if k == nil {
				continue
			}
			slots, free := 0, 0
			if r.Name == k.name {
				for _, g := range k.byNode[node] {
					slots, free = slots+g.slots, free+g.free
				}
			} else if d := l.devices[r.Name]; d.reaches(node) {
				slots, free = d.capacity, d.nfree
			}
			n++
			if slots > 0 {
				sum += float64(free) / float64(slots)
			}
		}
	}
	if n == 0 {
		return 0
	}
	return sum / float64(n)
}
