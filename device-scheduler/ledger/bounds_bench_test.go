package ledger

import (
	"fmt"
	"math/rand/v2"
	"testing"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// BenchmarkJoinOneByOne has nodes discover 20 shared Instances one after the other, so that
// the sets of nodes that reach them differ while nodes join: one node after the other, all at
// the same time in the same order, and each in an order of its own.
func BenchmarkJoinOneByOne(b *testing.B) {
	for _, how := range []string{"in turn", "together", "in any order"} {
		for _, nodes := range []int{1_000, 2_000, 4_000} {
			b.Run(fmt.Sprintf("%s/nodes=%d", how, nodes), func(b *testing.B) {
				for b.Loop() {
					all := crowd(nodes, 20)
					found := make([]int, nodes)
					random := rand.New(rand.NewPCG(1, uint64(nodes)))
					l := ledgerOf(akriv0.ConfigurationSpec{InstanceNameDigits: slot.LongHash})
					for i := range 20 * nodes {
						at := i / 20
						if how != "in turn" {
							at = random.IntN(nodes)
							for found[at] == 20 {
								at = (at + 1) % nodes
							}
						}
						s := *all[at]
						if found[at] == 0 && how == "in any order" {
							random.Shuffle(20, func(i, j int) { d := s.Spec.Devices; d[i], d[j] = d[j], d[i] })
						}
						found[at]++
						s.Spec.Devices = s.Spec.Devices[:found[at]]
						l.SetSlice(&s)
					}
				}
			})
		}
	}
}

// BenchmarkIrregularReach filters all of 1000 nodes for a pod that no node can serve. Each
// node reaches as many different sets of Instances, of 400.
func BenchmarkIrregularReach(b *testing.B) {
	for _, sets := range []int{1, 50, 200} {
		b.Run(fmt.Sprintf("sets=%d", sets), func(b *testing.B) {
			l, nodes := irregular(1_000, 400, sets)
			req := podFor(1, sets+1)
			list := NewNodeList(nodes)
			b.ReportAllocs()
			for b.Loop() {
				view := looked(l.View(req, list))
				for at := range nodes {
					if short, sure := view.At(at); !sure || short == nil {
						b.Fatal("it fits")
					}
				}
			}
		})
	}
}

// irregular is a cluster in which each node reaches some of the Instances, and nearly no
// two Instances are reached by the same nodes.
func irregular(nodes, instances, reached int) (*Ledger, []string) {
	l := ledgerOf(akriv0.ConfigurationSpec{InstanceNameDigits: slot.LongHash})
	names := fleetNodes(nodes)
	for n, node := range names {
		var devices []v1alpha1.Device
		for i := range reached {
			devices = append(devices, fleetDevice((n*7+i*(1+n%3))%instances, "", true))
		}
		l.SetSlice(sliceOf(node+"-0", node, devices...))
	}
	return l, names
}

// BenchmarkNominations filters all of 1000 nodes for a pod that none can serve, while slots of
// their own, or of shared Instances, are kept for so many others, of lower priority or not.
func BenchmarkNominations(b *testing.B) {
	for _, shared := range []bool{false, true} {
		for _, nominations := range []int{0, 100, 1_000} {
			l, nodes := fleet(1_000, 1_000, shared)
			for i := range nominations {
				node := ""
				if !shared {
					node = nodes[i]
				}
				uid := fmt.Sprint("vip-", i)
				l.Nominate(Pod{UID: uid, Namespace: "ns", Name: uid, Priority: int32(i % 2)}, nodes[i], Assignment{"c0": {
					{Resource: "cam", Slot: slot.Name{Instance: fleetInstance(i, node)}}}})
			}
			req := podFor(1, 1_001)
			req.Priority = 1
			list := NewNodeList(nodes)
			b.Run(fmt.Sprintf("shared=%v/nominations=%d", shared, nominations), func(b *testing.B) {
				for b.Loop() {
					view := looked(l.View(req, list))
					for at, node := range nodes {
						if short, sure := view.At(at); sure && short == nil {
							b.Fatal("it fits")
						} else if !sure {
							l.Draft(Spread, req.Pod).Fit(node, req)
						}
					}
				}
			})
		}
	}
}

// BenchmarkSlotCounts is a scrape of the metrics, whatever is held.
func BenchmarkSlotCounts(b *testing.B) {
	for _, instances := range []int{500, 5_000, 50_000} {
		l, nodes := fleet(500, instances, false)
		for i := range instances {
			l.SetClaim(claimOf(slot.Name{Instance: fleetInstance(i, nodes[i%len(nodes)])}, nodes[i%len(nodes)], "somebody"))
		}
		b.Run(fmt.Sprintf("instances=%d", instances), func(b *testing.B) {
			for b.Loop() {
				if c := l.SlotCounts(); c[0].Claimed != instances || c[0].Free != instances {
					b.Fatalf("%+v", c)
				}
				l.Ignored()
			}
		})
	}
}

// BenchmarkNomineeOfManySlots has a pod give back all slots of a device but one, which are nominated for a pod
// that needs the last one, too.
func BenchmarkNomineeOfManySlots(b *testing.B) {
	for _, slots := range []int{100, 1_000} {
		l := ledgerOf(akriv0.ConfigurationSpec{Capacity: int32(slots), UniqueDevices: new(false)})
		share(l, "cam-1", "a")
		grants := make([]assignment.Grant, slots)
		for i := range grants {
			grants[i] = assignment.Grant{Resource: "cam", Slot: slot.Name{Instance: full("cam-1"), Index: i}}
		}
		most, last := Assignment{"main": grants[:slots-1]}, Assignment{"main": grants[slots-1:]}
		l.Observe(Pod{UID: "last"}, "a", last)
		b.Run(fmt.Sprintf("slots=%d", slots), func(b *testing.B) {
			for b.Loop() {
				l.Observe(Pod{UID: "most"}, "a", most)
				l.Nominate(Pod{UID: "vip", Priority: 1}, "a", Assignment{"main": grants})
				for _, name := range l.Remove("most").Freed {
					if ready := l.ReadyFor(name); len(ready) > 0 {
						b.Fatalf("%v could be bound", ready)
					}
				}
			}
		})
	}
}

// BenchmarkPreemptWhileOthersEnd looks for the victims on 100 nodes, one after the other, while each node has
// pods that are being deleted. Each node reaches its own devices.
func BenchmarkPreemptWhileOthersEnd(b *testing.B) {
	for _, ending := range []int{5_000, 50_000} {
		l, nodes := fleet(5_000, 50_000, false)
		for i := range ending {
			node := nodes[i%len(nodes)]
			uid := fmt.Sprint("p", i)
			l.Observe(Pod{UID: uid, Namespace: "ns", Name: uid}, node, Assignment{"main": {
				{Resource: "cam", Slot: slot.Name{Instance: fleetInstance(i, node)}}}})
			l.SetTerminating(uid)
		}
		req := podFor(1, 11)
		b.Run(fmt.Sprintf("ending=%d", ending), func(b *testing.B) {
			for b.Loop() {
				h := l.PotentialVictims(req)
				for _, node := range nodes[:100] {
					h.Preempt(Spread, node, nil)
				}
			}
		})
	}
}

// BenchmarkManyContainers has a pod with as many containers as may request a slot each: which nodes reach what
// it requests, and which might serve it once others are gone.
func BenchmarkManyContainers(b *testing.B) {
	l, nodes := fleet(5_000, 50_000, false)
	req := podFor(1_000, 1)
	for b.Loop() {
		if _, short := l.Reach(req, 2_500); short != nil {
			b.Fatal(short)
		}
		if possible := l.PotentialVictims(req).Nodes(nodes); len(possible) > 0 {
			b.Fatal(possible)
		}
	}
}

// hoard is a ledger with one node that reaches so many devices.
func hoard(devices int, spec akriv0.ConfigurationSpec) *Ledger {
	spec.InstanceNameDigits = slot.LongHash
	l := ledgerOf(spec)
	for i := range devices {
		l.SetSlice(sliceOf(fmt.Sprint("a-", i), "a", fleetDevice(i, "", true)))
	}
	return l
}

// inTurn is a pod whose containers ask for so many slots each, by their roles.
func inTurn(slots int, roles ...Role) *Request {
	req := &Request{Pod: Pod{UID: "p", Priority: 1}}
	for i, role := range roles {
		req.Containers = append(req.Containers, ContainerRequest{Name: fmt.Sprint("c", i), Role: role,
			Resources: []ResourceRequest{{Name: "cam", Count: slots}}})
	}
	return req
}

// BenchmarkAsManySlotsAsMayBe has pods with as many slots as one may request, of which containers use some in turn.
func BenchmarkAsManySlotsAsMayBe(b *testing.B) {
	one := akriv0.ConfigurationSpec{Capacity: 10_000, UniqueDevices: new(false)}
	many := make([]Role, 1000)
	mixed := make([]Role, 1000)
	for i := range mixed {
		mixed[i] = []Role{Sidecar, Init}[i%2]
	}
	for name, test := range map[string]struct {
		devices int
		spec    akriv0.ConfigurationSpec
		req     *Request
	}{
		"of one device":            {1, one, inTurn(500, Init, App)},
		"1000 containers":          {1, one, inTurn(1, many...)},
		"1000 containers, in turn": {1, one, inTurn(1, mixed...)},
		"of 1000 devices":          {1000, akriv0.ConfigurationSpec{Capacity: 10}, inTurn(500, Init, App)},
		"of 1000 devices, in turn": {1000, akriv0.ConfigurationSpec{Capacity: 10}, inTurn(1, mixed...)},
	} {
		l := hoard(test.devices, test.spec)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, short := l.Draft(Spread, test.req.Pod).Fit("a", test.req); short != nil {
					b.Fatal(short)
				}
			}
		})
	}
}

// needsAll has a pod of which each of the slots that it requests is held by another pod.
func needsAll(pods int) (*PotentialVictims, []Victim) {
	l := hoard(pods, akriv0.ConfigurationSpec{})
	for i := range pods {
		uid := fmt.Sprint("p", i)
		l.Observe(Pod{UID: uid, Namespace: "ns", Name: uid}, "a", Assignment{"main": {{Resource: "cam",
			Slot: slot.Name{Instance: fleetInstance(i, "")}}}})
	}
	h := l.PotentialVictims(inTurn(pods, App))
	return h, h.On("a")
}

// BenchmarkPreemptAll has a pod preempt as many others as it needs slots.
func BenchmarkPreemptAll(b *testing.B) {
	for _, pods := range []int{10, 100, 1_000} {
		h, candidates := needsAll(pods)
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			for b.Loop() {
				if p := h.Preempt(Spread, "a", candidates); p == nil || len(p.Victims) != pods {
					b.Fatalf("%+v", p)
				}
			}
		})
	}
}
