package ledger

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/slot"
)

// checkView compares what a view of some nodes says with the ledger's own answers. The lists stay, and one of
// them is in another order, or lacks nodes.
func (w *world) checkView(t *rapid.T) {
	if len(w.lists) < 2 {
		names := append(worldNodes, "nobody knows")
		w.lists = append(w.lists, NewNodeList(rapid.Permutation(names).Draw(t,
			"list")[:rapid.IntRange(1, 4).Draw(t, "length")]))
	}
	pod := Pod{UID: "asking", Namespace: "ns", Name: "p", Priority: drawPriority(t)}
	if len(w.nominations) > 0 && rapid.Bool().Draw(t, "nominee") {
		pod = w.nominations[pickKey(t, w.nominations)].Pod
	}
	req := drawRequest(t, pod)
	for _, list := range w.lists {
		view := w.View(req, list)
		for place, node := range list.names {
			a, fit := w.Draft(w.strategy, pod).Fit(node, req)
			if scanned, shortfall := w.fullScan(pod).Fit(node, req); !reflect.DeepEqual(a, scanned) ||
				!reflect.DeepEqual(fit, shortfall) {
				t.Fatalf("on node %s %+v gets %v, %v, and %v, %v when all nominations are looked at", node, req, a, fit,
					scanned, shortfall)
			}
			view.Look(place)
			shortfall, sure := view.At(place)
			if sure && !reflect.DeepEqual(shortfall, fit) {
				t.Fatalf("of node %s a view of %+v says %+v, Fit says %+v", node, req, shortfall, fit)
			}
			if !sure && w.simple(req) {
				t.Fatalf("of node %s a view of %+v says nothing", node, req)
			}
			// The parts are added up in another order.
			if got, want := view.ScoreInputs([]int{place})[0],
				w.scoreInput(req, node); math.Abs(got.Free-want.Free)+math.Abs(got.Local-want.Local) > 1e-9 {
				t.Fatalf("the score of node %s for %+v is of %+v, want %+v", node, req, got, want)
			}
		}
	}
}

// scoreInput looks at each device.
func (w *world) scoreInput(req *Request, node string) (in ScoreInput) {
	parts := 0.0
	for _, c := range req.Containers {
		for _, r := range c.Resources {
			conf, named := w.resource(r.Name)
			if conf == nil {
				return ScoreInput{}
			}
			parts++
			slots, free, local := 0, 0, 0
			for d := range conf.devices {
				nodes := d.nodes()
				if named != nil && named != d || !slices.Contains(nodes, node) {
					continue
				}
				slots, free = slots+d.capacity, free+d.nfree
				if len(nodes) == 1 {
					local += d.nfree
				}
			}
			if slots > 0 {
				in.Free += float64(free) / float64(slots)
				in.Local += min(1, float64(local)/float64(r.Count))
			}
		}
	}
	return ScoreInput{Free: in.Free / max(1, parts), Local: in.Local / max(1, parts)}
}

// simple reports whether a request is to be answered without choosing slots: Filter is asked most for one
// resource of one container, or for several that do not compete.
func (w *world) simple(req *Request) bool {
	var asked []*configRecord
	for _, c := range req.Containers {
		for _, r := range c.Resources {
			conf, d := w.resource(r.Name)
			if conf == nil || slices.Contains(asked, conf) || d == nil &&
				conf.unique() == akriv0.UniquePerNode { // then the node's other pods matter
				return false
			}
			asked = append(asked, conf)
		}
	}
	return len(asked) > 0
}

// fullScan is the pod's draft, found from all nominations.
func (w *world) fullScan(pod Pod) *Draft {
	all := &Draft{ledger: w.Ledger, strategy: w.strategy, pod: pod, changed: map[*device]*change{}}
	for _, d := range w.devices {
		ch := &change{taken: slices.Clone(d.taken), nfree: d.nfree}
		all.changed[d] = ch
		for _, n := range w.nominations {
			for _, h := range n.holds {
				if h.slot.Instance == d.name && !d.isFree(h.slot.Index) && d.freeFor(pod, h.slot.Index) {
					ch.taken.clear(h.slot.Index)
					ch.nfree++
				}
			}
		}
	}
	return all
}

