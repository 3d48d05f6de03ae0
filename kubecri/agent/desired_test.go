package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/kubeslot/kubeslot/discovery"
	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/slot"
)

func TestDesired(t *testing.T) {
	yes := true
	owner := metav1.OwnerReference{APIVersion: "akri.sh/v0", Kind: "Configuration", Name: "cam", UID: "uid-cam", Controller: &yes}
	full := v0.InstanceSpec{
		ConfigurationName: "cam", CDIName: "akri.sh/cam=8120fe", Capacity: 2, Shared: true, Nodes: []string{"a"},
		BrokerProperties: map[string]string{"ID": "foo0", "URL": "mine"},
		DeviceUsage:      map[string]string{"cam-8120fe-0": "", "cam-8120fe-1": ""},
	}
	applied := []metav1.ManagedFieldsEntry{
		{Manager: "kubecri", Operation: metav1.ManagedFieldsOperationUpdate}, {Manager: "node-b", Operation: metav1.ManagedFieldsOperationApply}}
	for name, tc := range map[string]struct {
		existing func(*v0.Instance) // changes the right Instance; nil: there is none
		capacity int32
		local    bool
		want     func(*v0.Instance) // changes the right Instance
	}{
		"a new device": {},
		"as it should be": {
			existing: func(*v0.Instance) {},
		},
		"seen by another node so far": {
			existing: func(i *v0.Instance) { i.Spec.Nodes = []string{"b"} },
			want:     func(i *v0.Instance) { i.Spec.Nodes = []string{"b", "a"} },
		},
		"a local device is on this node alone": {
			existing: func(i *v0.Instance) { i.Spec.Nodes = []string{"b"} },
			local:    true,
			want:     func(i *v0.Instance) { i.Spec.Shared = false },
		},
		"edited": {
			existing: func(i *v0.Instance) {
				i.Spec.CDIName, i.Spec.Capacity, i.Spec.Shared, i.Spec.BrokerProperties = "x", 9, false, nil
				i.OwnerReferences = nil
			},
		},
		"claims and the metadata of others stay": {
			existing: func(i *v0.Instance) {
				i.Spec.DeviceUsage["cam-8120fe-1"] = "C:uid:b"
				i.Labels, i.Finalizers = map[string]string{"l": "v"}, []string{"akri.sh/f"}
			},
			want: func(i *v0.Instance) {
				i.Spec.DeviceUsage["cam-8120fe-1"] = "C:uid:b"
				i.Labels, i.Finalizers = map[string]string{"l": "v"}, []string{"akri.sh/f"}
			},
		},
		"the sparse form is filled in": {
			existing: func(i *v0.Instance) { i.Spec.DeviceUsage = map[string]string{"cam-8120fe-1": "b"} },
			want:     func(i *v0.Instance) { i.Spec.DeviceUsage["cam-8120fe-1"] = "b" },
		},
		"growth": {
			existing: func(i *v0.Instance) { i.Spec.DeviceUsage["cam-8120fe-0"] = "b" },
			capacity: 3,
			want: func(i *v0.Instance) {
				i.Spec.Capacity = 3
				i.Spec.DeviceUsage = map[string]string{"cam-8120fe-0": "b", "cam-8120fe-1": "", "cam-8120fe-2": ""}
			},
		},
		"shrinking spares what is held": {
			existing: func(i *v0.Instance) {
				i.Spec.Capacity = 4
				i.Spec.DeviceUsage = map[string]string{"cam-8120fe-0": "", "cam-8120fe-1": "", "cam-8120fe-2": "", "cam-8120fe-3": "b"}
			},
			want: func(i *v0.Instance) { i.Spec.DeviceUsage["cam-8120fe-3"] = "b" },
		},
		"names of no slot go, unless held": {
			existing: func(i *v0.Instance) {
				maps.Copy(i.Spec.DeviceUsage, map[string]string{"x": "", "cam-8120fe-00": "", "cam-a19705-0": "", "cam-8120fe-01": "b"})
			},
			want: func(i *v0.Instance) { i.Spec.DeviceUsage["cam-8120fe-01"] = "b" },
		},
		"a Configuration without capacity": {
			capacity: -1,
			want: func(i *v0.Instance) {
				i.Spec.Capacity, i.Spec.DeviceUsage = 1, map[string]string{"cam-8120fe-0": ""}
			},
		},
		"owned by a former Configuration, and by others": {
			existing: func(i *v0.Instance) {
				i.OwnerReferences = []metav1.OwnerReference{
					{APIVersion: "akri.sh/v0", Kind: "Configuration", Name: "cam", UID: "former", Controller: &yes},
					{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "x"},
					{APIVersion: "v1", Kind: "ConfigMap", Name: "y", UID: "y", Controller: &yes},
				}
			},
			want: func(i *v0.Instance) {
				i.OwnerReferences = []metav1.OwnerReference{owner, {APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "x"}}
			},
		},
		"tracked by the API server": {
			existing: func(i *v0.Instance) {
				i.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubecri", Operation: metav1.ManagedFieldsOperationUpdate}}
			},
			want: func(i *v0.Instance) { i.ManagedFields = []metav1.ManagedFieldsEntry{{}} },
		},
		"applied as Akri's agent does it": {
			existing: func(i *v0.Instance) { i.ManagedFields = applied },
			want:     func(i *v0.Instance) { i.ManagedFields = applied },
		},
		"owned as Akri's agent does it": {
			existing: func(i *v0.Instance) { i.OwnerReferences[0].BlockOwnerDeletion = &yes },
			want:     func(i *v0.Instance) { i.OwnerReferences[0].BlockOwnerDeletion = &yes },
		},
	} {
		t.Run(name, func(t *testing.T) {
			right := func() *v0.Instance {
				return &v0.Instance{
					ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "cam-8120fe", OwnerReferences: []metav1.OwnerReference{owner}},
					Spec:       *full.DeepCopy(),
				}
			}
			var existing *v0.Instance
			if tc.existing != nil {
				existing = right()
				tc.existing(existing)
			}
			before := existing.DeepCopy()
			want := right()
			if tc.want != nil {
				tc.want(want)
			}
			c := configuration("cam", 2)
			c.Spec.BrokerProperties = map[string]string{"URL": "mine"}
			if tc.capacity != 0 {
				c.Spec.Capacity = max(tc.capacity, 0)
			}
			device := found{hash: "8120fe", shared: !tc.local, Device: discovery.Device{
				ID: "foo0", Properties: map[string]string{"ID": "foo0", "URL": "the device's"}}}

			got := desired(existing, c, device, "a")
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("desired() (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, existing); diff != "" {
				t.Errorf("desired() changed its argument:\n%s", diff)
			}
		})
	}
}

