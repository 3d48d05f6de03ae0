package ledger

import (
	"maps"
	"slices"
)

// Reach returns the nodes, sorted, that reach devices for every request of the
// pod, whether or not they have slots free; nil when each request could be
// served on more than limit nodes. The Shortfall says that there are none.
func (l *Ledger) Reach(req *Request, limit int) ([]string, *Shortfall) {
	var nodes []string
	narrowed, seen := false, map[string]bool{}
	for i := range req.Containers {
		c := &req.Containers[i]
		for _, r := range c.Resources {
			if seen[r.Name] {
				continue // by another container
			}
			seen[r.Name] = true
			conf, d := l.resource(r.Name)
			if conf == nil {
				return nil, l.unknown(c.Name, r)
			}
			size, reaches := conf.reach.nodes, func(n string) bool { return conf.classOf(l.nodes[n]) != unreached }
			if d != nil {
				size, reaches = d.group.nodes(), func(n string) bool { return d.reachedBy(l.nodes[n]) }
			}
			switch {
			case narrowed:
				nodes = slices.DeleteFunc(nodes, func(n string) bool { return !reaches(n) })
			case size > limit:
				continue
			case d != nil:
				nodes, narrowed = d.nodes(), true
			default:
				nodes, narrowed = nodesOf(maps.Values(conf.classes), size), true
			}
			if narrowed && len(nodes) == 0 {
				s := &Shortfall{Reason: NoCommonNode, Container: c.Name, Resource: r.Name, Needed: r.Count}
				if size == 0 {
					s.Reason, s.Configuration = NoNode, conf.owner.Namespace+"/"+conf.owner.Name
				}
				return nil, s
			}
		}
	}
	return nodes, nil
}

// Reaches reports whether the node reaches the Instance.
func (l *Ledger) Reaches(node, instance string) bool {
	d := l.devices[instance]
	return d != nil && d.reachedBy(l.nodes[node])
}

// Free returns how many slots of a resource are free in the cluster.
func (l *Ledger) Free(resource string) int {
	switch conf, d := l.resource(resource); {
	case conf == nil:
		return 0
	case d != nil:
		return d.nfree
	default:
		return conf.free
	}
}