// TestLocalAmongMany: the devices that a node alone reaches are found, however many it shares
// with others, each with another one.
func TestLocalAmongMany(t *testing.T) {
	l := ledgerOf(akriv0.ConfigurationSpec{})
	share(l, "cam-0", "a")
	share(l, "cam-9", "a")
	for i := range 8 {
		neighbour := fmt.Sprint("b", i)
		share(l, fmt.Sprint("cam-", i+1), "a", neighbour)
		for node, local := range map[string]float64{"a": 1, neighbour: 0} {
			got, want := l.View(podFor(1, 2), NewNodeList([]string{node})).ScoreInputs([]int{0})[0],
				ScoreInput{Free: 1, Local: local}
			if got != want {
				t.Errorf("node %s shares %d devices: %+v, want %+v", node, i+1, got, want)
			}
		}
	}
}

// TestViewAnswers: a view of requests that do not compete has the answer for each node, also while slots are
// nominated for others, and to ask it allocates nothing.
func TestViewAnswers(t *testing.T) {
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
			list := NewNodeList(nodes)
			tooMany := podFor(1, 1+l.configs["cam"].classOf(l.nodes[nodes[0]]).offers)
			if shortfall, sure := looked(l.View(tooMany, list)).At(0); shortfall == nil || !sure {
				t.Errorf("%d Instances, shared %v, and one more asked for: At() = %+v, %v", instances, shared,
					shortfall, sure)
			}
			for name, req := range map[string]*Request{"any Instance": podFor(1, 1), "one by name": named,
				"several containers": podFor(4, 2)} {
				view := looked(l.View(req, list))
				if shortfall, sure := view.At(0); shortfall != nil || sure != (len(req.Containers) == 1) {
					t.Fatalf("%d Instances, shared %v, %s: At() = %+v, %v", instances, shared, name, shortfall, sure)
				}
				if n := testing.AllocsPerRun(100, func() { view.At(0) }); n != 0 {
					t.Errorf("%d Instances, shared %v, %s: At allocates %v times", instances, shared, name, n)
				}
			}
		}
	}
}

// looked has looked at all nodes.
func looked(v *View) *View {
	for place := 0; place < len(v.numbers); place += pageSize {
		v.Look(place)
	}
	return v
}

// TestViewOfANomineeElsewhere: slots of a device that are kept for the pod are not there on nodes that do not
// reach the device.
func TestViewOfANomineeElsewhere(t *testing.T) {
	l, nodes := fleet(2, 2, false)
	req := podFor(1, 1)
	req.Containers[0].Resources[0].Name = fleetInstance(0, nodes[0])
	l.Nominate(req.Pod, nodes[0], Assignment{"c0": {{Resource: req.Containers[0].Resources[0].Name,
		Slot: slot.Name{Instance: fleetInstance(0, nodes[0])}}}})
	view := looked(l.View(req, NewNodeList(nodes)))
	if shortfall, sure := view.At(0); !sure || shortfall != nil {
		t.Errorf("on the node of the device: %+v, %v", shortfall, sure)
	}
	if shortfall, sure := view.At(1); !sure || shortfall == nil || shortfall.Reason != NotReachable {
		t.Errorf("on another node: %+v, %v", shortfall, sure)
	}
}

// TestViewOfOneByNameAfterAChange: a view looks at nodes while others change what they reach. A node that gets
// another device reaches the one that is asked for all the same, and no event would have the pod tried again.
func TestViewOfOneByNameAfterAChange(t *testing.T) {
	l := ledgerOf(akriv0.ConfigurationSpec{})
	share(l, "cam-1", "a", "b", "c")
	req := podFor(1, 1)
	req.Containers[0].Resources[0].Name = full("cam-1")
	view := l.View(req, NewNodeList([]string{"a", "b", "c"}))
	share(l, "cam-2", "a")
	share(l, "cam-3", "b", "c")
	looked(view)
	for place, node := range []string{"a", "b", "c"} {
		if shortfall, sure := view.At(place); shortfall != nil || !sure {
			t.Errorf("node %s: %+v, %v, want a free slot", node, shortfall, sure)
		}
	}
}

// TestViewAtTheSameTime: the framework asks about many nodes at once.
func TestViewAtTheSameTime(t *testing.T) {
	l, nodes := fleet(1_000, 1_000, false)
	view := l.View(podFor(1, 2), NewNodeList(nodes))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for place := range nodes {
				if !view.Looked(place) {
					view.Look(place)
				}
				if shortfall, sure := view.At(place); !sure || shortfall == nil || shortfall.Needed != 2 {
					t.Errorf("node %d: %+v, %v", place, shortfall, sure)
				}
			}
		})
	}
	all.Wait()
}
