package ledger

import (
	"fmt"
	"testing"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// BenchmarkJoinOneByOne has nodes discover 20 shared Instances one after the other, so that
// the sets of nodes that reach them differ while a node joins.
func BenchmarkJoinOneByOne(b *testing.B) {
	for _, nodes := range []int{250, 500, 1_000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			for b.Loop() {
				l := New()
				l.SetConfiguration(configurationOf("cam", akriv0.ConfigurationSpec{InstanceNameDigits: slot.LongHash}))
				for _, s := range crowd(nodes, 20) {
					all := s.Spec.Devices
					for n := range all {
						s.Spec.Devices = all[:n+1]
						l.SetSlice(s)
					}
				}
			}
		})
	}
}

// BenchmarkIrregularReach filters all of 1000 nodes for a pod that no node can serve. Each
// node reaches as many different sets of Instances, of 400.
func BenchmarkIrregularReach(b *testing.B) {
	for _, sets := range []int{1, 50, 200} {
		b.Run(fmt.Sprintf("sets=%d", sets), func(b *testing.B) {
			l, nodes := irregular(1_000, 400, sets)
			req := podFor(1, sets+1)
			feasibility := l.Feasibility(req, NewSnapshotIndex(nodes))
			b.ReportAllocs()
			for b.Loop() {
				for at, node := range nodes {
					if shortfall, sure := feasibility.Fits(node, at); !sure || shortfall == nil {
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
	l := New()
	l.SetConfiguration(configurationOf("cam", akriv0.ConfigurationSpec{InstanceNameDigits: slot.LongHash}))
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