// genInstance draws an Instance in any state that an API server may hold.
func genInstance(t *rapid.T) *v0.Instance {
	if rapid.Bool().Draw(t, "none") {
		return nil
	}
	i := &v0.Instance{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "cam-8120fe"}}
	i.Spec.Capacity = rapid.Int32Range(0, 6).Draw(t, "was capacity")
	i.Spec.Shared = rapid.Bool().Draw(t, "was shared")
	i.Spec.Nodes = rapid.SliceOfDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), rapid.ID[string]).Draw(t, "nodes")
	i.Spec.DeviceUsage = rapid.MapOf(
		rapid.OneOf(rapid.Map(rapid.IntRange(0, 8), func(n int) string { return slot.Name{Instance: i.Name, Index: n}.String() }), rapid.String()),
		rapid.SampledFrom([]string{"", "", "a", "C:uid:b", ":"}),
	).Draw(t, "usage")
	return i
}

func TestDesiredIsStableAndLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		existing := genInstance(t)
		c := configuration("cam", rapid.Int32Range(1, 6).Draw(t, "capacity"))
		device := found{hash: "8120fe", shared: rapid.Bool().Draw(t, "shared"), Device: discovery.Device{ID: "foo0"}}

		got := desired(existing, c, device, "a")
		if again := desired(got, c, device, "a"); !apiequality.Semantic.DeepEqual(got, again) {
			t.Fatalf("not stable:\n%s", cmp.Diff(got, again))
		}
		if !slices.Contains(got.Spec.Nodes, "a") {
			t.Fatalf("nodes %q without this one", got.Spec.Nodes)
		}
		free := 0
		for name, holder := range got.Spec.DeviceUsage {
			if s, err := slot.Parse(name); holder == "" && (err != nil || s.Index >= int(c.Spec.Capacity)) {
				t.Fatalf("free entry %q, with capacity %d", name, c.Spec.Capacity)
			}
			if holder == "" {
				free++
			}
		}
		for n := range int(c.Spec.Capacity) {
			if _, ok := got.Spec.DeviceUsage[slot.Name{Instance: got.Name, Index: n}.String()]; !ok {
				t.Fatalf("slot %d is not listed in %v", n, got.Spec.DeviceUsage)
			}
		}
		if existing == nil {
			return
		}
		for name, holder := range existing.Spec.DeviceUsage {
			if holder != "" && got.Spec.DeviceUsage[name] != holder {
				t.Fatalf("slot %q held by %q became %q", name, holder, got.Spec.DeviceUsage[name])
			}
		}
		for name, holder := range got.Spec.DeviceUsage {
			if holder != "" && existing.Spec.DeviceUsage[name] != holder {
				t.Fatalf("slot %q is held by %q out of nowhere", name, holder)
			}
		}
		if left := withdrawn(got, "a"); left != nil && slices.Contains(left.Spec.Nodes, "a") {
			t.Fatalf("withdrawn() leaves the node in %q", left.Spec.Nodes)
		}
	})
}

