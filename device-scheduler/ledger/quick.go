package ledger

import akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"

// Fits answers for the most common request, one container that asks for one
// resource, whether it fits the node, from counts alone: Filter asks it of every
// node, and choosing slots costs ten times as much. sure is false where only Fit
// can tell.
func (l *Ledger) Fits(node string, req *Request) (fits, sure bool) {
	var r ResourceRequest
	for i := range req.Containers {
		for _, asked := range req.Containers[i].Resources {
			if r.Name != "" {
				return false, false
			}
			r = asked
		}
	}
	k := l.kindOf(r.Name)
	if k == nil || len(l.nominations) > 0 {
		return false, false
	}
	unique := k.unique()
	if r.Name != k.name {
		d := l.devices[r.Name]
		return d.reaches(node) && d.nfree >= r.Count && (unique == "" || r.Count == 1), true
	}
	if unique == akriv0.UniquePerNode {
		return false, false
	}
	have := 0
	for _, g := range k.byNode[node] {
		if unique == "" {
			have += g.free
		} else {
			have += g.order.Len() // Instances with a free slot
		}
		if have >= r.Count {
			return true, true
		}
	}
	return false, true
}
