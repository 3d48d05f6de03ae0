package ledger

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

var (
	_ failer = (*testing.T)(nil)
	_ failer = (*rapid.T)(nil)
)

// checkInvariants recomputes from scratch what the ledger keeps up to date.
func checkInvariants(t failer, l *Ledger) {
	t.Helper()
	for uid, p := range l.ending {
		if l.pods[uid] != p || !p.ending {
			t.Fatalf("pod %s is not there, or not being deleted", uid)
		}
	}
	for uid, p := range l.pods {
		if p.ending && l.ending[uid] != p {
			t.Fatalf("pod %s is being deleted, and not among those", uid)
		}
		for _, h := range p.holds {
			d := l.devices[h.slot.Instance]
			if d == nil || d.at(h.slot.Index) == nil || !slices.Contains(d.at(h.slot.Index).holders, uid) {
				t.Fatalf("pod %s holds %s, but the slot does not know", uid, h.slot)
			}
		}
	}
	for uid, n := range l.nominations {
		for _, h := range n.holds {
			d := l.devices[h.slot.Instance]
			if d == nil || d.slots[h.slot.Index].nominee != uid {
				t.Fatalf("%s is kept for pod %s, but the slot does not know", h.slot, uid)
			}
			if h.slot.Index >= d.capacity || !d.reaches(n.node) {
				t.Fatalf("%s is kept for pod %s in vain: %d slots, reached by %v", h.slot, uid, d.capacity, d.nodes)
			}
			for _, holder := range d.slots[h.slot.Index].holders {
				if p := l.pods[holder]; holder != uid && !p.ending && p.Priority >= n.Priority {
					t.Fatalf("%s is kept for pod %s although %s, no less important, holds it", h.slot, uid, holder)
				}
			}
		}
	}
	members := map[*group][]*device{}
	for name, d := range l.devices {
		n, cl := 0, map[string]int{}
		for i, s := range d.beyond {
			if i < len(d.slots) || len(s.holders) == 0 || s.claim != "" || s.nominee != "" {
				t.Fatalf("%s-%d, of %d slots: %+v is beyond them", name, i, len(d.slots), *s)
			}
		}
		for i, s := range d.known {
			free := d.exists && i < d.capacity && len(s.holders) == 0 && s.claim == "" && s.nominee == ""
			if free != d.free.has(i) {
				t.Fatalf("%s-%d: free bit is %v, want %v", name, i, d.free.has(i), free)
			}
			if free {
				n++
			}
			if s.nominee != "" && l.nominations[s.nominee] == nil {
				t.Fatalf("%s-%d is kept for %s, which has no nomination", name, i, s.nominee)
			}
			for _, uid := range s.holders {
				p := l.pods[uid]
				if p == nil {
					t.Fatalf("%s-%d is held by %s, which is gone", name, i, uid)
				}
				for _, h := range p.holds {
					if h.cl && h.slot.Instance == name && h.slot.Index == i {
						cl[p.node]++
					}
				}
			}
		}
		if n != d.nfree {
			t.Fatalf("%s: nfree is %d, want %d", name, d.nfree, n)
		}
		for node, c := range cl {
			if d.clOnNode.of(node) != c {
				t.Fatalf("%s: %d holders on %s, want %d", name, d.clOnNode.of(node), node, c)
			}
		}
		if len(cl) != len(d.clOnNode) {
			t.Fatalf("%s: clOnNode is %v, want %v", name, d.clOnNode, cl)
		}
		if d.exists != (d.group != nil) {
			t.Fatalf("%s: exists is %v, but group is %v", name, d.exists, d.group)
		}
		if d.group != nil {
			members[d.group] = append(members[d.group], d)
		}
	}
	for _, k := range l.kinds {
		inGroups := 0
		for _, g := range k.groups {
			slots, free, listed := 0, 0, 0
			for _, d := range members[g] {
				slots, free = slots+d.capacity, free+d.nfree
				if d.nfree > 0 {
					listed++
					if got, ok := g.order.Get(d); !ok || got != d {
						t.Fatalf("%s has free slots, but its group's order misses it", d.name)
					}
				}
			}
			if slots != g.slots || free != g.free || listed != g.order.Len() || listed != g.offers || len(members[g]) != g.members {
				t.Fatalf("group of %v counts %d slots, %d free, %d listed, %d members; want %d, %d, %d, %d",
					g.nodes, g.slots, g.free, g.order.Len(), g.members, slots, free, listed, len(members[g]))
			}
			inGroups += g.free
			for _, n := range g.nodes {
				if at := k.byNode[n]; !slices.Contains(slices.Collect(at.groups), g) {
					t.Fatalf("node %s misses its group", n)
				}
			}
		}
		if inGroups != k.free {
			t.Fatalf("%s counts %d free slots, want %d", k.name, k.free, inGroups)
		}
	}
}
