package instances

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// finds has a node report so many devices, and returns the names of their Instances.
func (r *rig) finds(node string, n int) []string {
	var names []string
	var all []v1alpha1.Device
	for i := range n {
		d := v1alpha1.Device{Configuration: v1alpha1.ConfigurationReference{Namespace: "default", Name: "cam"}, ID: fmt.Sprint("d", i)}
		d.Hash = slot.InstanceHash(d.ID, false, node, slot.LongHash)
		all, names = append(all, d), append(names, d.Instance())
	}
	for chunk := range slices.Chunk(all, 256) {
		s := sliceOf(node, chunk...)
		s.Name = node + "-" + chunk[0].ID
		r.inv.SetSlice(s)
	}
	return names
}

func (r *rig) look(names ...string) {
	r.Helper()
	for _, name := range names {
		if _, err := r.Reconcile(r.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: name}}); err != nil {
			r.Error(err)
		}
	}
	r.clock.SetTime(r.clock.Now().Add(2 * Interval)) // each may be written again
}

// exist returns the Instances that there are, of the names.
func (r *rig) exist(names ...string) []string {
	r.Helper()
	var list akriv0.InstanceList
	if err := r.api.List(r.Context(), &list); err != nil {
		r.Fatal(err)
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return !slices.ContainsFunc(list.Items, func(i akriv0.Instance) bool { return i.Name == name })
	})
}

func limited(n int32) *akriv0.Configuration {
	c := configuration(1)
	c.Spec.InstanceNameDigits, c.Spec.MaxInstances = slot.LongHash, n
	return c
}

// Instances that exist stay, and devices that wait get theirs when others have gone, the
// first that was seen first.
func TestMaxInstances(t *testing.T) {
	r := newRig(t)
	r.inv.SetConfiguration(limited(2))
	of := types.NamespacedName{Namespace: "default", Name: "cam"}
	all := r.finds("a", 5)
	for _, name := range slices.Backward(all) {
		r.look(name)
	}
	expect := func(what string, withheld int, want ...string) {
		t.Helper()
		if got, s := r.exist(all...), r.Sum(of); !slices.Equal(got, want) || s.Used != len(want) || s.Withheld != withheld {
			t.Errorf("%s: Instances %q, want %q; %+v", what, got, want, s)
		}
	}
	expect("the first two that were seen", 3, all[3], all[4])
	if r.changed != 3 {
		t.Errorf("%d changes", r.changed)
	}
	gone := func(name string) {
		t.Helper()
		i := &akriv0.Instance{}
		if err := r.api.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, i); err != nil {
			t.Fatal(err)
		}
		d := r.inv.Device(name)
		s := sliceOf("a")
		s.Name = "a-d0"
		for _, other := range all {
			if o := r.inv.Device(other); other != name && o.Reported != nil {
				s.Spec.Devices = append(s.Spec.Devices, *o.Reported)
			}
		}
		if d.Reported == nil {
			t.Fatalf("%s is gone already", name)
		}
		r.inv.SetSlice(s)
		r.look(name) // deletes it
		r.look(name) // sees that it is gone
		woken := r.woken
		r.woken = nil
		r.look(woken...)
	}
	gone(all[4])
	expect("one has gone", 2, all[2], all[3])
	r.restart()
	for _, name := range all {
		r.look(name)
	}
	expect("the controller was killed", 2, all[2], all[3])
	r.inv.SetConfiguration(limited(1))
	r.look(all...)
	expect("a lower limit", 2, all[2], all[3])
	gone(all[3])
	expect("one of those beyond has gone", 2, all[2])
	r.inv.SetConfiguration(limited(2))
	r.look(all[2])
	r.look(r.woken...)
	expect("a higher limit: the first that waited", 1, all[0], all[2])
	r.inv.DeleteConfiguration("default", "cam")
	r.look(all...)
	if s := r.Sum(of); s.Used+s.Withheld != 0 {
		t.Errorf("its Configuration is gone: %+v", s)
	}
}

// A node's stolen credential can report 25,600 devices: 100 slices of 256. docs/security.md has
// the number of Instances that come of it.
func TestInstancesOfAStolenNode(t *testing.T) {
	r := newRig(t)
	r.inv.SetConfiguration(limited(0))
	all := r.finds("stolen", 25600)
	var made atomic.Int32
	r.client = interceptor.NewClient(r.api, interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
		made.Add(1) // the fake API server would take long
		return nil
	}})
	queue := make(chan string)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for name := range queue {
				if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: name}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for _, name := range all {
		queue <- name
	}
	close(queue)
	workers.Wait()
	if s := r.Sum(types.NamespacedName{Namespace: "default", Name: "cam"}); made.Load() != akriv0.DefaultMaxInstances || s.Used != 10000 || s.Withheld != 15600 {
		t.Errorf("%d Instances, %+v", made.Load(), s)
	}
}
