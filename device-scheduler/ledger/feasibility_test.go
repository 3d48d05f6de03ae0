package ledger

import (
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/slot"
)

// feasibility prepares a request, for nodes of which some may not be on the snapshot.
func (w *world) feasibility(t *rapid.T) {
	if len(w.snapshots) < 2 {
		w.snapshots = append(w.snapshots, NewSnapshotIndex(rapid.Permutation(worldNodes).Draw(t, "index")[:rapid.IntRange(1, 3).Draw(t, "length")]))
	}
	pod := Pod{UID: "asking", Namespace: "ns", Name: "p", Priority: drawPriority(t)}
	if len(w.nominations) > 0 && rapid.Bool().Draw(t, "nominee") {
		pod = w.nominations[pickKey(t, w.nominations)].Pod
	}
	req := drawRequest(t, pod)
	index := rapid.SampledFrom(w.snapshots).Draw(t, "index")
	w.feasibilities = append(w.feasibilities, prepared{w.Feasibility(req, index), req, index})
	if len(w.feasibilities) > 5 {
		w.feasibilities = w.feasibilities[1:]
	}
}

type prepared struct {
	*Feasibility
	req   *Request
	index *SnapshotIndex
}

// checkFeasibility compares what feasibilities say, whatever has happened since they were
// made, with the ledger's own answers.
func (w *world) checkFeasibility(t *rapid.T) {
	for _, s := range w.feasibilities {
		for _, node := range worldNodes {
			a, fit := w.Draft(w.strategy, s.req.Pod).Fit(node, s.req)
			if scanned, shortfall := w.fullScan(s.req.Pod).Fit(node, s.req); !reflect.DeepEqual(a, scanned) || !reflect.DeepEqual(fit, shortfall) {
				t.Fatalf("on node %s %+v gets %v, %v, and %v, %v when all nominations are looked at", node, s.req, a, fit, scanned, shortfall)
			}
			input := w.Feasibility(s.req, nil).ScoreInput(node, NotInSnapshot)
			for _, place := range []int{NotInSnapshot, slices.Index(s.index.names, node)} {
				if shortfall, sure := s.Fits(node, place); sure && !reflect.DeepEqual(shortfall, fit) {
					t.Fatalf("of node %s at %d a feasibility of %+v says %+v, Fit says %+v", node, place, s.req, shortfall, fit)
				}
				if got := s.ScoreInput(node, place); got != input {
					t.Fatalf("of node %s at %d a feasibility of %+v says %+v, a new one says %+v", node, place, s.req, got, input)
				}
			}
		}
	}
}

// fullScan is the pod's draft, found from all nominations.
func (w *world) fullScan(pod Pod) *Draft {
	all := &Draft{ledger: w.Ledger, strategy: w.strategy, pod: pod, changed: map[*device]*change{}}
	for _, d := range w.devices {
		ch := &change{taken: slices.Clone(d.taken), nfree: d.nfree}
		all.changed[d] = ch
		for _, n := range w.nominations {
			for _, h := range n.holds {
				if h.slot.Instance == d.name && !d.isFree(h.slot.Index) && w.freeFor(pod, d, h.slot.Index) {
					ch.taken.clear(h.slot.Index)
					ch.nfree++
				}
			}
		}
	}
	return all
}

// TestFeasibilityAnswersForSimpleRequests: one resource of one container is what Filter
// is asked for most, and is answered without choosing slots.
func TestFeasibilityAnswersForSimpleRequests(t *testing.T) {
	l, nodes := fleet(3, 6, false)
	index := NewSnapshotIndex(nodes)
	for count, fits := range map[int]bool{1: true, 2: true, 3: false} {
		shortfall, sure := l.Feasibility(podFor(1, count), index).Fits(nodes[2], 2)
		if !sure || (shortfall == nil) != fits {
			t.Errorf("%d of 2 Instances: Fits() = %+v, %v, want it sure to say %v", count, shortfall, sure, fits)
		}
	}
	if _, sure := l.Feasibility(podFor(2, 1), index).Fits(nodes[2], 2); sure {
		t.Error("Fits() is sure of two containers, whose slots depend on each other")
	}
	l.Nominate(Pod{UID: "another", Namespace: "ns", Name: "another"}, nodes[2], Assignment{"c0": {
		{Resource: "cam", Slot: slot.Name{Instance: fleetInstance(2, nodes[2])}}, {Resource: "cam", Ordinal: 1, Slot: slot.Name{Instance: fleetInstance(2, nodes[2]), Index: 1}}}})
	for count, fits := range map[int]bool{1: true, 2: false} {
		shortfall, sure := l.Feasibility(podFor(1, count), index).Fits(nodes[2], 2)
		if !sure || (shortfall == nil) != fits {
			t.Errorf("%d of 2 Instances, one kept for another pod: Fits() = %+v, %v, want it sure to say %v", count, shortfall, sure, fits)
		}
	}
	table := func() **class { return &l.Feasibility(podFor(1, 1), index).parts[0].table.classes[0] }
	if first := table(); first != table() {
		t.Error("each feasibility over a known index looks at all its nodes again")
	}
}

