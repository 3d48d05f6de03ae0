package ledger

import (
	"fmt"
	"math"
	"runtime"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// TestArbitraryObjects: whatever a node or a user writes into an object, the ledger takes
// it, its counts are right, and nothing is left of objects that are deleted.
func TestArbitraryObjects(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom([]string{"", "a", "b", "cam", "cam-1", "-", "--", "a-b", "-1", "\x00", "é", "cam-3100a1", "3100a1", "000000000000"})
		name := rapid.Custom(func(t *rapid.T) string {
			if rapid.Bool().Draw(t, "slot") {
				return fmt.Sprint(full("cam-1"), "-", rapid.SampledFrom([]string{"0", "00", "9999", "10000", "-1", "", "x", "18446744073709551616"}).Draw(t, "index"))
			}
			return text.Draw(t, "name")
		})
		l := New()
		t.Repeat(map[string]func(*rapid.T){
			"configuration": func(t *rapid.T) {
				c := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: text.Draw(t, "namespace"), Name: text.Draw(t, "name")}}
				c.Spec.Capacity = rapid.SampledFrom([]int32{-1, 0, 1, 3, 10_000}).Draw(t, "capacity")
				c.Spec.InstanceNameDigits = rapid.SampledFrom([]int32{-1, 0, 6, 7, 12}).Draw(t, "digits")
				c.Spec.UniqueScope = akriv0.UniqueScope(text.Draw(t, "scope"))
				if rapid.Bool().Draw(t, "discovery") {
					c.Spec.Discovery = &akriv0.Discovery{NodeSelector: rapid.MapOfN(text, text, 0, 1).Draw(t, "selector")}
				}
				l.SetConfiguration(c)
			},
			"delete configuration": func(t *rapid.T) { l.DeleteConfiguration(text.Draw(t, "namespace"), text.Draw(t, "name")) },
			"slice": func(t *rapid.T) {
				s := sliceOf(name.Draw(t, "slice"), text.Draw(t, "node"))
				for range rapid.IntRange(0, 3).Draw(t, "devices") {
					d := v1alpha1.Device{ID: text.Draw(t, "id"), Shared: rapid.Bool().Draw(t, "shared"), Hash: text.Draw(t, "hash")}
					d.Configuration = v1alpha1.ConfigurationReference{Namespace: text.Draw(t, "namespace"), Name: text.Draw(t, "configuration")}
					if digits := rapid.SampledFrom([]int{0, slot.ShortHash, slot.LongHash}).Draw(t, "sound"); digits > 0 {
						d.Hash = slot.InstanceHash(d.ID, d.Shared, s.Spec.NodeName, digits)
					}
					s.Spec.Devices = append(s.Spec.Devices, d)
				}
				l.SetSlice(s)
			},
			"delete slice": func(t *rapid.T) { l.DeleteSlice(name.Draw(t, "slice")) },
			"claim": func(t *rapid.T) {
				c := &v1alpha1.SlotClaim{ObjectMeta: metav1.ObjectMeta{Name: name.Draw(t, "claim"), UID: types.UID(text.Draw(t, "uid"))}}
				c.Spec = v1alpha1.SlotClaimSpec{NodeName: text.Draw(t, "node"), Holder: text.Draw(t, "holder"), Level: v1alpha1.Level(text.Draw(t, "level"))}
				l.SetClaim(c)
			},
			"pod": func(t *rapid.T) {
				a := Assignment{}
				for range rapid.IntRange(0, 3).Draw(t, "slots") {
					a["main"] = append(a["main"], assignment.Grant{Resource: text.Draw(t, "resource"), Slot: slot.Name{
						Instance: text.Draw(t, "of"), Index: rapid.SampledFrom([]int{0, 1, 9_999}).Draw(t, "index")}})
				}
				priority := rapid.SampledFrom([]int32{math.MinInt32, 0, math.MaxInt32}).Draw(t, "priority")
				l.Observe(Pod{UID: text.Draw(t, "uid"), Priority: priority}, text.Draw(t, "node"), a)
			},
			"end pod":    func(t *rapid.T) { l.SetTerminating(text.Draw(t, "uid")) },
			"delete pod": func(t *rapid.T) { l.Remove(text.Draw(t, "uid")) },
			"dra": func(t *rapid.T) {
				l.SetDRA(text.Draw(t, "uid"), rapid.SliceOfN(text, 0, 2).Draw(t, "instances"))
			},
			"delete claim": func(t *rapid.T) { l.DeleteClaim(name.Draw(t, "claim")) },
			"node": func(t *rapid.T) {
				l.SetNode(text.Draw(t, "node"), rapid.MapOfN(text, text, 0, 2).Draw(t, "labels"))
			},
			"delete node": func(t *rapid.T) { l.DeleteNode(text.Draw(t, "node")) },
			"": func(t *rapid.T) {
				checkInvariants(t, l)
				node := text.Draw(t, "on")
				req := &Request{Pod: Pod{UID: "p"}, Containers: []ContainerRequest{{Resources: []ResourceRequest{{Name: text.Draw(t, "resource"), Count: 1}}}}}
				l.Draft(Spread, req.Pod).Fit(node, req)
				view := looked(l.View(req, NewNodeList([]string{node})))
				view.At(0)
				view.ScoreInputs([]int{0})
				h := l.PotentialVictims(req)
				for _, node := range h.Nodes([]string{node}) {
					h.Preempt(Pack, node, h.On(node))
				}
				l.DoubleAllocations()
				l.Handovers()
				l.SlotCounts()
				l.Ignored()
			},
		})
		for _, name := range names(l.EachSlice) {
			l.DeleteSlice(name)
		}
		for _, name := range names(l.EachClaim) {
			l.DeleteClaim(name)
		}
		for uid := range l.pods {
			l.Remove(uid)
		}
		for uid := range l.dra.objects {
			l.SetDRA(uid, nil)
		}
		for name := range l.nodes {
			l.DeleteNode(name)
		}
		for _, k := range l.configs {
			for namespace := range k.configurations {
				l.DeleteConfiguration(namespace, k.name)
			}
		}
		if left := len(l.slices) + len(l.nodes) + len(l.devices) + len(l.configs) +
			len(l.dra.instances); left > 0 {
			t.Fatalf("%d things are left of objects that are deleted", left)
		}
	})
}

