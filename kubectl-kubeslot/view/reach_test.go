package view

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// Of two devices whose Instances would have one name the Instance is one, which the controller says: the nodes
// that see the other do not reach it.
func TestNodesOfAnotherDeviceDoNotReach(t *testing.T) {
	const one, other, hash = "camera-9752", "camera-11047", "6a1ec6"
	for _, reversed := range []bool{false, true} {
		o := cluster()
		o.Instances = o.Instances[:1]
		in := &o.Instances[0]
		in.Name, in.Spec.Nodes, in.Status.Device = "cam-"+hash, []string{"a"}, one
		for i, id := range []string{one, other} {
			o.Slices[i].Spec.Devices = []v1alpha1.Device{
				{Configuration: o.Slices[i].Spec.Devices[0].Configuration, ID: id, Hash: hash, Shared: true}}
		}
		if reversed {
			slices.Reverse(o.Slices)
		}
		rows := New(o).Instances()
		if len(rows) != 1 || rows[0].Device != one || cmp.Diff([]string{"a"}, rows[0].Nodes) != "" {
			t.Errorf("Instances() = %+v, want device %s on node a alone", rows, one)
		}
	}
}

// What no node sees any more no node reaches, though the controller has not said so yet.
func TestNobodyReachesWhatNobodySees(t *testing.T) {
	o := cluster()
	for i := range o.Slices {
		o.Slices[i].Spec.Devices = o.Slices[i].Spec.Devices[1:]
	}
	got := map[string][]string{}
	for _, row := range New(o).Instances() {
		got[row.Name] = row.Nodes
	}
	if diff := cmp.Diff(map[string][]string{yard: nil, gate: {"a", "b"}}, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("nodes that reach each Instance (-want +got):\n%s", diff)
	}
}
