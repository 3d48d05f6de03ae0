package ledger

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

var (
	_ failer = (*testing.T)(nil)
	_ failer = (*rapid.T)(nil)
)

// all yields the slots that the device has, and those beyond that somebody has.
func (d *device) all(yield func(int, *slotState) bool) {
	for i := range d.capacity {
		s := d.at(i)
		if s == nil {
			s = &slotState{index: i}
		}
		if !yield(i, s) {
			return
		}
	}
	for _, s := range d.slots {
		if s.index >= d.capacity && !yield(s.index, s) {
			return
		}
	}
}

// checkInvariants recomputes from scratch what the ledger keeps up to date.
func checkInvariants(t failer, l *Ledger) {
	t.Helper()
	for uid, p := range l.terminating {
		if l.pods[uid] != p || !p.terminating {
			t.Fatalf("pod %s is not there, or not being deleted", uid)
		}
	}
	for uid, p := range l.pods {
		if p.terminating && l.terminating[uid] != p {
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
			if d == nil || d.at(h.slot.Index).nominee != uid {
				t.Fatalf("%s is kept for pod %s, but the slot does not know", h.slot, uid)
			}
			if h.slot.Index >= d.capacity || !d.reaches(n.node) {
				t.Fatalf("%s is kept for pod %s in vain: %d slots, reached by %v", h.slot, uid, d.capacity, d.nodes())
			}
			for _, holder := range d.at(h.slot.Index).holders {
				if p := l.pods[holder]; holder != uid && !p.terminating && p.Priority >= n.Priority {
					t.Fatalf("%s is kept for pod %s although %s, no less important, holds it", h.slot, uid, holder)
				}
			}
		}
	}
	ignored, leftOut, unsound, counts := 0, 0, 0, map[*kind]map[int]int{}
	members, claims := map[*group][]*device{}, map[*nodeRecord]int{}
	for name, d := range l.devices {
		n, cl := 0, map[string]int{}
		if !slices.IsSortedFunc(d.slots, func(a, b *slotState) int { return a.index - b.index }) || slices.ContainsFunc(d.slots, func(s *slotState) bool { return !s.inUse() }) {
			t.Fatalf("%s keeps %d slots", name, len(d.slots))
		}
		if d.kind != nil && d.kind.owner != nil {
			leftOut += d.notCounted()
		}
		for i, s := range d.all {
			{
				use := s.use()
				if use != s.counted || (use.as != unused && i < d.capacity) != d.taken.has(i) {
					t.Fatalf("%s-%d is counted as %v, want %v, and taken: %v", name, i, s.counted, use, d.taken.has(i))
				}
				if use.ignoredClaim {
					ignored++
				}
				if d.kind != nil && use.as != unused {
					if counts[d.kind] == nil {
						counts[d.kind] = map[int]int{}
					}
					counts[d.kind][use.as]++
				}
			}
			if c := s.claim; c != nil {
				claims[c.node]++
				alone := c.podless && c.node.known && c.node.labels[v1alpha1.ModeLabel] == v1alpha1.ModeDevicePlugin
				if counts := i < d.capacity && (alone || slices.Contains(d.nodes(), c.node.name)); counts != c.counts {
					t.Fatalf("the claim of %s on %s-%d counts: %v, want %v", c.node.name, name, i, c.counts, counts)
				}
			}
			free := d.group != nil && i < d.capacity && len(s.holders) == 0 && s.claimed() == nil && s.nominee == ""
			if free != d.isFree(i) {
				t.Fatalf("%s-%d: free bit is %v, want %v", name, i, d.isFree(i), free)
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
		if d.group != nil {
			members[d.group] = append(members[d.group], d)
		}
	}
	for _, k := range l.kinds {
		for as := held; as < uses; as++ {
			if k.counts[as] != counts[k][as] {
				t.Fatalf("%s counts %d slots as %d, want %d", k.name, k.counts[as], as, counts[k][as])
			}
		}
	}
	for _, s := range l.slices {
		unsound += s.unsound
	}
	if want := (totals{ignored, leftOut, unsound}); l.totals != want {
		t.Fatalf("the totals are %+v, want %+v", l.totals, want)
	}
	checkReports(t, l)
	for _, n := range l.nodes {
		if n.claims != claims[n] || n.claims == 0 && len(n.slices) == 0 && !n.known {
			t.Fatalf("node %s, known %v, with %d slices, counts %d claims, want %d", n.name, n.known, len(n.slices), n.claims, claims[n])
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
					g.nodes.names, g.slots, g.free, g.order.Len(), g.members, slots, free, listed, len(members[g]))
			}
			inGroups += g.free
			key := setKey{}
			for _, name := range g.nodes.names {
				n := l.nodes[name]
				key = setKey{key[0] ^ n.key[0], key[1] ^ n.key[1]}
				if at := k.byNode[name]; !slices.Contains(slices.Collect(at.groups), g) {
					t.Fatalf("node %s misses its group", name)
				}
			}
			if key != g.nodes.key || k.groups[key] != g || !slices.IsSorted(g.nodes.names) || len(members[g]) == 0 {
				t.Fatalf("the group of %v is not that of these nodes", g.nodes.names)
			}
		}
		for name, at := range k.byNode {
			var numbers []uint64
			for g := range at.groups {
				if !g.nodes.has(name) || k.groups[g.nodes.key] != g || (g == at.own) != (len(g.nodes.names) == 1) {
					t.Fatalf("node %s is in the group of %v", name, g.nodes.names)
				}
				if g != at.own {
					numbers = append(numbers, g.number)
				}
			}
			if !slices.IsSorted(numbers) || at.own == nil && numbers == nil {
				t.Fatalf("node %s is in the groups %v", name, numbers)
			}
		}
		if table := k.snapshot; table != nil {
			for place, name := range table.index.names {
				if got, want := table.reaches[place], k.byNode[name]; got.own != want.own || !slices.Equal(got.shared, want.shared) {
					t.Fatalf("node %s reaches %v, which is shown as %v", name, want, got)
				}
			}
		}
		if inGroups != k.free {
			t.Fatalf("%s counts %d free slots, want %d", k.name, k.free, inGroups)
		}
	}
}

