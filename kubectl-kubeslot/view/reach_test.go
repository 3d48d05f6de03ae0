package view

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// sameHash finds two ids of shared devices whose Instances have one name.
func sameHash(t *testing.T) (one, other, hash string) {
	t.Helper()
	ids := map[string]string{}
	for i := range 100_000 {
		id := fmt.Sprint("camera-", i)
		hash := slot.InstanceHash(id, true, "", slot.ShortHash)
		if before, there := ids[hash]; there {
			return before, id, hash
		}
		ids[hash] = id
	}
	t.Fatal("no two ids have one hash")
	return
}

// Of two devices whose Instances would have one name the Instance is one, which the controller says: the nodes
// that see the other do not reach it.
func TestNodesOfAnotherDeviceDoNotReach(t *testing.T) {
	one, other, hash := sameHash(t)
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
	for _, row := range New(o).Instances() {
		want := []string{"a", "b"}
		if row.Name == yard {
			want = nil
		}
		if !slices.Equal(want, row.Nodes) {
			t.Errorf("Instance %s is reached by %q, want %q", row.Name, row.Nodes, want)
		}
	}
}