// TestFeasibilityFollowsJoins: what nodes of the snapshot reach is not looked up anew for all of
// them when one joins or leaves. Surveys over an earlier index are right as well.
func TestFeasibilityFollowsJoins(t *testing.T) {
	l := New()
	l.SetConfiguration(configurationOf("cam", akriv0.ConfigurationSpec{}))
	snapshots := []*SnapshotIndex{NewSnapshotIndex([]string{"a", "b"}), NewSnapshotIndex([]string{"b", "a", "c"})}
	req := podFor(1, 1)
	share(l, "cam-1", "a")
	early, late := l.Feasibility(req, snapshots[0]), l.Feasibility(req, snapshots[1])
	table := &late.parts[0].table.classes[0]
	check := func(when string, reach ...string) {
		t.Helper()
		for i, s := range []*Feasibility{early, late, l.Feasibility(req, snapshots[1])} {
			index := snapshots[min(i, 1)]
			for place, node := range index.names {
				shortfall, sure := s.Fits(node, place)
				if want := slices.Contains(reach, node); !sure || (shortfall == nil) != want {
					t.Errorf("%s, feasibility %d of node %s: Fits() = %+v, %v, want it sure to say %v", when, i, node, shortfall, sure, want)
				}
			}
			if i == 2 && &s.parts[0].table.classes[0] != table {
				t.Errorf("%s, all nodes were looked up again", when)
			}
		}
	}
	check("at first", "a")
	share(l, "cam-1", "b", "c")
	check("b and c have joined", "a", "b", "c")
	l.DeleteSlice("a-cam-1")
	check("a has left", "b", "c")
	l.DeleteSlice("c-cam-1")
	check("b is left alone", "b")
	l.DeleteSlice("b-cam-1")
	check("all have left")
}

// TestFeasibilityDoesNotAllocate: Filter and Score ask a feasibility of hundreds of nodes for
// each pod, in clusters of any size.
func TestFeasibilityDoesNotAllocate(t *testing.T) {
	for _, instances := range []int{500, 50_000} {
		for _, shared := range []bool{false, true} {
			l, nodes := fleet(500, instances, shared)
			named := fleetInstance(0, "")
			if !shared {
				named = fleetInstance(0, nodes[0])
			}
			for name, req := range map[string]*Request{"any Instance": podFor(1, 1), "one by name": {Pod: Pod{UID: "p"}, Containers: []ContainerRequest{
				{Name: "c0", Resources: []ResourceRequest{{Name: named, Count: 1}}}}}} {
				feasibility := l.Feasibility(req, NewSnapshotIndex(nodes))
				for place, node := range map[int]string{0: nodes[0], NotInSnapshot: nodes[0]} {
					if shortfall, sure := feasibility.Fits(node, place); shortfall != nil || !sure {
						t.Fatalf("%d Instances, shared %v, %s: Fits() = %+v, %v, want a fit that is sure", instances, shared, name, shortfall, sure)
					}
					if n := testing.AllocsPerRun(100, func() { feasibility.Fits(node, place) }); n != 0 {
						t.Errorf("%d Instances, shared %v, %s: Fits allocates %v times", instances, shared, name, n)
					}
					if n := testing.AllocsPerRun(100, func() { feasibility.ScoreInput(node, place) }); n != 0 {
						t.Errorf("%d Instances, shared %v, %s: ScoreInput allocates %v times", instances, shared, name, n)
					}
				}
			}
			several := l.Feasibility(podFor(4, 2), NewSnapshotIndex(nodes))
			if n := testing.AllocsPerRun(100, func() { several.ScoreInput(nodes[1], 1) }); n != 0 {
				t.Errorf("%d Instances, shared %v: ScoreInput of several containers allocates %v times", instances, shared, n)
			}
		}
	}
}
