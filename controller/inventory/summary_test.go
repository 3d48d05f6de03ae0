package inventory

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

func TestSummary(t *testing.T) {
	cam := types.NamespacedName{Namespace: "default", Name: "cam"}
	v := New()
	c := configuration("default", "cam", nil)
	summary := func(what string, want Summary) {
		t.Helper()
		if d := cmp.Diff(want, v.Summary(cam)); d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
	}
	summary("nothing", Summary{})
	v.SetConfiguration(c)
	v.SetSlice(sliceAt(0, "a-0", "a", device("foo0", true, ""), device("foo1", true, "")))
	v.SetSlice(sliceAt(0, "a-1", "a", device("foo2", true, "")))
	v.SetSlice(sliceAt(0, "b-0", "b", device("foo1", true, "")))
	empty := sliceAt(0, "c-0", "c")
	empty.Spec.Problems = []v1alpha1.Problem{
		{Configuration: &v1alpha1.ConfigurationReference{Namespace: "default", Name: "cam"}, Reason: "R", Message: "m"}, {Reason: "All", Message: "m"},
		{Configuration: &v1alpha1.ConfigurationReference{Namespace: "default", Name: "other"}, Reason: "Other", Message: "m"}}
	v.SetSlice(empty)
	problems := []NodeProblem{{"c", "All", "m"}, {"c", "R", "m"}}
	summary("three devices", Summary{Instances: 3, Nodes: 2, Slots: 6, Problems: problems})
	v.SetClaim(claimOf(foo0, 0, "a"))
	v.SetClaim(claimOf(foo0, 1, "b")) // does not see it: does not count
	summary("claimed", Summary{Instances: 3, Nodes: 2, Slots: 6, Held: 1, Problems: problems})
	bad := device("foo3", true, "")
	bad.Configuration.Namespace = "elsewhere"
	v.SetSlice(sliceAt(0, "b-0", "b", bad))
	got := v.Summary(cam)
	if got.Instances != 3 || got.Nodes != 1 || got.LeftOut != 1 || got.FirstLeftOut == "" {
		t.Errorf("a report of another namespace: %+v", got)
	}
	older := configuration("elsewhere", "cam", nil)
	c2 := c.DeepCopy()
	c2.CreationTimestamp.Time = sliceAt(9, "", "").CreationTimestamp.Time
	v.SetConfiguration(c2)
	v.SetConfiguration(older)
	if got := v.Summary(cam); got.TakenBy != older || got.Instances != 0 || got.Problems != nil {
		t.Errorf("another has the name: %+v", got)
	}
	if got := v.Count(); !cmp.Equal(got, map[Count]int{{"cam", true}: 1}) {
		t.Errorf("counts %v", got)
	}
}

const foo0 = "cam-8120fe"

// Of a Configuration and one that is named as its Instance the older has the name, in
// whichever order they are seen, and whether or not there is such a device.
func TestSummaryOfAConfigurationNamedAsAnInstance(t *testing.T) {
	cam, named := types.NamespacedName{Namespace: "default", Name: "cam"}, types.NamespacedName{Namespace: "default", Name: foo0}
	at := func(name string, seconds int64) *akriv0.Configuration {
		return configuration("default", name, func(c *akriv0.Configuration) { c.CreationTimestamp = sliceAt(seconds, "", "").CreationTimestamp })
	}
	other := device("lens", true, "")
	other.Configuration.Name = foo0
	for name, tc := range map[string]struct {
		cam, named int64  // when each is created
		owner      string // of the name
		instances  [2]int
		leftOut    string // of cam
		taken      int    // as a metric
	}{
		"cam is older":   {1, 2, "cam", [2]int{2, 0}, "", 1},
		"cam is younger": {2, 1, foo0, [2]int{1, 1}, `the report of node a is left out: device "foo0": Configuration default/` + foo0 + " is older, and has the name of its Instance", 0},
	} {
		for _, first := range []string{"cam", foo0, "slice"} {
			v := New()
			steps := map[string]func(){
				"cam":   func() { v.SetConfiguration(at("cam", tc.cam)) },
				foo0:    func() { v.SetConfiguration(at(foo0, tc.named)) },
				"slice": func() { v.SetSlice(sliceAt(0, "a-0", "a", device("foo0", true, ""), device("foo1", true, ""), other)) },
			}
			steps[first]()
			for step, do := range steps {
				if step != first {
					do()
				}
			}
			a, b := v.Summary(cam), v.Summary(named)
			taken := tc.owner == "cam"
			if a.TakenBy != nil || (b.TakenBy != nil) != taken || taken && b.TakenBy.Name != "cam" ||
				v.TakenBy(named) != b.TakenBy || (v.InForce(foo0) == nil) != taken {
				t.Errorf("%s, %s first: %s is taken by %+v", name, first, foo0, b.TakenBy)
			}
			if a.Instances != tc.instances[0] || b.Instances != tc.instances[1] || !strings.HasPrefix(a.FirstLeftOut, tc.leftOut) || (a.LeftOut > 0) != (tc.leftOut != "") {
				t.Errorf("%s, %s first: %+v and %+v", name, first, a, b)
			}
			if n := v.CountProblems()[ProblemCount{foo0, ReasonNameTaken}]; n != tc.taken {
				t.Errorf("%s, %s first: %d problems in the metric", name, first, n)
			}
			unseen := v.TakenBy(types.NamespacedName{Namespace: "default", Name: "cam-a19705"})
			if unseen == nil || unseen.Name != "cam" {
				t.Errorf("%s: a name that nobody has yet: %+v", name, unseen)
			}
			v.DeleteConfiguration("default", "cam")
			if b := v.Summary(named); b.TakenBy != nil || b.Instances != 1 {
				t.Errorf("%s, %s first: once cam is gone: %+v", name, first, b)
			}
		}
	}
}

