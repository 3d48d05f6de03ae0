package instances

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/kubeslot/kubeslot/controller/inventory"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// The fields are Akri's, and hold what its own agents and tools expect there.
func TestView(t *testing.T) {
	reported := device(map[string]string{"WIN": "device", "URL": "rtsp://x"})
	d := inventory.Device{
		Configuration: configuration(2), Reported: &reported, Nodes: []string{"node-a", "node-b"},
		Claims: []inventory.Claim{
			{SlotClaim: claimOf(0, "node-a", v1alpha1.ConfigurationLevel), Index: 0},
			{SlotClaim: claimOf(1, "node-c", v1alpha1.InstanceLevel), Index: 1, DoesNotCount: errors.New("why")},
			{SlotClaim: claimOf(5, "node-b", v1alpha1.InstanceLevel), Index: 5, DoesNotCount: errors.New("beyond")},
			{SlotClaim: claimOf(6, "node-c", v1alpha1.InstanceLevel), Index: 6, DoesNotCount: errors.New("both")},
		},
		LeftOut: []string{"left out"},
	}
	controller := true
	want := &akriv0.Instance{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cam-8120fe", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "akri.sh/v0", Kind: "Configuration", Name: "cam", UID: "cam-uid", Controller: &controller}}},
		Spec: akriv0.InstanceSpec{
			ConfigurationName: "cam", CDIName: "akri.sh/cam=8120fe", Capacity: 2, Shared: true, Nodes: []string{"node-a", "node-b"},
			BrokerProperties: map[string]string{"WIN": "configuration", "URL": "rtsp://x"},
			// The last was claimed when the capacity was larger.
			DeviceUsage: map[string]string{"cam-8120fe-0": "C:pod-uid:node-a", "cam-8120fe-1": "", "cam-8120fe-5": "node-b"},
		},
		Status: akriv0.InstanceStatus{Device: "foo0", FreeSlots: 1, NodeCount: 2, Problems: []string{"left out",
			"the claim of slot cam-8120fe-1 by node node-c for pod default/p does not count: why",
			"the claim of slot cam-8120fe-5 by node node-b for pod default/p does not count: beyond",
			"the claim of slot cam-8120fe-6 by node node-c for pod default/p does not count: both"}},
	}
	if diff := cmp.Diff(want, view(key, d, nil)); diff != "" {
		t.Errorf("view (-want +got):\n%s", diff)
	}

	d.Reported, d.Nodes, d.LeftOut, d.Claims = nil, nil, nil, d.Claims[:1]
	d.Claims[0].DoesNotCount = errors.New("unseen")
	gone := view(key, d, want)
	if !maps.Equal(gone.Spec.BrokerProperties, want.Spec.BrokerProperties) || !gone.Spec.Shared {
		t.Errorf("a device that nobody sees has another description: %+v", gone.Spec)
	}
	if gone.Status.Device != "foo0" || gone.Status.FreeSlots != 2 {
		t.Errorf("of a device that nobody sees the status is %+v, want what it was, with all slots free", gone.Status)
	}
	if gone.Status.NodeCount != 0 || len(gone.Spec.Nodes) != 0 || len(gone.Status.Problems) != 2 || gone.Spec.DeviceUsage["cam-8120fe-0"] != "" {
		t.Errorf("a device that nobody sees: %+v", gone)
	}
}

