package inventory

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

func configuration(namespace, name string, change func(*akriv0.Configuration)) *akriv0.Configuration {
	c := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name)}}
	c.Spec.Capacity = 2
	if change != nil {
		change(c)
	}
	return c
}

func device(id string, shared bool, node string) v1alpha1.Device {
	return v1alpha1.Device{Configuration: v1alpha1.ConfigurationReference{Namespace: "default", Name: "cam"},
		ID: id, Shared: shared, Hash: slot.InstanceHash(id, shared, node, slot.ShortHash)}
}

// sliceAt is a slice that was made so many seconds after the first.
func sliceAt(seconds int64, name, node string, devices ...v1alpha1.Device) *v1alpha1.DeviceSlice {
	return &v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1e9+seconds, 0))},
		Spec: v1alpha1.DeviceSliceSpec{NodeName: node, Devices: devices}}
}

func claimOf(instance string, index int, node string) *v1alpha1.SlotClaim {
	return v1alpha1.NewSlotClaim(slot.Name{Instance: instance, Index: index},
		v1alpha1.SlotClaimSpec{NodeName: node, Level: v1alpha1.ConfigurationLevel, Holder: "uid"}, metav1.OwnerReference{})
}

// Two devices of one hash: of a local device on "ab" and of one on "b".
var onAB, onB = device("x", false, "ab"), device("xa", false, "b")

