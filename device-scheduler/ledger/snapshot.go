package ledger

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