// With spec.discovery the nodes that it selects reach the devices.
func TestSummaryOfDiscovery(t *testing.T) {
	v := New()
	v.SetConfiguration(configuration("default", "cam", func(c *akriv0.Configuration) { c.Spec.Discovery = &akriv0.Discovery{} }))
	for i := range 5 {
		v.SetNode(fmt.Sprint("n", i), Node{})
	}
	if s := v.Summary(types.NamespacedName{Namespace: "default", Name: "cam"}); s.Nodes != 0 {
		t.Errorf("no device: %+v", s)
	}
	v.SetSlice(sliceAt(0, "n1-0", "n1", device("foo0", true, "")))
	if s := v.Summary(types.NamespacedName{Namespace: "default", Name: "cam"}); s.Nodes != 5 || s.Instances != 1 {
		t.Errorf("one device: %+v", s)
	}
}

// What brokers and status depend on has them looked at; what they do not, not.
func TestWhatIsLookedAt(t *testing.T) {
	instance := []types.NamespacedName{{Namespace: "default", Name: foo0}}
	cam := []types.NamespacedName{{Namespace: "default", Name: "cam"}}
	withBroker := configuration("default", "cam", func(c *akriv0.Configuration) { c.Spec.BrokerSpec = &akriv0.BrokerSpec{} })
	problem := func(name string) *v1alpha1.DeviceSlice {
		s := sliceAt(0, "a-0", "a", device("foo0", true, ""))
		s.Spec.Problems = []v1alpha1.Problem{{Reason: name}}
		return s
	}
	v := New()
	for _, step := range []struct {
		what                    string
		do                      func() Change
		brokers, configurations []types.NamespacedName
	}{
		{"Configuration", func() Change { return v.SetConfiguration(withBroker) }, nil, cam},
		{"found", func() Change { return v.SetSlice(sliceAt(0, "a-0", "a", device("foo0", true, ""))) }, instance, nil},
		{"the same", func() Change { return v.SetSlice(sliceAt(0, "a-0", "a", device("foo0", true, ""))) }, nil, nil},
		{"a problem of all", func() Change { return v.SetSlice(problem("P")) }, nil, cam},
		{"the same problem", func() Change { return v.SetSlice(problem("P")) }, nil, nil},
		{"claimed", func() Change { return v.SetClaim(claimOf(foo0, 0, "a")) }, nil, nil},
		{"node", func() Change { return v.SetNode("a", Node{Ready: true}) }, instance, nil},
		{"node unchanged", func() Change { return v.SetNode("a", Node{Ready: true}) }, nil, nil},
		{"node cordoned", func() Change { return v.SetNode("a", Node{Ready: true, Unschedulable: true}) }, instance, nil},
		{"node tainted", func() Change { return v.SetNode("a", Node{Ready: true, Taints: []corev1.Taint{{Key: "k"}}}) }, instance, nil},
		{"another node", func() Change { return v.SetNode("b", Node{Ready: true}) }, nil, nil},
		{"node not Ready", func() Change { return v.SetNode("a", Node{}) }, instance, nil},
		{"node gone", func() Change { return v.DeleteNode("a") }, instance, nil},
		{"capacity", func() Change {
			c := withBroker.DeepCopy()
			c.Spec.Capacity = 7
			return v.SetConfiguration(c)
		}, append(slices.Clone(instance), instance...), cam},
		{"everything", v.Everything, instance, cam},
		{"slice gone", func() Change { return v.DeleteSlice("a-0") }, instance, cam},
		{"Configuration gone", func() Change { return v.DeleteConfiguration("default", "cam") }, instance, cam},
	} {
		change := step.do()
		if d := cmp.Diff(step.brokers, change.Brokers); d != "" {
			t.Errorf("%s: brokers (-want +got):\n%s", step.what, d)
		}
		if d := cmp.Diff(step.configurations, change.Configurations); d != "" {
			t.Errorf("%s: configurations (-want +got):\n%s", step.what, d)
		}
	}
}