func TestWhoReachesTheDevice(t *testing.T) {
	foo := device("foo0", true, "")
	const shared, local = "cam-8120fe", "local"
	names := map[string]string{shared: shared, local: onAB.Instance()}
	asShared := onAB // of the same hash, as if shared
	asShared.ID, asShared.Shared = "xab", true
	badHash := foo
	badHash.ID = "other"
	foreign := foo
	foreign.Configuration.Namespace = "elsewhere"
	long := foo
	long.Hash = slot.InstanceHash("foo0", true, "", slot.LongHash)
	discovery := func(c *akriv0.Configuration) {
		c.Spec.Discovery = &akriv0.Discovery{NodeSelector: map[string]string{"net": "1"}}
	}
	for name, tc := range map[string]struct {
		instance string
		change   func(*akriv0.Configuration)
		slices   []*v1alpha1.DeviceSlice
		nodes    []string
		id       string   // of the device that has the name
		leftOut  []string // parts of each text
	}{
		"nobody": {instance: shared},
		"all that see it": {instance: shared, slices: []*v1alpha1.DeviceSlice{sliceAt(0, "b-0", "b", foo), sliceAt(0, "a-0", "a", foo), sliceAt(0, "a-1", "a", foo)},
			nodes: []string{"a", "b"}, id: "foo0"},
		"not who lies about the hash": {instance: shared, slices: []*v1alpha1.DeviceSlice{sliceAt(0, "a-0", "a", foo), sliceAt(-9, "b-0", "b", badHash)},
			nodes: []string{"a"}, id: "foo0", leftOut: []string{"node b"}},
		"not for another Configuration": {instance: shared, slices: []*v1alpha1.DeviceSlice{sliceAt(0, "a-0", "a", foo), sliceAt(-9, "b-0", "b", foreign)},
			nodes: []string{"a"}, id: "foo0", leftOut: []string{"for Configuration elsewhere/cam, but default/cam has the name"}},
		"not with digits of another number": {instance: slot.InstanceName("cam", long.Hash), slices: []*v1alpha1.DeviceSlice{sliceAt(0, "a-0", "a", long)},
			leftOut: []string{"instanceNameDigits of its Configuration is 6"}},
		"twelve digits": {instance: slot.InstanceName("cam", long.Hash), change: func(c *akriv0.Configuration) { c.Spec.InstanceNameDigits = 12 },
			slices: []*v1alpha1.DeviceSlice{sliceAt(0, "a-0", "a", long)}, nodes: []string{"a"}, id: "foo0"},
		"of two local ones, that in the older slice": {instance: local, slices: []*v1alpha1.DeviceSlice{sliceAt(1, "ab-0", "ab", onAB), sliceAt(0, "b-0", "b", onB)},
			nodes: []string{"b"}, id: "xa", leftOut: []string{`node ab reports the device "x"`}},
		"of two in slices of one age, by name": {instance: local, slices: []*v1alpha1.DeviceSlice{sliceAt(0, "ab-0", "ab", onAB), sliceAt(0, "b-0", "b", onB)},
			nodes: []string{"ab"}, id: "x", leftOut: []string{"instanceNameDigits: 12"}},
		"the local one before a shared one": {instance: local, slices: []*v1alpha1.DeviceSlice{sliceAt(0, "a-0", "a", asShared), sliceAt(9, "b-0", "b", onB)},
			nodes: []string{"b"}, id: "xa", leftOut: []string{`node a reports the device "xab"`}},
		"a shared one of several nodes before a local one": {instance: local,
			slices: []*v1alpha1.DeviceSlice{sliceAt(0, "b-0", "b", onB), sliceAt(8, "a-0", "a", asShared), sliceAt(9, "c-0", "c", asShared)},
			nodes:  []string{"a", "c"}, id: "xab", leftOut: []string{`node b reports the device "xa"`}},
		"with discovery, who is selected": {instance: shared, change: discovery, slices: []*v1alpha1.DeviceSlice{sliceAt(0, "a-0", "a", foo)},
			nodes: []string{"a", "b"}, id: "foo0"},
		"with discovery, not reported by others": {instance: shared, change: discovery, slices: []*v1alpha1.DeviceSlice{sliceAt(0, "c-0", "c", foo)},
			leftOut: []string{"spec.discovery of its Configuration does not select the node"}},
		"with discovery, not local ones": {instance: local, change: discovery, slices: []*v1alpha1.DeviceSlice{sliceAt(0, "b-0", "b", onB)},
			leftOut: []string{"not shared"}},
	} {
		t.Run(name, func(t *testing.T) {
			v := New()
			v.SetConfiguration(configuration("default", "cam", tc.change))
			for node, net := range map[string]string{"a": "1", "b": "1", "c": "2"} {
				v.SetNode(node, Node{Labels: map[string]string{"net": net}})
			}
			for _, s := range tc.slices {
				v.SetSlice(s)
			}
			instance := tc.instance
			if n, ok := names[instance]; ok {
				instance = n
			}
			d := v.Device(instance)
			id := ""
			if d.Reported != nil {
				id = d.Reported.ID
			}
			if !slices.Equal(d.Nodes, tc.nodes) || id != tc.id || d.Configuration == nil {
				t.Errorf("nodes %q reach device %q, want %q and %q", d.Nodes, id, tc.nodes, tc.id)
			}
			if len(d.LeftOut) != len(tc.leftOut) {
				t.Fatalf("left out: %q, want %q", d.LeftOut, tc.leftOut)
			}
			for i, part := range tc.leftOut {
				if !strings.Contains(d.LeftOut[i], part) {
					t.Errorf("left out: %q, want %q", d.LeftOut[i], part)
				}
			}
		})
	}
	if onAB.Hash != onB.Hash {
		t.Fatal("the local devices have not one hash, and nothing was tested")
	}
}