// Two nodes have a local device of one id, and the hashes of both are equal: they are two
// devices all the same.
func TestLocalDevicesOfOneIDAreTwo(t *testing.T) {
	l := ledgerOf(akriv0.ConfigurationSpec{})
	d := v1alpha1.Device{Configuration: v1alpha1.ConfigurationReference{Namespace: "ns", Name: "cam"}, ID: "same.8587134", Hash: "26c7d3"}
	for _, node := range []string{"b", "c"} {
		_, errs := l.SetSlice(sliceOf(node+"-0", node, d))
		if refused := len(errs) > 0; refused != (node == "c") {
			t.Errorf("of node %s the device is left out: %v", node, errs)
		}
	}
	for _, want := range []string{"b", "c"} {
		if got := l.devices[d.Instance()].nodes(); len(got) != 1 || got[0] != want {
			t.Errorf("%v reach the device, want %s", got, want)
		}
		l.DeleteSlice(want + "-0")
	}
}

// A name of a slot with a large number, in an assignment or a claim, takes no more memory than
// another. Whoever can write one could else take gigabytes with few objects, and the scheduler would
// die of them after each restart.
func TestNamesOfFarSlotsTakeLittleMemory(t *testing.T) {
	const names, most = 20_000, 2 << 10 // bytes a name
	far := func(i int) slot.Name { return slot.Name{Instance: fmt.Sprintf("cam-%06x", i), Index: 9_999} }
	for name, enter := range map[string]func(*Ledger){
		"assignment": func(l *Ledger) {
			a := Assignment{}
			for i := range names {
				a["main"] = append(a["main"], assignment.Grant{Resource: "cam", Ordinal: i, Slot: far(i)})
			}
			l.Observe(Pod{UID: "p"}, "a", a)
		},
		"claims": func(l *Ledger) {
			for i := range names {
				l.SetClaim(claimOf(far(i), "a", "00000000-0000-0000-0000-000000000000"))
			}
		},
		"claims beyond the capacity": func(l *Ledger) {
			l.SetConfiguration(configurationOf("cam", akriv0.ConfigurationSpec{InstanceNameDigits: slot.LongHash}))
			for i := range names {
				d := fleetDevice(i, "", true)
				l.SetSlice(sliceOf(fmt.Sprint("a-", i), "a", d))
				l.SetClaim(claimOf(slot.Name{Instance: d.Instance(), Index: 9_999}, "a", "00000000-0000-0000-0000-000000000000"))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			before, l := heap(), New()
			enter(l)
			if took := (heap() - before) / names; took > most {
				t.Errorf("a name takes %d bytes, want at most %d", took, most)
			}
			if known := len(l.devices); known != names {
				t.Errorf("%d Instances are known, want %d", known, names)
			}
		})
	}
}

// heap is how many bytes of it are in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Capacity is one number for all Instances of a Configuration. What is kept of an Instance
// follows what is held of it, however many slots it has.
func TestMemoryFollowsWhatIsHeld(t *testing.T) {
	const most = 1 << 20
	l, _ := fleet(1, 200, false)
	l.SetClaim(claimOf(slot.Name{Instance: fleetInstance(0, "node-00000"), Index: 5_000}, "node-00000", "p"))
	before := heap()
	for _, capacity := range []int32{10_000, 2} {
		l.SetConfiguration(configurationOf("cam", akriv0.ConfigurationSpec{Capacity: capacity, InstanceNameDigits: slot.LongHash}))
		checkInvariants(t, l)
		if took := heap() - before; took > most {
			t.Errorf("200 Instances of capacity %d take %d bytes more, want at most %d", capacity, took, most)
		}
	}
	runtime.KeepAlive(l)
}

// TestJoinsDoNotRegroup: nodes that share Instances join and leave one after the other.
// Each changes the one group in place; a group made anew would cost each of them as much
// as there are others.
func TestJoinsDoNotRegroup(t *testing.T) {
	const nodes, instances = 300, 100
	l := ledgerOf(akriv0.ConfigurationSpec{InstanceNameDigits: slot.LongHash})
	all := crowd(nodes, instances)
	var first *group // that the Instances are in, for as long as a node reaches them
	for n, s := range all {
		l.SetSlice(s)
		now := l.devices[fleetInstance(0, "")].group
		if n == 0 {
			first = now
		} else if now != first {
			t.Fatalf("node %d has joined, and the Instances are in another group", n)
		}
		if n < 3 || n == nodes-1 {
			checkInvariants(t, l)
		}
	}
	for n, s := range all {
		if free := l.Free("cam"); free != instances {
			t.Fatalf("%d slots are free, want %d", free, instances)
		}
		if l.devices[fleetInstance(0, "")].group != first {
			t.Fatalf("%d nodes have left, and the Instances are in another group", n)
		}
		l.DeleteSlice(s.Name)
		if n < 3 || n > nodes-4 {
			checkInvariants(t, l)
		}
	}
	if free := l.Free("cam"); free != 0 {
		t.Errorf("%d slots are free of devices that nobody reaches", free)
	}
}
