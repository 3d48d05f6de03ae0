package ledger

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// checkRecords compares the ledger's Instances with the API's.
func (w *world) checkRecords(t failer) {
	t.Helper()
	inOwners := 0
	for _, k := range w.kinds {
		for _, o := range k.owners {
			for i, r := range o.instances {
				if r.at != i || r.owner != o || r.kind != k || w.Ledger.instances[instanceKey{o.namespace, r.name}] != r {
					t.Fatalf("the record of %s/%s is not where it should be: %+v", o.namespace, r.name, r)
				}
				inOwners++
			}
		}
	}
	if inOwners != len(w.instances) || len(w.Ledger.instances) != len(w.instances) {
		t.Fatalf("%d Instances, %d of them of a Configuration, want %d", len(w.Ledger.instances), inOwners, len(w.instances))
	}
	for name, in := range w.instances {
		got := w.Ledger.instances[instanceKey{in.Namespace, in.Name}].instance()
		want := &akriv0.Instance{ObjectMeta: in.ObjectMeta, Spec: in.Spec}
		want.Spec.Nodes = slices.Sorted(slices.Values(in.Spec.Nodes))
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("Instance %s (-API +ledger):\n%s", name, diff)
		}
		if in == w.inForce(in.Name) && cmp.Diff(got, w.Instance(in.Name), cmpopts.EquateEmpty()) != "" {
			t.Fatalf("Instance %s is another one than slots are given from", name)
		}
	}
}

// A slot that deviceUsage lists as free is one thing, and one that it lacks another:
// a claim is written by comparing.
func TestInstanceIsAsItWasSet(t *testing.T) {
	l := New()
	l.SetConfiguration(&akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: "cam", Namespace: "ns"}})
	set := &akriv0.Instance{
		ObjectMeta: metav1.ObjectMeta{Name: "cam-1", Namespace: "ns", UID: "u", ResourceVersion: "7"},
		Spec: akriv0.InstanceSpec{ConfigurationName: "cam", Capacity: 3, Nodes: []string{"b", "a", "b"}, BrokerProperties: map[string]string{"K": "v"},
			DeviceUsage: map[string]string{"cam-1-0": "", "cam-1-2": "a", "cam-1-9": "C:x:b", "cam-2-0": "a", "cam-1-01": "a"}},
	}
	l.SetInstance(set)
	want := &akriv0.Instance{
		ObjectMeta: metav1.ObjectMeta{Name: "cam-1", Namespace: "ns", UID: "u", ResourceVersion: "7"},
		Spec: akriv0.InstanceSpec{ConfigurationName: "cam", Capacity: 3, Nodes: []string{"a", "b"},
			DeviceUsage: map[string]string{"cam-1-0": "", "cam-1-2": "a", "cam-1-9": "C:x:b"}},
	}
	if diff := cmp.Diff(want, l.Instance("cam-1")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	set.ResourceVersion, set.Spec.DeviceUsage = "8", nil
	l.SetInstance(set)
	want.ResourceVersion, want.Spec.DeviceUsage = "8", nil
	if diff := cmp.Diff(want, l.Instance("cam-1")); diff != "" {
		t.Errorf("without deviceUsage (-want +got):\n%s", diff)
	}
}