func TestWhichClaimsCount(t *testing.T) {
	foo := device("foo0", true, "")
	v := New()
	v.SetSlice(sliceAt(0, "a-0", "a", foo))
	for index, node := range []string{"a", "b", "a"} {
		v.SetClaim(claimOf(foo.Instance(), index, node))
	}
	check := func(want ...string) {
		t.Helper()
		for index, part := range want {
			c := v.claims[fmt.Sprintf("%s-%d", foo.Instance(), index)]
			err := v.DoesNotCount(c)
			if (err == nil) != (part == "") || err != nil && !strings.Contains(err.Error(), part) {
				t.Errorf("claim %d: %v, want %q", index, err, part)
			}
			if in := v.Device(foo.Instance()).Claims[index]; fmt.Sprint(in.DoesNotCount) != fmt.Sprint(err) || in.Index != index {
				t.Errorf("claim %d of the device: %+v, want %v", index, in, err)
			}
		}
	}
	const none, unseen, beyond = "no such Configuration", "does not see the device", "only the slots 0 to 1"
	check(none, none, none)
	v.SetConfiguration(configuration("default", "cam", nil))
	check("", unseen, beyond)
	v.SetSlice(sliceAt(0, "b-0", "b", foo))
	check("", "", beyond)
	v.DeleteSlice("a-0")
	check(unseen, "", unseen)
	// A device that is gone, and that containers of the node hold slots of.
	gone, other := foo, device("foo1", true, "")
	gone.Unschedulable, gone.Gone = true, true
	v.SetSlice(sliceAt(0, "a-0", "a", gone))
	check("", "", beyond)
	if d := v.Device(foo.Instance()); !slices.Equal(d.Nodes, []string{"b"}) || len(d.Unschedulable) != 0 {
		t.Errorf("it is reached by %v, unschedulable on %v; want node b alone", d.Nodes, d.Unschedulable)
	} else if d.Gone != nil {
		t.Errorf("a device that node b reports is gone from %v", d.GoneFrom)
	}
	v.DeleteSlice("b-0")
	check("", unseen, beyond)
	if d := v.Device(foo.Instance()); d.Reported != nil || len(d.Nodes) != 0 {
		t.Errorf("a device that is gone everywhere is reported: %+v", d)
	} else if d.Gone == nil || d.Gone.ID != foo.ID || !slices.Equal(d.GoneFrom, []string{"a"}) {
		t.Errorf("it is gone from %v, as %+v; want it gone from node a", d.GoneFrom, d.Gone)
	}
	v.SetConfiguration(configuration("default", "cam", func(c *akriv0.Configuration) { c.Spec.Discovery = &akriv0.Discovery{} }))
	check(unseen, unseen, unseen)
	v.SetConfiguration(configuration("default", "cam", nil))
	other.Unschedulable, other.Gone = true, true
	v.SetSlice(sliceAt(0, "a-0", "a", other))
	check(unseen, unseen, unseen)
	if err := v.DoesNotCount(claimOf("cam-000000", 0, "a")); err == nil {
		t.Error("a claim of a device that nobody knows counts")
	}
}

// The oldest Configuration of a name has it, and only its namespace has Instances.
func TestOwnerOfTheName(t *testing.T) {
	foo := device("foo0", true, "")
	v := New()
	v.SetSlice(sliceAt(0, "a-0", "a", foo))
	at := func(seconds int64) func(*akriv0.Configuration) {
		return func(c *akriv0.Configuration) { c.CreationTimestamp = metav1.NewTime(time.Unix(seconds, 0)) }
	}
	keys := func(namespaces ...string) string {
		var all []string
		for _, n := range namespaces {
			all = append(all, n+"/"+foo.Instance())
		}
		return fmt.Sprint(all)
	}
	for i, s := range []struct {
		change  Change
		owner   string
		changed string
	}{
		{v.SetConfiguration(configuration("default", "cam", at(5))), "default", keys("default")},
		{v.SetConfiguration(configuration("young", "cam", at(6))), "default", keys()},
		{v.SetConfiguration(configuration("old", "cam", at(4))), "old", keys("default", "old")},
		{v.DeleteConfiguration("old", "cam"), "default", keys("old", "default")},
		{v.DeleteConfiguration("default", "cam"), "young", keys("default", "young")},
		{v.DeleteConfiguration("young", "cam"), "", keys("young")},
	} {
		var changed []string
		for _, k := range s.change.Instances {
			changed = append(changed, k.String())
		}
		if fmt.Sprint(changed) != s.changed {
			t.Errorf("step %d changes %v, want %v", i, changed, s.changed)
		}
	}
	if d := v.Device(foo.Instance()); d.Configuration != nil || d.Reported != nil {
		t.Errorf("a device without Configuration: %+v", d)
	}
}

