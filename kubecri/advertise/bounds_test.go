package advertise

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeslot/kubeslot/kubecri/nodewriter"
	"github.com/kubeslot/kubeslot/types"
	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// numbered are so many names with a number behind them.
func numbered(prefix string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("%s%03d", prefix, i))
	}
	return names
}

// all has each of the names.
func all[V any](prefix string, names []string, value V) map[string]V {
	has := map[string]V{}
	for _, name := range names {
		has[prefix+name] = value
	}
	return has
}

// A node with more than it may advertise keeps what it says already, and then takes the
// resources of the oldest Configurations. It is the same with each look.
func TestResourcesBeyondWhatANodeMayAdvertise(t *testing.T) {
	full, half := numbered("cam", MaxSlotResources), numbered("cam", MaxSlotResources/2)
	more := append(slices.Clone(full), "a-new", "b-newer")
	reversed := slices.Clone(full)
	slices.Reverse(reversed)
	for name, tc := range map[string]struct {
		has      []string // Configurations whose resource the node has
		there    []string // Configurations that have slots on the node, the oldest first
		withheld []types.ResourceName
	}{
		"as many as it may":        {there: full},
		"newer ones":               {has: full, there: more, withheld: []types.ResourceName{"akri.sh/a-new", "akri.sh/b-newer"}},
		"older ones, that come":    {has: full, there: append([]string{"older"}, full...), withheld: []types.ResourceName{"akri.sh/older"}},
		"a new node":               {there: append(slices.Clone(reversed), "a-new"), withheld: []types.ResourceName{"akri.sh/a-new"}},
		"room for some":            {has: half, there: more, withheld: []types.ResourceName{"akri.sh/a-new", "akri.sh/b-newer"}},
		"more than it may already": {has: more, there: more, withheld: []types.ResourceName{"akri.sh/a-new", "akri.sh/b-newer"}}, // the newest of them go
	} {
		t.Run(name, func(t *testing.T) {
			has := all("akri.sh/", tc.has, "1")
			v := view{node: node(has, has), devices: types.NewNodeInfoWithName("a"), settled: true, slots: all("", tc.there, int64(1)), byAge: tc.there, now: time.Unix(1000, 0)}
			p := plan(v)
			if diff := cmp.Diff(tc.withheld, p.withheld); diff != "" {
				t.Errorf("withheld (-want +got):\n%s", diff)
			}
			for _, name := range p.withheld {
				if written := strings.Contains(encoded(t, p.patch), fmt.Sprintf("%q:\"1\"", name)); written {
					t.Errorf("%s is written", name)
				}
			}
		})
	}
}

// The same of device plugins, whatever the number of Configurations.
func TestPluginResourcesBeyondWhatANodeMayAdvertise(t *testing.T) {
	names := numbered("example.com/r", MaxPluginResources+1)
	info := types.NewNodeInfoWithName("a")
	for _, name := range names {
		info.KubeCap[types.ResourceName(name)] = 1
	}
	n := node(all("", names[1:], "1"), all("", names[1:], "1"))
	n.Annotations[v1alpha1.PluginResourcesAnnotation] = strings.Join(names[1:], ",")
	p := plan(view{node: n, devices: info, settled: true, slots: all("", numbered("cam", MaxSlotResources), int64(1)),
		now: time.Unix(1000, 0)})
	if p.notWritten != nil {
		t.Fatal(p.notWritten)
	}
	if want := []types.ResourceName{"example.com/r000"}; !slices.Equal(p.withheld, want) {
		t.Errorf("withheld %v, want %v", p.withheld, want)
	}
	if strings.Contains(encoded(t, p.patch), v1alpha1.PluginResourcesAnnotation) || strings.Contains(encoded(t, p.patch), `"example.com/r000":"1"`) {
		t.Errorf("patch %.300s", encoded(t, p.patch))
	}
}

// What device plugins say, and is more than the annotation may have, is not written.
func TestDeviceInfoBeyondWhatANodeMaySay(t *testing.T) {
	info := types.NewNodeInfoWithName("a")
	info.Capacity[types.ResourceName(strings.Repeat("x", MaxDeviceInfo))] = 1
	p := plan(view{node: node(nil, nil), devices: info, settled: true, slots: map[string]int64{"cam": 2},
		now: time.Unix(1000, 0)})
	if p.notWritten == nil || !strings.Contains(p.notWritten.Error(), "of 131072 that are allowed") {
		t.Errorf("%v", p.notWritten)
	}
	if want := `{"status":{"capacity":{"akri.sh/cam":"2"},"allocatable":{"akri.sh/cam":"2"}}}`; encoded(t, p.patch) != want {
		t.Errorf("patch %.300s, want %s", encoded(t, p.patch), want)
	}
}

func TestNamesByAge(t *testing.T) {
	made := func(name string, seconds int64) *v0.Configuration {
		return &v0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(seconds, 0)}}
	}
	if got, want := namesByAge([]*v0.Configuration{made("c", 3), made("b", 1), made("a", 3), made("d", 2)}), []string{"b", "d", "a", "c"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// The node says what is withheld, and when nothing is any more.
func TestWithheldCondition(t *testing.T) {
	names := []types.ResourceName{"akri.sh/a", "akri.sh/b"}
	c, need := condition(node(nil, nil), names)
	if !need || c.Status != corev1.ConditionTrue || !strings.HasPrefix(c.Type, nodewriter.ConditionPrefix) ||
		!strings.Contains(c.Message, "2 resources are not advertised") ||
		!strings.HasSuffix(c.Message, "Not advertised: akri.sh/a, akri.sh/b") {
		t.Errorf("%v, %+v", need, c)
	}
	if _, need := condition(node(nil, nil), nil); need {
		t.Error("a node that never had too many says something")
	}
	before := node(nil, nil)
	before.Status.Conditions = []corev1.NodeCondition{{Type: WithheldCondition, Status: corev1.ConditionTrue}}
	if c, need := condition(before, nil); !need || c.Status != corev1.ConditionFalse {
		t.Errorf("%v, %+v", need, c)
	}
	if got := joined(slices.Repeat(names, 6)); !strings.HasSuffix(got, ", and 2 more") {
		t.Error(got)
	}
}
