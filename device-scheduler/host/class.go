package host

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"maps"
	"slices"

	"github.com/kubeslot/kubeslot/types"
)

// class is the same for nodes that are equal but for their names.
type class [sha256.Size]byte

// Known reports whether the node is there: SetNode gives one that is not when it is gone.
func (n *Node) Known() bool { return n.given != nil }

// classOf is made when it is first asked for: only Remotes need it.
func (n *Node) classOf() class {
	n.classify.Do(func() {
		h := sha256.New()
		i := n.info
		for _, list := range []types.ResourceList{i.Capacity, i.Allocatable, i.Used, i.KubeCap, i.KubeAlloc} {
			digest(h, list)
		}
		digest(h, n.info.Scorer)
		h.Sum(n.class[:0])
	})
	return n.class
}

// digest writes the map in the order of its keys, with lengths, so that no two maps are written alike.
func digest[V int32 | int64](h hash.Hash, list map[types.ResourceName]V) {
	var b []byte
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, name := range slices.Sorted(maps.Keys(list)) {
		b = binary.AppendUvarint(b, uint64(len(name)))
		b = append(b, name...)
		b = binary.AppendVarint(b, int64(list[name]))
	}
	h.Write(b)
}