// A node that joins is one Instance's event each, whoever has joined before; claims of
// other nodes are not looked at.
func TestJoinChangesOnlyWhatItConcerns(t *testing.T) {
	foo := device("foo0", true, "")
	v := New()
	v.SetConfiguration(configuration("default", "cam", nil))
	for i := range 50 {
		node := fmt.Sprintf("node-%02d", i)
		v.SetClaim(claimOf(foo.Instance(), i, node))
		change := v.SetSlice(sliceAt(0, node+"-0", node, foo))
		if len(change.Instances) != 1 || !slices.Equal(change.Claims, []string{fmt.Sprintf("%s-%d", foo.Instance(), i)}) {
			t.Fatalf("join %d changes %v", i, change)
		}
		same := sliceAt(0, node+"-0", node, foo)
		same.ResourceVersion, same.Spec.Problems = "2", []v1alpha1.Problem{{Reason: "R"}}
		if change := v.SetSlice(same); len(change.Instances)+len(change.Claims) != 0 {
			t.Fatalf("a slice that says the same of its devices changes %v", change)
		}
	}
	if change := v.SetNode("node-00", Node{}); len(change.Instances) != 0 || len(change.Claims) != 1 {
		t.Errorf("a Node changes %v, want its claim", change)
	}
	labels := map[string]string{"a": "b"}
	if change := v.SetNode("node-00", Node{Labels: labels}); len(change.Instances)+len(change.Claims) != 0 {
		t.Errorf("a label that nobody asks for changes %v", change)
	}
	off := Node{Labels: labels, Taints: []corev1.Taint{{Key: corev1.TaintNodeOutOfService}}}
	if change := v.SetNode("node-00", off); len(change.Instances) != 0 || len(change.Claims) != 1 {
		t.Errorf("a taint, that the node is out of service, changes %v, want its claim", change)
	}
}

func TestLacksSlices(t *testing.T) {
	v := New()
	if v.LacksSlices("a") {
		t.Error("a node that does not exist lacks slices")
	}
	v.SetNode("a", Node{})
	if !v.LacksSlices("a") {
		t.Error("a Node without slices does not lack them")
	}
	v.SetSlice(sliceAt(0, "a-0", "a"))
	v.SetSlice(sliceAt(0, "a-0", "a"))
	if v.LacksSlices("a") {
		t.Error("a node lacks slices that has an empty one")
	}
	v.DeleteSlice("a-0")
	if !v.LacksSlices("a") {
		t.Error("a Node whose slice was deleted does not lack them")
	}
}

// Where a report may change who has the name, or for whom it is spoken, the claims of
// all nodes are looked at.
func TestClaimsOfOtherNodesThatMayCountNow(t *testing.T) {
	discovery := func(c *akriv0.Configuration) { c.Spec.Discovery = &akriv0.Discovery{} }
	foo := device("foo0", true, "")
	for name, tc := range map[string]struct {
		change        func(*akriv0.Configuration)
		before, after *v1alpha1.DeviceSlice
	}{
		"another device takes the name":    {nil, sliceAt(1, "ab-0", "ab", onAB), sliceAt(0, "b-0", "b", onB)},
		"a discoverer reports for all":     {discovery, sliceAt(0, "a-0", "a"), sliceAt(0, "b-0", "b", foo)},
		"a discoverer has reported enough": {discovery, sliceAt(0, "b-0", "b", foo), sliceAt(0, "b-0", "b")},
	} {
		t.Run(name, func(t *testing.T) {
			v := New()
			v.SetConfiguration(configuration("default", "cam", tc.change))
			v.SetNode("b", Node{})
			v.SetSlice(tc.before)
			for _, instance := range []string{foo.Instance(), onAB.Instance()} {
				v.SetClaim(claimOf(instance, 0, "ab"))
			}
			change := v.SetSlice(tc.after)
			if len(change.Claims) != 1 || len(change.Instances) != 1 {
				t.Errorf("changes %v, want the claim of node ab", change)
			}
		})
	}
}