// Whether it is a problem that nodes lack a handler depends on which nodes report: its Configuration is
// looked at when one that has the handler, and says nothing of it, joins or leaves.
func TestNodesThatLackAHandler(t *testing.T) {
	cam := types.NamespacedName{Namespace: "default", Name: "cam"}
	v := New()
	v.SetConfiguration(configuration("default", "cam", nil))
	lacks := func(name, node string) *v1alpha1.DeviceSlice {
		s := sliceAt(0, name, node)
		s.Spec.Problems = []v1alpha1.Problem{{Configuration: &v1alpha1.ConfigurationReference{Namespace: "default", Name: "cam"}, Reason: v1alpha1.UnknownHandler, Message: "m"}}
		return s
	}
	for _, step := range []struct {
		what    string
		do      func() Change
		looked  bool
		problem int
		without int
	}{
		{"one lacks it", func() Change { return v.SetSlice(lacks("a-0", "a")) }, true, 1, 0},
		{"its second slice", func() Change { return v.SetSlice(sliceAt(0, "a-1", "a")) }, false, 1, 0},
		{"another has it", func() Change { return v.SetSlice(sliceAt(0, "b-0", "b")) }, true, 0, 1},
		{"a third has it", func() Change { return v.SetSlice(sliceAt(0, "c-0", "c")) }, false, 0, 1},
		{"the third leaves", func() Change { return v.DeleteSlice("c-0") }, false, 0, 1},
		{"the other leaves", func() Change { return v.DeleteSlice("b-0") }, true, 1, 0},
		{"it is there", func() Change { return v.SetSlice(sliceAt(0, "a-0", "a")) }, true, 0, 0},
	} {
		looked := slices.Contains(step.do().Configurations, cam)
		s := v.Summary(cam)
		counted := v.CountProblems()[ProblemCount{"cam", v1alpha1.UnknownHandler}]
		if looked != step.looked || len(s.Problems) != step.problem || counted != step.problem || s.WithoutHandler != step.without {
			t.Errorf("%s: looked at: %v, %+v, %d in the metric; want %+v", step.what, looked, s, counted, step)
		}
	}
}

// A selector of nodes that selects none is seen when it is, and no more when a node has the labels.
func TestHandlerNodeSelectorThatSelectsNoNode(t *testing.T) {
	cam := types.NamespacedName{Namespace: "default", Name: "cam"}
	v := New()
	v.SetConfiguration(configuration("default", "cam", func(c *akriv0.Configuration) { c.Spec.HandlerNodeSelector = map[string]string{"sonar": "true"} }))
	if v.Summary(cam).Nowhere {
		t.Error("no node is known yet, and the selector is said to select none")
	}
	has := map[string]string{"sonar": "true"}
	for _, step := range []struct {
		what            string
		do              func() Change
		looked, nowhere bool
	}{
		{"another node", func() Change { return v.SetNode("a", Node{}) }, false, true},
		{"its labels come", func() Change { return v.SetNode("a", Node{Labels: has}) }, true, false},
		{"they go", func() Change { return v.SetNode("a", Node{}) }, true, true},
		{"one with them", func() Change { return v.SetNode("b", Node{Labels: has}) }, true, false},
		{"it goes", func() Change { return v.DeleteNode("b") }, true, true},
	} {
		looked := slices.Contains(step.do().Configurations, cam)
		if s := v.Summary(cam); looked != step.looked || s.Nowhere != step.nowhere {
			t.Errorf("%s: looked at: %v, nowhere: %v", step.what, looked, s.Nowhere)
		}
	}
}

// However many names a node makes up for properties, the same few are named each time: each change is a write.
func TestManyWithheldProperties(t *testing.T) {
	v := New()
	v.SetConfiguration(configuration("default", "cam", nil))
	d := device("foo0", true, "")
	d.Properties = map[string]string{}
	for i := range 3000 {
		d.Properties[fmt.Sprintf("X%04d", i)] = "x"
	}
	v.SetSlice(sliceAt(0, "a-0", "a", d))
	for range 3 {
		got := v.Summary(types.NamespacedName{Namespace: "default", Name: "cam"}).Withheld
		if len(got) != maxWithheld || got[0] != "X0000" || got[maxWithheld-1] != "X0009" {
			t.Fatalf("withheld: %q", got)
		}
	}
}
