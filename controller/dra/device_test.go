package dra

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/kubernetes/pkg/apis/resource"
	resourcev1 "k8s.io/kubernetes/pkg/apis/resource/v1"
	resourcevalidation "k8s.io/kubernetes/pkg/apis/resource/validation"
	"pgregory.net/rapid"

	"github.com/kubeslot/kubeslot/controller/inventory"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

func draConfiguration(name string, held ...string) *akriv0.Configuration {
	return &akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "uid-of-configuration"},
		Spec:       akriv0.ConfigurationSpec{Allocator: akriv0.AllocatorDRA, Capacity: 3},
		Status:     akriv0.ConfigurationStatus{Allocator: akriv0.NewAllocatorStatus(akriv0.AllocatorDRA, held)},
	}
}

func deviceOf(shared bool, properties map[string]string) *v1alpha1.Device {
	return &v1alpha1.Device{ID: "id", Shared: shared, Properties: properties}
}

// hostname is that of a node: none of node-0, and for all others of the node's name.
func hostname(node string) string {
	if node == "node-0" {
		return ""
	}
	return "host-" + node
}

// summary is a published device in a line: pool, nodes, taints, and attributes besides the two names.
func summary(p *published) string {
	if p == nil {
		return "none"
	}
	nodes := "all nodes"
	switch {
	case p.Device.NodeName != nil:
		nodes = *p.Device.NodeName
	case p.Nodes != nil:
		var terms []string
		for _, r := range p.Nodes.NodeSelectorTerms[0].MatchExpressions {
			terms = append(terms, r.Key+"="+strings.Join(r.Values, "|"))
		}
		nodes = strings.Join(terms, ",")
	}
	text := p.Pool + " on " + nodes
	for _, taint := range p.Device.Taints {
		text += fmt.Sprintf(" %s:%s", taint.Key, taint.Effect)
	}
	for _, name := range slices.Sorted(maps.Keys(p.Device.Attributes)) {
		if name != v1alpha1.DRAConfiguration && name != v1alpha1.DRAInstance {
			text += fmt.Sprintf(" %s=%s", name, *p.Device.Attributes[name].StringValue)
		}
	}
	return text
}

