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
				nodes, narrowed = conf.nodes(), true
			}
			if narrowed && len(nodes) == 0 {
				if size > 0 {
					return nil, &Shortfall{Reason: NoCommonNode, Container: c.Name, Resource: r.Name, Needed: r.Count}
				}
				return nil, &Shortfall{Reason: NoNode, Container: c.Name, Resource: r.Name, Needed: r.Count, Configuration: conf.ownerName()}
			}
		}
	}
	slices.Sort(nodes)
	return nodes, nil
}

// nodes are those that reach some device, in no order.
func (conf *configRecord) nodes() []string {
	names := make([]string, 0, conf.reach.nodes)
	for _, c := range conf.classes {
		for _, n := range c.nodes {
			names = append(names, n.name)
		}
	}
	return names
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