// checkReports compares which nodes reach the devices with what the slices list.
func checkReports(t failer, l *Ledger) {
	t.Helper()
	listed, reporters := map[*report]int32{}, map[*device]map[string]bool{}
	for name, s := range l.slices {
		if s.name != name || l.nodes[s.node.name] != s.node || !slices.Contains(s.node.slices, s) {
			t.Fatalf("slice %s is not that of node %s", name, s.node.name)
		}
		for _, r := range s.reports {
			listed[r]++
			if r.device.accepted != r || l.refuses(s.node, r) != "" {
				continue
			}
			if reporters[r.device] == nil {
				reporters[r.device] = map[string]bool{}
			}
			reporters[r.device][s.node.name] = true
		}
	}
	for _, k := range l.kinds {
		if len(k.devices) == 0 && len(k.configurations) == 0 {
			t.Fatalf("kind %s is kept for nothing", k.name)
		}
		selected := map[string]bool{}
		for _, n := range l.nodes {
			if k.discovers() && n.selected(k.owner) {
				selected[n.name] = true
			}
		}
		if want := slices.Sorted(maps.Keys(selected)); !slices.Equal(k.selected.names, want) {
			t.Fatalf("of kind %s the nodes %v are selected, want %v", k.name, k.selected.names, want)
		}
		for d := range k.devices {
			if d.kind != k || l.devices[d.name] != d {
				t.Fatalf("kind %s has device %s, which is not there or of another", k.name, d.name)
			}
			want := slices.Sorted(maps.Keys(reporters[d]))
			if d.reporters != len(want) {
				t.Fatalf("%s is reported by %v, and the count is %d", d.name, want, d.reporters)
			}
			if k.discovers() && len(want) > 0 {
				want = k.selected.names
			}
			if !slices.Equal(d.nodes(), want) || (d.accepted != nil) != (len(want) > 0) {
				t.Fatalf("%s is reached by %v, want %v", d.name, d.nodes(), want)
			}
		}
	}
	for _, d := range l.devices {
		if d.kind != nil {
			if _, found := d.kind.devices[d]; !found || l.kinds[d.kind.name] != d.kind {
				t.Fatalf("%s is none of its kind's devices", d.name)
			}
		}
		for r := d.reports; r != nil; r = r.next {
			if r.device != d || r.slices != listed[r] || listed[r] == 0 {
				t.Fatalf("a report of %s is listed in %d slices, and the count is %d", d.name, listed[r], r.slices)
			}
			delete(listed, r)
			if r.shared || d.accepted == nil || !d.accepted.shared || d.reporters > 1 {
				continue
			}
			for _, s := range l.slices {
				if slices.Contains(s.reports, r) && l.refuses(s.node, r) == "" {
					t.Fatalf("%s is shared, as one node reports, although it is a local device of node %s", d.name, s.node.name)
				}
			}
		}
		for r := d.reports; r != nil && d.accepted == nil; r = r.next {
			for _, s := range l.slices {
				if slices.Contains(s.reports, r) && l.refuses(s.node, r) == "" {
					t.Fatalf("no node reaches %s, which %s reports", d.name, s.node.name)
				}
			}
		}
	}
	for r := range listed {
		t.Fatalf("%s does not know of a report", r.device.name)
	}
}
