package ledger

import akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"

// Fits answers as Fit does for the most common request, one container that asks
// for one resource, but from counts alone: Filter asks it of every node, and
// choosing slots costs ten times as much. sure is false where only Fit can tell.
func (l *Ledger) Fits(node string, req *Request) (shortfall *Shortfall, sure bool) {
	var r ResourceRequest
	at := 0
	for i := range req.Containers {
		for _, asked := range req.Containers[i].Resources {
			if r.Name != "" {
				return nil, false
			}
			r, at = asked, i
		}
	}
	k := l.kindOf(r.Name)
	if k == nil || len(l.nominations) > 0 {
		return nil, false
	}
	fits, sure := l.enough(node, r, k)
	if fits || !sure {
		return nil, sure
	}
	f := fitting{Draft: &Draft{ledger: l}, node: node, req: req}
	return f.shortfall(at, r, k), true
}

// enough reports whether the node has what one container asks for.
func (l *Ledger) enough(node string, r ResourceRequest, k *kind) (yes, sure bool) {
	unique := k.unique()
	if r.Name != k.name {
		d := l.devices[r.Name]
		return d.reaches(node) && d.nfree >= r.Count && (unique == "" || r.Count == 1), true
	}
	if unique == akriv0.UniquePerNode {
		return false, false
	}
	have := 0
	for g := range k.byNode[node].groups {
		if unique == "" {
			have += g.free
		} else {
			have += g.offers
		}
		if have >= r.Count {
			return true, true
		}
	}
	return false, true
}