// What a device is does not change because another node, whatever its name, reports it
// later, comes and goes, or is not selected.
func TestTheOldestReportSaysWhatTheDeviceIs(t *testing.T) {
	says := func(url string) v1alpha1.Device {
		d := device("foo0", true, "")
		d.Properties = map[string]string{"URL": url}
		return d
	}
	for name, change := range map[string]func(*akriv0.Configuration){
		"each node for itself": nil,
		"some nodes for all": func(c *akriv0.Configuration) {
			c.Spec.Discovery = &akriv0.Discovery{NodeSelector: map[string]string{"net": "shop"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := New()
			v.SetConfiguration(configuration("default", "cam", change))
			want := func(url string) {
				t.Helper()
				if d := v.Device("cam-8120fe"); d.Reported == nil || d.Reported.Properties["URL"] != url {
					t.Errorf("it is %v, want %s", d.Reported, url)
				}
			}
			for _, node := range []string{"a", "b", "c"} {
				v.SetNode(node, Node{Labels: map[string]string{"net": "shop"}})
			}
			v.SetSlice(sliceAt(1, "b-0", "b", says("right")))
			want("right")
			v.SetSlice(sliceAt(2, "a-0", "a", says("other")))
			want("right")
			v.SetSlice(sliceAt(1, "c-0", "c", says("other")))
			want("right") // of two that are as old, the first by name
			if change != nil {
				v.SetSlice(sliceAt(0, "d-0", "d", says("not selected")))
				want("right")
			}
			v.DeleteSlice("b-0")
			want("other")
		})
	}
}

// 1000 nodes join ten shared devices: each join, and each look at what it changed.
func BenchmarkJoin(b *testing.B) {
	var devices []v1alpha1.Device
	for i := range 10 {
		devices = append(devices, device(fmt.Sprint(i), true, ""))
	}
	for b.Loop() {
		v := New()
		v.SetConfiguration(configuration("default", "cam", nil))
		for i := range 1000 {
			node := fmt.Sprintf("node-%04d", i)
			change := v.SetSlice(sliceAt(0, node+"-0", node, devices...))
			if i%100 == 99 { // an Instance is looked at once a second, at most
				for _, key := range change.Instances {
					v.Device(key.Name)
				}
			}
		}
	}
}

func TestUnschedulableDevices(t *testing.T) {
	here, lost := device("foo0", true, ""), device("foo0", true, "")
	lost.Unschedulable = true
	for name, tc := range map[string]struct {
		discovery bool
		slices    []*v1alpha1.DeviceSlice
		want      []string
	}{
		"all is well":                    {false, []*v1alpha1.DeviceSlice{sliceAt(0, "a-0", "a", here), sliceAt(0, "b-0", "b", here)}, nil},
		"one node":                       {false, []*v1alpha1.DeviceSlice{sliceAt(0, "a-0", "a", lost), sliceAt(0, "b-0", "b", here)}, []string{"a"}},
		"both":                           {false, []*v1alpha1.DeviceSlice{sliceAt(0, "a-0", "a", lost), sliceAt(0, "b-0", "b", lost)}, []string{"a", "b"}},
		"another slice of the node says": {false, []*v1alpha1.DeviceSlice{sliceAt(0, "a-0", "a", lost), sliceAt(0, "a-1", "a", here)}, nil},
		"one discoverer":                 {true, []*v1alpha1.DeviceSlice{sliceAt(0, "a-0", "a", lost), sliceAt(0, "b-0", "b", here)}, nil},
		"all discoverers":                {true, []*v1alpha1.DeviceSlice{sliceAt(0, "a-0", "a", lost)}, []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			v := New()
			v.SetConfiguration(configuration("default", "cam", func(c *akriv0.Configuration) {
				if tc.discovery {
					c.Spec.Discovery = &akriv0.Discovery{}
				}
			}))
			v.SetNode("a", Node{})
			v.SetNode("b", Node{})
			for _, s := range tc.slices {
				v.SetSlice(s)
			}
			if got := slices.Sorted(maps.Keys(v.Device("cam-8120fe").Unschedulable)); !slices.Equal(got, tc.want) {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
