package inventory

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

func TestCountProblems(t *testing.T) {
	v := New()
	onEach := configuration("default", "cam", nil)
	onEach.Spec.HandlerNodeSelector = map[string]string{"cameras": "yes"}
	v.SetConfiguration(onEach)
	late := configuration("elsewhere", "cam", nil)
	late.CreationTimestamp.Time = sliceAt(9, "", "").CreationTimestamp.Time
	v.SetConfiguration(late)
	v.SetConfiguration(configuration("default", "mic", nil))
	mic := &v1alpha1.ConfigurationReference{Namespace: "default", Name: "mic"}
	cam := &v1alpha1.ConfigurationReference{Namespace: "default", Name: "cam"}
	report := func(slice, node string, problems ...v1alpha1.Problem) {
		s := sliceAt(0, slice, node)
		s.Spec.Problems = problems
		v.SetSlice(s)
	}
	report("a-0", "a", v1alpha1.Problem{Configuration: cam, Reason: "UnknownHandler"}, v1alpha1.Problem{Reason: "NoLease"})
	report("a-1", "a", v1alpha1.Problem{Configuration: cam, Reason: "UnknownHandler"})                                                                 // a node counts once
	report("b-0", "b", v1alpha1.Problem{Configuration: cam, Reason: "UnknownHandler"}, v1alpha1.Problem{Configuration: mic, Reason: "UnknownHandler"}) // which a has
	var made []v1alpha1.Problem                                                                                                                        // what a node makes up is one reason, and no Configuration
	for i := range 50 {
		made = append(made, v1alpha1.Problem{Configuration: cam, Reason: fmt.Sprint("Made", i)},
			v1alpha1.Problem{Configuration: &v1alpha1.ConfigurationReference{Namespace: "default", Name: fmt.Sprint("made-", i)}, Reason: "UnknownHandler"})
	}
	report("c-0", "c", made...)
	want := map[ProblemCount]int{
		{"cam", "UnknownHandler"}: 2, {"cam", OtherReason}: 1, {"cam", "NoLease"}: 1, {"mic", "NoLease"}: 1, {"cam", ReasonNameTaken}: 1,
	}
	if d := cmp.Diff(want, v.CountProblems()); d != "" {
		t.Errorf("problems (-want +got):\n%s", d)
	}
}

func TestNodesWithoutSlices(t *testing.T) {
	v := New()
	for name, system := range map[string]string{"a": "linux", "b": "linux", "c": "", "d": "windows"} {
		v.SetNode(name, Node{Labels: map[string]string{corev1.LabelOSStable: system}})
	}
	v.SetSlice(sliceAt(0, "a-0", "a"))
	if n := v.NodesWithoutSlices(); n != 2 {
		t.Errorf("%d nodes without slices, want b and c", n)
	}
	v.SetSlice(sliceAt(0, "b-0", "b"))
	v.DeleteNode("c")
	v.DeleteSlice("a-0")
	if n := v.NodesWithoutSlices(); n != 1 {
		t.Errorf("%d nodes without slices, want a", n)
	}
}

// Slots that are held beyond a capacity are counted as it would be, of the Configuration that has the name.
func TestHeldBeyond(t *testing.T) {
	v := New()
	v.SetConfiguration(configuration("default", "cam", func(c *akriv0.Configuration) { c.Spec.Capacity = 4 }))
	a, b := device("foo0", true, ""), device("foo1", true, "")
	v.SetSlice(sliceAt(0, "a-0", "a", a, b))
	for _, c := range []*v1alpha1.SlotClaim{
		claimOf(a.Instance(), 0, "a"), claimOf(a.Instance(), 2, "a"), claimOf(a.Instance(), 3, "a"),
		claimOf(b.Instance(), 2, "a"), claimOf(b.Instance(), 1, "elsewhere"), // which does not count
	} {
		v.SetClaim(c)
	}
	both := slices.Sorted(slices.Values([]string{a.Instance(), b.Instance()}))
	for _, tc := range []struct {
		namespace string
		capacity  int
		held      int
		instances []string
	}{
		{"default", 4, 0, nil}, {"default", 3, 1, []string{a.Instance()}}, {"default", 2, 3, both},
		{"default", 1, 3, both},
		{"other", 1, 0, nil},
	} {
		of := types.NamespacedName{Namespace: tc.namespace, Name: "cam"}
		held, instances := v.HeldBeyond(of, tc.capacity)
		if held != tc.held || !slices.Equal(instances, tc.instances) {
			t.Errorf("%s, capacity %d: %d held of %q, want %d of %q", of, tc.capacity, held, instances, tc.held,
				tc.instances)
		}
	}
}