func TestPublish(t *testing.T) {
	with := func(change func(*akriv0.Configuration)) *akriv0.Configuration {
		c := draConfiguration("cam")
		change(c)
		return c
	}
	slots := with(func(c *akriv0.Configuration) { c.Spec.Allocator = akriv0.AllocatorSlots })
	waits := with(func(c *akriv0.Configuration) { c.Status.Allocator = nil })
	anywhere := with(func(c *akriv0.Configuration) { c.Spec.Discovery = &akriv0.Discovery{} })
	yard := with(func(c *akriv0.Configuration) {
		c.Spec.Discovery = &akriv0.Discovery{NodeSelector: map[string]string{"site": "yard", "rack": "1"}}
	})
	cam, held := draConfiguration("cam"), draConfiguration("cam", "cam-8120fe")
	local, shared := deviceOf(false, nil), deviceOf(true, nil)
	wide := deviceOf(false, map[string]string{"MODEL": "m", "EMPTY": "", "a-b": "no identifier",
		"LONG": strings.Repeat("v", 65), strings.Repeat("N", 33): "", "instance": "another"})
	type nodes = []string
	lost := func(nodes ...string) map[string]struct{} {
		set := map[string]struct{}{}
		for _, node := range nodes {
			set[node] = struct{}{}
		}
		return set
	}
	for name, tc := range map[string]struct {
		configuration *akriv0.Configuration
		reported      *v1alpha1.Device
		nodes         []string
		lost          map[string]struct{}
		gone          bool
		want          string
	}{
		"nothing is known":              {want: "none"},
		"slots are given":               {configuration: slots, reported: local, nodes: nodes{"a"}, want: "none"},
		"kube-scheduler gives it still": {configuration: waits, reported: local, nodes: nodes{"a"}, want: "none"},
		"a pod holds a slot":            {configuration: held, reported: local, nodes: nodes{"a"}, want: "none"},
		"nobody reports it":             {configuration: cam, want: "none"},
		"local": {configuration: cam, reported: local, nodes: nodes{"a"},
			want: "cam/a on a"},
		"local, not known to be there": {configuration: cam, reported: local, nodes: nodes{"a"}, lost: lost("a"),
			want: "cam/a on a kubeslot.io/unschedulable:NoSchedule"},
		"local, gone": {configuration: cam, reported: local, nodes: nodes{"a"}, gone: true,
			want: "cam/a on a kubeslot.io/gone:NoSchedule"},
		"shared": {configuration: cam, reported: shared, nodes: nodes{"b", "c"},
			want: "cam-8120fe on kubernetes.io/hostname=host-b|host-c"},
		"shared, not known to be there on a node": {configuration: cam, reported: shared, nodes: nodes{"b", "c"},
			lost: lost("c"), want: "cam-8120fe on kubernetes.io/hostname=host-b"},
		"shared, not known to be there": {configuration: cam, reported: shared, nodes: nodes{"b", "c"},
			lost: lost("b", "c"),
			want: "cam-8120fe on kubernetes.io/hostname=host-b|host-c kubeslot.io/unschedulable:NoSchedule"},
		"shared, gone": {configuration: cam, reported: shared, nodes: nodes{"c"}, gone: true,
			want: "cam-8120fe on kubernetes.io/hostname=host-c kubeslot.io/gone:NoSchedule"},
		"a node without a hostname": {configuration: cam, reported: shared, nodes: nodes{"b", "node-0"},
			want: "cam-8120fe on kubernetes.io/hostname=host-b"},
		"no node with a hostname": {configuration: cam, reported: shared, nodes: nodes{"node-0"}, want: "none"},
		"discovered for all nodes": {configuration: anywhere, reported: shared, nodes: nodes{"b"},
			want: "cam-8120fe on all nodes"},
		"discovered for nodes with labels": {configuration: yard, reported: shared, nodes: nodes{"b"},
			want: "cam-8120fe on rack=1,site=yard"},
		"properties": {configuration: cam, reported: wide, nodes: nodes{"a"},
			want: "cam/a on a EMPTY= MODEL=m"},
	} {
		t.Run(name, func(t *testing.T) {
			d := inventory.Device{Configuration: tc.configuration, Reported: tc.reported, Nodes: tc.nodes,
				Unschedulable: tc.lost}
			if tc.gone {
				d.Reported, d.Nodes, d.Gone, d.GoneFrom = nil, nil, tc.reported, tc.nodes
			}
			if diff := cmp.Diff(tc.want, summary(publish("cam-8120fe", d, hostname))); diff != "" {
				t.Errorf("published (-want +got):\n%s", diff)
			}
		})
	}
}

// A report that says the same changes nothing that is published.
func TestPublishedTheSame(t *testing.T) {
	report := func(model string) *published {
		return publish("cam-8120fe", inventory.Device{Configuration: draConfiguration("cam"), Nodes: []string{"a"},
			Reported: deviceOf(false, map[string]string{"MODEL": model})}, hostname)
	}
	same := func(a, b *published) bool { return apiequality.Semantic.DeepEqual(a, b) }
	if p := report("m"); !same(p, report("m")) || same(p, report("n")) || same(p, nil) {
		t.Error("another report of the same device is another one, or one of another model the same")
	}
	if !same(nil, nil) || same(nil, report("m")) {
		t.Error("what is not published is the same as what is")
	}
}

// What is published the API server takes, whatever nodes report.
func TestPoolsAreValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pools, seen := map[string]map[string]*published{}, map[string]bool{}
		for range rapid.SampledFrom([]int{1, 250}).Draw(t, "devices") {
			instance, device := drawDevice(t)
			p := publish(instance, device, hostname)
			if p != nil && !seen[instance] {
				if pools[p.Pool] == nil {
					pools[p.Pool] = map[string]*published{}
				}
				pools[p.Pool][instance] = p
				seen[instance] = true
			}
		}
		published := 0
		for name, all := range pools {
			pool := poolOf(all)
			for i := range pool.Slices {
				published += len(pool.Slices[i].Devices)
				if err := refused(name, pool, i); err != nil {
					t.Fatalf("pool %s: %v", name, err)
				}
			}
		}
		if published != len(seen) {
			t.Fatalf("%d devices published of %d", published, len(seen))
		}
	})
}