// Another Instance has the name, of which the ledger was not told that the first is
// gone: what was known of that must not live on, in force or not.
func TestInstanceUnderTheSameName(t *testing.T) {
	in := func(uid types.UID, configuration string) *akriv0.Instance {
		return &akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Name: "cam-a-1", Namespace: "ns", UID: uid},
			Spec: akriv0.InstanceSpec{ConfigurationName: configuration, Capacity: 1, Nodes: []string{"a"}}}
	}
	configuration := func(name string) *akriv0.Configuration {
		return &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"}}
	}
	first := in("first", "cam")
	for name, second := range map[string]*akriv0.Instance{
		"another object": in("second", "cam"), "another Configuration": in("first", "cam-a"), "both": in("second", "cam-a"),
	} {
		for _, inForce := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, the first in force %v", name, inForce), func(t *testing.T) {
				l := New()
				if inForce {
					l.SetConfiguration(configuration("cam"))
				}
				l.SetInstance(first)
				l.SetInstance(second)
				if uid, _ := l.Known("ns", "cam-a-1"); uid != string(second.UID) || len(l.instances) != 1 {
					t.Errorf("UID %q, %d Instances", uid, len(l.instances))
				}
				l.SetConfiguration(configuration("cam"))
				l.SetConfiguration(configuration("cam-a"))
				want := map[string]int{"cam": 0, "cam-a": 0, "cam-a-1": 1}
				want[second.Spec.ConfigurationName] = 1
				for resource, n := range want {
					if got := l.Free(resource); got != n {
						t.Errorf("%d slots of %s are free, want %d", got, resource, n)
					}
				}
				l.DeleteInstance(second)
				if len(l.instances) != 0 || len(l.devices) != 0 {
					t.Errorf("%v and %v are left", l.instances, l.devices)
				}
			})
		}
	}
}

// An Instance whose name another had gives slots once the other is gone and it is
// seen again, although nothing of it has changed.
func TestInstanceWhoseNameWasTaken(t *testing.T) {
	l := New()
	var both []*akriv0.Instance
	for namespace, name := range map[string]string{"first": "cam", "second": "cam-a"} {
		l.SetConfiguration(&akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}})
		both = append(both, &akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Name: "cam-a-1", Namespace: namespace},
			Spec: akriv0.InstanceSpec{ConfigurationName: name, Capacity: 1, Nodes: []string{"a"}}})
	}
	l.SetInstance(both[0])
	l.SetInstance(both[1])
	l.DeleteInstance(both[0])
	l.SetInstance(both[1])
	if got := l.Instance("cam-a-1"); got == nil || got.Namespace != both[1].Namespace || l.Free(both[1].Spec.ConfigurationName) != 1 {
		t.Errorf("slots are given from %+v, want from that of %s", got, both[1].Namespace)
	}
}

// What an API object was decoded into must be free once the ledger has it: one text
// that is kept of it would keep all that lies around it.
func TestNothingOfTheObjectIsKept(t *testing.T) {
	const around, objects = 1 << 20, 64
	l := New()
	l.SetConfiguration(&akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: "cam", Namespace: "ns"}})
	for i := range objects {
		part := func(text string) string { return (text + strings.Repeat(" ", around))[:len(text)] }
		name := fmt.Sprintf("cam-%06x", i)
		l.SetInstance(&akriv0.Instance{
			ObjectMeta: metav1.ObjectMeta{Name: part(name), Namespace: part("ns"), UID: types.UID(part("uid")), ResourceVersion: part("1")},
			Spec: akriv0.InstanceSpec{ConfigurationName: part("cam"), Capacity: 1, Nodes: []string{part(fmt.Sprint("node-", i))},
				DeviceUsage: map[string]string{part(name + "-0"): part("C:holder:node")}},
		})
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.HeapAlloc > objects*around/2 {
		t.Errorf("%d MiB are in use for %d Instances of which nothing should be kept", m.HeapAlloc>>20, objects)
	}
	runtime.KeepAlive(l)
}

func TestCounts(t *testing.T) {
	var c counts
	for _, node := range []string{"b", "a", "c", "b", "b"} {
		c.add(node, 1)
	}
	if got := c.add("a", -1); got != 0 {
		t.Errorf("a has %d left, want 0", got)
	}
	if got := c.add("b", -1); got != 2 {
		t.Errorf("b has %d left, want 2", got)
	}
	if len(c) != 2 || c.of("a") != 0 || c.of("b") != 2 || c.of("c") != 1 || c.of("d") != 0 {
		t.Errorf("got %v, want b: 2, c: 1", c)
	}
}
