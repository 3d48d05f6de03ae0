package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/kubeslot/kubeslot/types/slot"
)

// failer is a *testing.T or a *rapid.T.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

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

// isFree reports whether slot i is available, and is not nominated for a pod.
func (d *device) isFree(i int) bool {
	return d.exists() && !d.withheld && i < d.capacity && !d.taken.has(i)
}

// holderUIDs are sorted: the order in which pods were seen differs after a restart.
func (s *slotState) holderUIDs() []string {
	var uids []string
	for _, p := range s.holders {
		uids = append(uids, p.UID)
	}
	slices.Sort(uids)
	return uids
}

// checkInvariants recomputes from scratch what the ledger keeps up to date.
func checkInvariants(t failer, l *Ledger) {
	t.Helper()
	terminating := maps.Clone(l.pods)
	maps.DeleteFunc(terminating, func(_ string, p *podRecord) bool { return !p.terminating })
	if !maps.Equal(terminating, l.terminating) {
		t.Fatalf("the pods that are being deleted are %v, want %v", l.terminating, terminating)
	}
	priorities := map[*configRecord]map[int32]int{}
	for _, conf := range l.configs {
		priorities[conf] = map[int32]int{}
	}
	for uid, p := range l.pods {
		for _, h := range p.holds {
			if conf := l.devices[h.slot.Instance].config; conf != nil {
				priorities[conf][p.Priority]++
			}
			if s := l.slot(h.slot); s == nil || !slices.Contains(s.holders, p) {
				t.Fatalf("pod %s holds %s, but the slot does not know", uid, h.slot)
			}
		}
	}
	for conf, want := range priorities {
		if !maps.Equal(conf.priorities, want) {
			t.Fatalf("%s counts pods' slots by priority as %v, want %v", conf.name, conf.priorities, want)
		}
	}
	for uid, n := range l.nominations {
		for _, h := range n.holds {
			d := l.devices[h.slot.Instance]
			if d == nil || d.at(h.slot.Index).nominee != n {
				t.Fatalf("%s is kept for pod %s, but the slot does not know", h.slot, uid)
			}
			if d.withheld && !n.bound || h.slot.Index >= d.capacity || !d.reachedBy(l.nodes[n.node]) {
				t.Fatalf("%s is kept for pod %s, which cannot have it: %d slots, reached by %v", h.slot, uid, d.capacity, d.nodes())
			}
			for _, p := range d.at(h.slot.Index).holders {
				if p.UID != uid && !p.terminating && p.Priority >= n.Priority {
					t.Fatalf("%s is kept for pod %s although %s, no less important, holds it", h.slot, uid, p.UID)
				}
			}
		}
	}
	all, counts, several := totals{}, map[*configRecord][uses]int{}, map[slot.Name]*slotState{}
	members, claims := map[*group][]*device{}, map[*nodeRecord]int{}
	for name, d := range l.devices {
		n, cl := 0, map[string]int{}
		if d.withheld != l.withholds(d) {
			t.Fatalf("%s is withheld: %v, want %v", name, d.withheld, l.withholds(d))
		}
		if !slices.IsSortedFunc(d.slots, func(a, b *slotState) int { return a.index - b.index }) || slices.ContainsFunc(d.slots, func(s *slotState) bool { return !s.inUse() }) {
			t.Fatalf("%s keeps %d slots", name, len(d.slots))
		}
		if d.config != nil && d.config.owner != nil {
			all.leftOut += int(d.notCounted())
		}
		if (d.usage == notInUse) != (len(d.slots) == 0) || len(notInUse.taken)+len(notInUse.clOnNode) > 0 {
			t.Fatalf("%s has the usage of a device that nobody uses: %+v", name, d.usage)
		}
		for i, s := range d.all {
			use := s.use()
			if use != s.counted || (use.as != unused && i < d.capacity) != d.taken.has(i) {
				t.Fatalf("%s-%d is counted as %v, want %v, and taken: %v", name, i, s.counted, use, d.taken.has(i))
			}
			if d.at(i) == s && s.access != d.access(s) {
				t.Fatalf("%s-%d is for pods of %+v, and was %+v when an event last said so", name, i, d.access(s), s.access)
			}
			if len(s.holders) > 1 {
				several[slot.Name{Instance: name, Index: i}] = s
			}
			if use.ignoredClaim {
				all.ignoredClaims++
			}
			if d.config != nil && use.as != unused {
				of := counts[d.config]
				of[use.as]++
				counts[d.config] = of
			}
			if c := s.claim; c != nil {
				claims[c.node]++
				capacity := 0
				if d.config != nil && d.config.owner != nil {
					capacity = d.config.owner.Spec.Slots()
				}
				if counts := i < capacity && (slices.Contains(d.nodes(), c.node.name) || l.keeps(c.node, d)); counts != c.counts {
					t.Fatalf("the claim of %s on %s-%d counts: %v, want %v", c.node.name, name, i, c.counts, counts)
				}
			}
			free := d.group != nil && !d.withheld && i < d.capacity && len(s.holders) == 0 &&
				s.claimed() == nil && s.nominee == nil
			if free != d.isFree(i) {
				t.Fatalf("%s-%d: free bit is %v, want %v", name, i, d.isFree(i), free)
			}
			if free {
				n++
			}
			if s.nominee != nil && l.nominations[s.nominee.UID] != s.nominee {
				t.Fatalf("%s-%d is kept for %s, which has no nomination", name, i, s.nominee.UID)
			}
			for _, p := range s.holders {
				if l.pods[p.UID] != p {
					t.Fatalf("%s-%d is held by %s, which is gone", name, i, p.UID)
				}
				for _, h := range p.holds {
					if h.cl && h.slot.Instance == name && h.slot.Index == i {
						cl[p.node]++
					}
				}
			}
		}
		if now := (offer{int32(d.supply().free), int32(d.supply().waiting)}); now != d.offered {
			t.Fatalf("%s offers %+v, and did %+v when an event last said so", name, now, d.offered)
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
	for _, s := range l.slices {
		all.unsound += s.unsound
	}
	if l.totals != all {
		t.Fatalf("the totals are %+v, want %+v", l.totals, all)
	}
	if !maps.Equal(l.doublyAllocated, several) {
		t.Fatalf("the slots that several pods hold are %v, want %v", l.doublyAllocated, several)
	}
	checkReports(t, l)
	given := map[int32]bool{0: true}
	for _, n := range l.nodes {
		if given[n.number] {
			t.Fatalf("node %s has number %d, which is another's", n.name, n.number)
		}
		given[n.number] = true
		if n.claims != claims[n] || n.claims == 0 && len(n.slices) == 0 && !n.known {
			t.Fatalf("node %s, known %v, with %d slices, counts %d claims, want %d", n.name, n.known, len(n.slices), n.claims, claims[n])
		}
	}
	for _, conf := range l.configs {
		for as := held; as < uses; as++ {
			if conf.counts[as] != counts[conf][as] {
				t.Fatalf("%s counts %d slots as %d, want %d", conf.name, conf.counts[as], as, counts[conf][as])
			}
		}
		checkIndex(t, l, conf, members)
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
			if r.kept && r.device.accepted == r {
				t.Fatalf("%s has the slots that nodes do not give", r.device.name)
			}
			if r.device.accepted != r || l.refuses(s.node, r) != nil {
				continue
			}
			if reporters[r.device] == nil {
				reporters[r.device] = map[string]bool{}
			}
			reporters[r.device][s.node.name] = true
		}
	}
	for _, conf := range l.configs {
		if len(conf.devices) == 0 && len(conf.configurations) == 0 {
			t.Fatalf("Configuration %s is kept for nothing", conf.name)
		}
		selected := map[string]bool{}
		for _, n := range l.nodes {
			if conf.discovers() && n.selected(conf.owner) {
				selected[n.name] = true
			}
		}
		for d := range conf.devices {
			if d.config != conf || l.devices[d.name] != d {
				t.Fatalf("Configuration %s has device %s, which is not there or of another", conf.name, d.name)
			}
			if d.kept != l.discoveredKept(d) {
				t.Fatalf("%s is kept by nodes that spec.discovery selects: %v, want %v", d.name, d.kept, !d.kept)
			}
			want := slices.Sorted(maps.Keys(reporters[d]))
			if int(d.reporters) != len(want) {
				t.Fatalf("%s is reported by %v, and the count is %d", d.name, want, d.reporters)
			}
			if conf.discovers() && len(want) > 0 {
				want = slices.Sorted(maps.Keys(selected))
			}
			if !slices.Equal(d.nodes(), want) || (d.accepted != nil) != (len(want) > 0) {
				t.Fatalf("%s is reached by %v, want %v", d.name, d.nodes(), want)
			}
		}
	}
	for _, d := range l.devices {
		if d.config != nil {
			if _, found := d.config.devices[d]; !found || l.configs[d.config.name] != d.config {
				t.Fatalf("%s is none of its Configuration's devices", d.name)
			}
		}
		for r := d.reports; r != nil; r = r.next {
			if r.device != d || int32(len(r.listed)) != listed[r] || listed[r] == 0 ||
				!slices.IsSortedFunc(r.listed, (*sliceRecord).compare) {
				t.Fatalf("a report of %s is listed in %d slices, and the count is %d", d.name, listed[r], len(r.listed))
			}
			delete(listed, r)
		}
	}
	for r := range listed {
		t.Fatalf("%s does not know of a report", r.device.name)
	}
}

func (w *world) checkDoubleAllocation(t *rapid.T, s slot.Name) {
	bound := slices.DeleteFunc(w.holders(s, w.pods), func(uid string) bool { return w.ending[uid] })
	claimed := func(uid string) int {
		if w.claimOn(s) == w.pods[uid].claimant() {
			return 0
		}
		return 1
	}
	slices.SortFunc(bound, func(a, b string) int {
		return cmp.Or(claimed(a)-claimed(b), cmp.Compare(w.pods[a].pod.Bound, w.pods[b].pod.Bound), cmp.Compare(a, b))
	})
	if len(bound) < 2 {
		bound = nil
	}
	var got []string // the winner, and the losers
	for _, d := range w.DoubleAllocations() {
		if d.Slot != s {
			continue
		}
		got = append(got, d.Winner.UID)
		for _, p := range d.Losers {
			got = append(got, p.UID)
		}
	}
	if !slices.Equal(got, bound) {
		t.Fatalf("of %s the winner and the losers are %v, want %v", s, got, bound)
	}
}

// checkAssumed checks that an assumed pod may be bound, unless it has lost a slot or
// somebody else is bound with it or has claimed it.
func (w *world) checkAssumed(t *rapid.T) {
	for uid, p := range w.assumed {
		reason := ""
		for s := range p.slots() {
			in, claim := w.expected[s.Instance], w.claimOn(s)
			switch {
			case in == nil || s.Index >= in.capacity || !slices.Contains(in.nodes, p.node):
				reason = fmt.Sprintf("%s is lost", s)
			case claim != "" && claim != p.claimant():
				reason = fmt.Sprintf("%s is claimed %s", s, claim)
			case len(w.holders(s, w.pods)) > 0:
				reason = fmt.Sprintf("%s is bound to another pod", s)
			}
		}
		if err := w.Check(uid); (err != nil) != (reason != "") {
			t.Fatalf("pod %s, which is assumed: Check() = %v, want reason %q", uid, err, reason)
		}
	}
}