func TestViewLeavesWhatIsNotItsOwn(t *testing.T) {
	reported := device(nil)
	existing := &akriv0.Instance{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "cam-8120fe", UID: "i", ResourceVersion: "7",
		Labels: map[string]string{"l": "v"}, Annotations: map[string]string{"a": "v"},
		Finalizers: []string{"node-a", metav1.FinalizerDeleteDependents, "instances.kube.rs"},
		OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "akri.sh/v0", Kind: "Configuration", Name: "cam", UID: "former"}, {APIVersion: "v1", Kind: "ConfigMap", Name: "c", UID: "c"}},
	}}
	before := existing.DeepCopy()
	got := view(key, inventory.Device{Configuration: configuration(1), Reported: &reported, Nodes: []string{"a"}}, existing)
	if diff := cmp.Diff(before, existing); diff != "" {
		t.Errorf("what was read was changed:\n%s", diff)
	}
	if !maps.Equal(got.Labels, existing.Labels) || !maps.Equal(got.Annotations, existing.Annotations) || got.UID != "i" || got.ResourceVersion != "7" {
		t.Errorf("metadata: %+v", got.ObjectMeta)
	}
	if !slices.Equal(got.Finalizers, []string{metav1.FinalizerDeleteDependents}) {
		t.Errorf("finalizers %q, want the garbage collector's alone", got.Finalizers)
	}
	if len(got.OwnerReferences) != 1 || got.OwnerReferences[0].UID != "cam-uid" {
		t.Errorf("owners %+v, want the Configuration alone", got.OwnerReferences)
	}
}

// within counts the slots in use that the capacity has room for.
func within(i *akriv0.Instance) int {
	n := 0
	for index := range int(i.Spec.Capacity) {
		if i.Spec.DeviceUsage[slot.Name{Instance: i.Name, Index: index}.String()] != "" {
			n++
		}
	}
	return n
}

// Whatever is reported and claimed, the API server takes the Instance, and readers
// find each slot.
func TestViewIsValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.SampledFrom([]int{0, 1, 7, 40, akriv0.MaxListedCapacity, akriv0.MaxListedCapacity + 1, 10_000}).Draw(t, "capacity")
		reported := device(nil)
		d := inventory.Device{Configuration: configuration(int32(capacity))}
		for i := range rapid.IntRange(0, 250).Draw(t, "nodes") {
			d.Nodes = append(d.Nodes, fmt.Sprintf("node-%03d", i))
		}
		if len(d.Nodes) > 0 {
			d.Reported = &reported
		}
		for i := range 60 {
			if rapid.IntRange(0, 3).Draw(t, "claimed") > 0 {
				continue
			}
			c := inventory.Claim{SlotClaim: claimOf(i, "node-000", v1alpha1.ConfigurationLevel), Index: i}
			if len(d.Nodes) == 0 || i >= max(capacity, 1) {
				c.DoesNotCount = errors.New("why")
			}
			d.Claims = append(d.Claims, c)
		}
		for i := range rapid.IntRange(0, 20).Draw(t, "left out") {
			d.LeftOut = append(d.LeftOut, strings.Repeat("ä", 1000)+fmt.Sprint(i))
		}
		i := view(key, d, nil)
		if len(i.Spec.Nodes) > akriv0.MaxInstanceNodes || int(i.Status.NodeCount) != len(d.Nodes) || !slices.IsSorted(i.Spec.Nodes) {
			t.Fatalf("%d nodes, count %d", len(i.Spec.Nodes), i.Status.NodeCount)
		}
		if len(i.Status.Problems) > 16 {
			t.Fatalf("%d problems", len(i.Status.Problems))
		}
		for _, p := range i.Status.Problems {
			if len([]rune(p)) > maxProblemLength {
				t.Fatalf("a problem of %d characters", len([]rune(p)))
			}
		}
		for n := range int(i.Spec.Capacity) {
			if use, listed := i.Spec.DeviceUsage[slot.Name{Instance: key.Name, Index: n}.String()]; listed == (use == "" && i.Spec.Capacity > akriv0.MaxListedCapacity) {
				t.Fatalf("slot %d of %d is %q, listed %v", n, i.Spec.Capacity, use, listed)
			}
		}
		if want := int(i.Spec.Capacity) - within(i); int(i.Status.FreeSlots) != want {
			t.Fatalf("%d free slots, want %d", i.Status.FreeSlots, want)
		}
		held := 0
		for _, value := range i.Spec.DeviceUsage {
			u, err := slot.ParseUsage(value)
			if err != nil {
				t.Fatal(err)
			}
			if !u.Free() {
				held++
			}
		}
		if want := len(d.Claims); len(d.Nodes) > 0 && held != want || len(d.Nodes) == 0 && held != 0 {
			t.Fatalf("%d slots are held, want %d: %v", held, want, i.Spec.DeviceUsage)
		}
	})
}
