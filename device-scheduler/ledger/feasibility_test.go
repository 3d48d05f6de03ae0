package ledger

import (
	"fmt"
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
				shortfall, sure := s.Fits(node, place)
				if sure && !reflect.DeepEqual(shortfall, fit) {
					t.Fatalf("of node %s at %d a feasibility of %+v says %+v, Fit says %+v", node, place, s.req, shortfall, fit)
				}
				if !sure && w.simple(s.req) {
					t.Fatalf("of node %s at %d a feasibility of %+v says nothing", node, place, s.req)
				}
				if got := s.ScoreInput(node, place); got != input {
					t.Fatalf("of node %s at %d a feasibility of %+v says %+v, a new one says %+v", node, place, s.req, got, input)
				}
			}
		}
	}
}

// simple reports whether a request is to be answered without choosing slots: Filter is asked
// most for one resource of one container.
func (w *world) simple(req *Request) bool {
	if len(req.Containers) != 1 || len(req.Containers[0].Resources) != 1 {
		return false
	}
	conf, d := w.resource(req.Containers[0].Resources[0].Name)
	return d != nil || conf != nil && conf.unique() != akriv0.UniquePerNode // then the node's other pods matter
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

// TestFeasibilityFollowsJoins: what nodes of the snapshot reach is not looked up anew for all of
// them when a node joins or leaves, nor for the next pod.
func TestFeasibilityFollowsJoins(t *testing.T) {
	l, nodes := fleet(3, 6, false)
	index := NewSnapshotIndex(nodes)
	table := func() **class { return &l.Feasibility(podFor(1, 1), index).parts[0].table.classes[0] }
	first := table()
	l.SetSlice(sliceOf("another", nodes[1], fleetDevice(7, "", true)))
	l.DeleteSlice("another")
	if first != table() {
		t.Error("all nodes were looked up again")
	}
}

// TestLocalAmongMany: the devices that a node alone reaches are found, however many it shares
// with others, each with another one.
func TestLocalAmongMany(t *testing.T) {
	l := ledgerOf(akriv0.ConfigurationSpec{})
	share(l, "cam-0", "a")
	share(l, "cam-9", "a")
	for i := range 2 * fewGroups {
		neighbour := fmt.Sprint("b", i)
		share(l, fmt.Sprint("cam-", i+1), "a", neighbour)
		for node, local := range map[string]float64{"a": 1, neighbour: 0} {
			got, want := l.Feasibility(podFor(1, 2), nil).ScoreInput(node, NotInSnapshot), ScoreInput{Free: 1, Local: local}
			if got != want {
				t.Errorf("node %s shares %d devices: %+v, want %+v", node, i+1, got, want)
			}
		}
	}
}

// TestFeasibilityDoesNotAllocate: requests of one resource are answered from counts, also while
// slots are nominated for others. Filter and Score ask a feasibility of hundreds of nodes for
// each pod, in clusters of any size.
func TestFeasibilityDoesNotAllocate(t *testing.T) {
	for _, instances := range []int{500, 50_000} {
		for _, shared := range []bool{false, true} {
			l, nodes := fleet(500, instances, shared)
			named, of := podFor(1, 1), nodes[0]
			if shared {
				of = ""
			}
			named.Containers[0].Resources[0].Name = fleetInstance(0, of)
			another := Assignment{"c0": {{Resource: "cam", Slot: slot.Name{Instance: fleetInstance(0, of)}}}}
			l.Nominate(Pod{UID: "another", Namespace: "ns", Name: "another"}, nodes[0], another)
			tooMany := podFor(1, 1+l.configs["cam"].classOf(nodes[0]).offers)
			if shortfall, sure := l.Feasibility(tooMany, nil).Fits(nodes[0], NotInSnapshot); shortfall == nil || !sure {
				t.Errorf("%d Instances, shared %v, and one more asked for: Fits() = %+v, %v", instances, shared, shortfall, sure)
			}
			for name, req := range map[string]*Request{"any Instance": podFor(1, 1), "one by name": named, "several containers": podFor(4, 2)} {
				feasibility := l.Feasibility(req, NewSnapshotIndex(nodes))
				for _, place := range []int{0, NotInSnapshot} {
					if shortfall, sure := feasibility.Fits(nodes[0], place); shortfall != nil || sure != (len(req.Containers) == 1) {
						t.Fatalf("%d Instances, shared %v, %s: Fits() = %+v, %v", instances, shared, name, shortfall, sure)
					}
					if n := testing.AllocsPerRun(100, func() { feasibility.Fits(nodes[0], place); feasibility.ScoreInput(nodes[0], place) }); n != 0 {
						t.Errorf("%d Instances, shared %v, %s: Fits and ScoreInput allocate %v times", instances, shared, name, n)
					}
				}
			}
		}
	}
}