func TestExamine(t *testing.T) {
	first, second := collidingIDs(t)
	device := func(id string) discovery.Device { return discovery.Device{ID: id} }
	for name, tc := range map[string]struct {
		devices  []discovery.Device
		want     []string // ids
		rejected []string // parts of the reasons
	}{
		"nothing":   {},
		"all right": {devices: []discovery.Device{device("b"), device("a")}, want: []string{"a", "b"}},
		"no id":     {devices: []discovery.Device{device(""), device("a")}, want: []string{"a"}, rejected: []string{"has no id"}},
		"NUL":       {devices: []discovery.Device{device("a\x00")}, rejected: []string{"NUL in the id"}},
		"twice":     {devices: []discovery.Device{device("a"), device("a"), device("a")}, want: []string{"a"}, rejected: []string{"more than once", "more than once"}},
		"one hash for two": {
			devices: []discovery.Device{device(second), device(first)}, want: []string{first},
			rejected: []string{"which comes first"},
		},
		"properties that are no environment": {
			devices: []discovery.Device{
				{ID: "a", Properties: map[string]string{"A=B": ""}}, {ID: "b", Properties: map[string]string{"": ""}},
				{ID: "c", Properties: map[string]string{"A": "\x00"}}, {ID: "d", Properties: map[string]string{"A": "\xff"}},
				{ID: "e", Properties: map[string]string{"A": "=\n"}},
			},
			want:     []string{"e"},
			rejected: []string{"name of an environment variable", "name of an environment variable", "not text", "not text"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			devices, rejected := examine("cam", discovery.Result{Devices: tc.devices, Shared: true}, "a")
			var ids []string
			for instance, d := range devices {
				ids = append(ids, d.ID)
				if instance != instanceOf("cam", d.ID) {
					t.Errorf("device %q is Instance %s", d.ID, instance)
				}
			}
			slices.Sort(ids)
			if !slices.Equal(ids, tc.want) {
				t.Errorf("devices %q, want %q", ids, tc.want)
			}
			if len(rejected) != len(tc.rejected) {
				t.Fatalf("rejected %v, want %q", rejected, tc.rejected)
			}
			for i, part := range tc.rejected {
				if !strings.Contains(rejected[i].Error(), part) {
					t.Errorf("rejected %v, want %q", rejected[i], part)
				}
			}
		})
	}
	if s := summary(make([]error, 0)); s != "" {
		t.Errorf("summary of nothing = %q", s)
	}
}

// collidingIDs finds two ids with one three-byte hash, in order.
func collidingIDs(t *testing.T) (first, second string) {
	t.Helper()
	seen := map[string]string{}
	for n := range 1 << 20 {
		id := fmt.Sprintf("camera-%d", n)
		hash := slot.InstanceHash(id, true, "", slot.ShortHash)
		if other, ok := seen[hash]; ok {
			return min(id, other), max(id, other)
		}
		seen[hash] = id
	}
	t.Fatal("no two of a million ids have one hash")
	return "", ""
}