// refused is why the API server refuses a pool's slice; nil when it takes it.
func refused(name string, pool resourceslice.Pool, i int) error {
	slice := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "slice"},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: v1alpha1.DRADriver, NodeSelector: pool.NodeSelector,
			PerDeviceNodeSelection: pool.Slices[i].PerDeviceNodeSelection, Devices: pool.Slices[i].Devices,
			Pool: resourceapi.ResourcePool{Name: name, ResourceSliceCount: int64(len(pool.Slices))},
		},
	}
	if pool.AllNodes {
		slice.Spec.AllNodes = new(true)
	}
	internal := &resource.ResourceSlice{}
	if err := resourcev1.Convert_v1_ResourceSlice_To_resource_ResourceSlice(slice, internal, nil); err != nil {
		return err
	}
	return resourcevalidation.ValidateResourceSlice(internal).ToAggregate()
}

func drawDevice(t *rapid.T) (string, inventory.Device) {
	names := []string{"cam", "cam", "cam", strings.Repeat("c", 56)}
	c := draConfiguration(rapid.SampledFrom(names).Draw(t, "configuration"))
	c.Spec.Capacity = rapid.Int32Range(0, 10000).Draw(t, "capacity")
	id := rapid.StringN(1, 100, -1).Draw(t, "id")
	shared := rapid.IntRange(0, 3).Draw(t, "shared") == 0
	node := rapid.SampledFrom([]string{"a", "a", "a", "b.c", strings.Repeat("n", 58)}).Draw(t, "node")
	instance := slot.InstanceName(c.Name, slot.InstanceHash(id, shared, node, slot.ShortHash))
	keys, values := rapid.StringMatching(`[_a-zA-Z][-_a-zA-Z0-9]{0,40}`), rapid.StringN(0, 70, 70)
	if rapid.Bool().Draw(t, "valid") {
		keys, values = rapid.StringMatching(`[_a-zA-Z][_a-zA-Z0-9]{0,31}`), rapid.StringN(0, 64, 64)
	}
	n := rapid.SampledFrom([]int{0, 1, 1, 1, 1, 50}).Draw(t, "count")
	report := deviceOf(shared, rapid.MapOfN(keys, values, n, n).Draw(t, "properties"))
	d := inventory.Device{Configuration: c, Reported: report, Nodes: []string{node}}
	if shared && rapid.Bool().Draw(t, "discovered") {
		labels := rapid.SampledFrom([]map[string]string{nil, {"k8s.io/role": "", "b": "1"}}).Draw(t, "labels")
		c.Spec.Discovery = &akriv0.Discovery{NodeSelector: labels}
	}
	switch rapid.IntRange(0, 3).Draw(t, "state") {
	case 0:
		d.Unschedulable = map[string]struct{}{node: {}}
	case 1:
		d.Reported, d.Nodes, d.Gone, d.GoneFrom = nil, nil, report, []string{node}
	}
	return instance, d
}

// A claim that asks for more slots of a device than a node prepares is not allocated.
func TestMostSlotsOfARequest(t *testing.T) {
	for capacity, want := range map[int]int64{1: 0, 2000: 0, 2001: 2000, 10000: 2000} {
		most := int64(0) // none is said
		if limit := slots(capacity)[v1alpha1.DRASlots].RequestPolicy.ValidRange.Max; limit != nil {
			most = limit.Value()
		}
		if most != want {
			t.Errorf("of %d slots a request may have %d, want %d", capacity, most, want)
		}
	}
}

// A pool's devices are in slices by their names, as many in each as may have taints.
func TestPoolOf(t *testing.T) {
	all := map[string]*published{}
	for i := range 70 {
		d := inventory.Device{Configuration: draConfiguration("cam"), Reported: deviceOf(false, nil),
			Nodes: []string{"a"}}
		instance := fmt.Sprintf("cam-%06d", i)
		all[instance] = publish(instance, d, hostname)
	}
	pool := poolOf(all)
	if len(pool.Slices) != 2 || len(pool.Slices[0].Devices) != 64 || len(pool.Slices[1].Devices) != 6 {
		t.Fatalf("%d slices, want one of 64 devices and one of 6", len(pool.Slices))
	}
	if last := pool.Slices[1].Devices[5].Name; last != "cam-000069" {
		t.Errorf("the last device is %s, want the last by name", last)
	}
}
