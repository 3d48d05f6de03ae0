package ledger

import (
	"fmt"
	"slices"
	"testing"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// BenchmarkContestedNames has nodes report, one after the other, 21 shared devices whose Instances
// have the names of the first node's own devices. Then the first node gains and loses one of its
// own.
func BenchmarkContestedNames(b *testing.B) {
	for _, nodes := range []int{1_000, 2_000, 4_000} {
		own, all := contested(nodes, 21)
		enter := func() *Ledger {
			l := ledgerOf(akriv0.ConfigurationSpec{InstanceNameDigits: slot.LongHash})
			l.SetSlice(own)
			for _, s := range all {
				l.SetSlice(s)
			}
			return l
		}
		b.Run(fmt.Sprintf("enter/nodes=%d", nodes), func(b *testing.B) {
			for b.Loop() {
				enter()
			}
		})
		b.Run(fmt.Sprintf("update/nodes=%d", nodes), func(b *testing.B) {
			l := enter()
			fewer := *own
			fewer.Spec.Devices = own.Spec.Devices[1:]
			for i := 0; b.Loop(); i++ {
				l.SetSlice([]*v1alpha1.DeviceSlice{&fewer, own}[i%2])
			}
		})
	}
}

// contested is the slices of nodes that all see the same devices, of which each has the name of
// one that the first node has for itself.
func contested(nodes, devices int) (own *v1alpha1.DeviceSlice, all []*v1alpha1.DeviceSlice) {
	names := fleetNodes(nodes)
	var local, shared []v1alpha1.Device
	for i := range devices {
		d := fleetDevice(i, names[0], false)
		local = append(local, d)
		d.ID, d.Shared = d.ID+names[0], true // what the hash is of, either way
		shared = append(shared, d)
	}
	for _, node := range names {
		all = append(all, sliceOf(node+"-0", node, shared...))
	}
	return sliceOf(names[0]+"-1", names[0], local...), all
}

// turnUnschedulable has the devices of the slices turn unschedulable, one after the other, or back.
func turnUnschedulable(b *testing.B, l *Ledger, all []*v1alpha1.DeviceSlice) {
	for unschedulable := true; b.Loop(); unschedulable = !unschedulable {
		for _, s := range all {
			for i := range s.Spec.Devices {
				s.Spec.Devices[i].Unschedulable = unschedulable
				l.SetSlice(s)
			}
		}
	}
}

// BenchmarkUnschedulable has all devices of one node of many turn unschedulable, one after the
// other, and be there again: its own 5,000, in slices of 64.
func BenchmarkUnschedulable(b *testing.B) {
	for _, nodes := range []int{1_000, 5_000} {
		l, names := fleet(nodes, 5*nodes, false)
		var devices []v1alpha1.Device
		for i := range 5_000 {
			devices = append(devices, fleetDevice(100_000+i, names[0], false))
		}
		var all []*v1alpha1.DeviceSlice
		for part := range slices.Chunk(devices, 64) {
			all = append(all, sliceOf(fmt.Sprint(names[0], "-", len(all)+1), names[0], part...))
			l.SetSlice(all[len(all)-1])
		}
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) { turnUnschedulable(b, l, all) })
	}
}

// BenchmarkUnschedulableForAll is a shared device with 100 claims that all nodes report, which
// spec.discovery does not select, and one by one report unschedulable.
func BenchmarkUnschedulableForAll(b *testing.B) {
	for _, nodes := range []int{1_000, 5_000} {
		l := ledgerOf(akriv0.ConfigurationSpec{Capacity: 100, InstanceNameDigits: slot.LongHash,
			Discovery: &akriv0.Discovery{NodeSelector: map[string]string{"net": "1"}}})
		d := fleetDevice(0, "", true)
		for i := range 100 {
			l.SetClaim(claimOf(slot.Name{Instance: d.Instance(), Index: i}, "somewhere", "p"))
		}
		var all []*v1alpha1.DeviceSlice
		for _, node := range fleetNodes(nodes) {
			l.SetNode(node, nil)
			all = append(all, sliceOf(node+"-0", node, d))
			l.SetSlice(all[len(all)-1])
		}
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) { turnUnschedulable(b, l, all) })
	}
}

// BenchmarkSelection has a node leave those that spec.discovery selects, which reach 5,000 shared
// devices, and join them again.
func BenchmarkSelection(b *testing.B) {
	for _, nodes := range []int{1_000, 5_000} {
		l, names := fleet(nodes, 5_000, true)
		conf := configurationOf("cam", akriv0.ConfigurationSpec{Capacity: 2, InstanceNameDigits: slot.LongHash,
			Discovery: &akriv0.Discovery{NodeSelector: map[string]string{"net": "1"}}})
		for _, node := range names {
			l.SetNode(node, map[string]string{"net": "1"})
		}
		l.SetConfiguration(conf)
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				l.SetNode(names[1], map[string]string{"net": fmt.Sprint(i % 2)})
			}
		})
	}
}
