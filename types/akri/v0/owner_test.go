package v0

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestCompareOwners(t *testing.T) {
	at := func(namespace string, seconds int64) *Configuration {
		return &Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, CreationTimestamp: metav1.Unix(seconds, 0)}}
	}
	going := at("going", 1)
	going.DeletionTimestamp = &metav1.Time{}
	for name, tc := range map[string]struct {
		all  []*Configuration
		want string // namespaces in order
	}{
		"the oldest":               {[]*Configuration{at("a", 3), at("b", 2), at("c", 4)}, "b a c"},
		"of one age, by namespace": {[]*Configuration{at("b", 2), at("a", 2)}, "a b"},
		"one on its way out":       {[]*Configuration{going, at("b", 2)}, "b going"},
		"one that is not there":    {[]*Configuration{nil, at("b", 2), at("a", 3)}, "b a nil"},
		"none that may":            {[]*Configuration{going, nil}, "going nil"},
	} {
		t.Run(name, func(t *testing.T) {
			slices.SortStableFunc(tc.all, CompareOwners)
			var got []string
			for _, c := range tc.all {
				if c == nil {
					got = append(got, "nil")
					continue
				}
				got = append(got, c.Namespace)
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("order %q, want %q", got, tc.want)
			}
		})
	}
}

// One table for all who ask: the scheduler, kubecri, the controller and kubectl kubeslot.
func TestWhoHasAResourceName(t *testing.T) {
	at := func(key string, seconds int64) *Configuration {
		namespace, name, _ := strings.Cut(key, "/")
		return &Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.Unix(seconds, 0)},
			Spec: ConfigurationSpec{InstanceNameDigits: 6}}
	}
	long := func(key string, seconds int64) *Configuration {
		c := at(key, seconds)
		c.Spec.InstanceNameDigits = 12
		return c
	}
	going := func(key string, seconds int64) *Configuration {
		c := at(key, seconds)
		c.DeletionTimestamp = &metav1.Time{}
		return c
	}
	for name, tc := range map[string]struct {
		all  []*Configuration
		want map[string]string // who has the name
		not  string            // the Configurations that are not in force
	}{
		"nobody": {nil, map[string]string{"cam": "", "cam-8120fe": "", "": "", "-": "", "-8120fe": ""}, ""},
		"Instances are their Configuration's": {[]*Configuration{at("ns/cam", 1)},
			map[string]string{"cam": "ns/cam", "cam-8120fe": "ns/cam", "cam-hd": "", "cam-8120FE": "", "cam-8120f": "", "cam-8120fe0123ab": "", "cam-": "", "mic-8120fe": ""}, ""},
		"with twelve digits": {[]*Configuration{long("ns/cam", 1)}, map[string]string{"cam-8120fe": "", "cam-8120fe0123ab": "ns/cam"}, ""},
		"a younger one named as an Instance": {[]*Configuration{at("ns/cam-8120fe", 2), at("ns/cam", 1)},
			map[string]string{"cam": "ns/cam", "cam-8120fe": "ns/cam", "cam-8120fe-a19705": ""}, "ns/cam-8120fe"},
		"an older one": {[]*Configuration{at("ns/cam-8120fe", 1), at("ns/cam", 2)},
			map[string]string{"cam": "ns/cam", "cam-8120fe": "ns/cam-8120fe", "cam-8120fe-a19705": "ns/cam-8120fe", "cam-a19705": "ns/cam"}, ""},
		"one named as no Instance: other digits": {[]*Configuration{long("ns/cam", 1), at("ns/cam-8120fe", 2)},
			map[string]string{"cam-8120fe": "ns/cam-8120fe"}, ""},
		"one named as no Instance: not hexadecimal": {[]*Configuration{at("ns/cam", 1), at("ns/cam-indoor", 2)},
			map[string]string{"cam-indoor": "ns/cam-indoor"}, ""},
		"of one age, by namespace": {[]*Configuration{at("b/cam", 1), at("a/cam-8120fe", 1)}, map[string]string{"cam-8120fe": "a/cam-8120fe"}, ""},
		"of one age and namespace, by name": {[]*Configuration{at("ns/cam-8120fe", 1), at("ns/cam", 1)},
			map[string]string{"cam-8120fe": "ns/cam"}, "ns/cam-8120fe"},
		"the older is on its way out": {[]*Configuration{going("ns/cam", 1), at("ns/cam-8120fe", 2)},
			map[string]string{"cam": "", "cam-8120fe": "ns/cam-8120fe"}, "ns/cam"},
		"the oldest of its name counts": {[]*Configuration{at("b/cam", 3), at("a/cam", 1), at("ns/cam-8120fe", 2)},
			map[string]string{"cam": "a/cam", "cam-8120fe": "a/cam"}, "b/cam ns/cam-8120fe"},
		"all of the name are younger": {[]*Configuration{at("ns/cam", 1), at("a/cam-8120fe", 2), at("b/cam-8120fe", 3)},
			map[string]string{"cam-8120fe": "ns/cam"}, "a/cam-8120fe b/cam-8120fe"},
		"one that is not in force has no Instances": {[]*Configuration{at("ns/cam", 1), at("ns/cam-8120fe", 2), at("ns/cam-8120fe-a19705", 3)},
			map[string]string{"cam-8120fe": "ns/cam", "cam-8120fe-a19705": "ns/cam-8120fe-a19705"}, "ns/cam-8120fe"},
		"one behind the other": {[]*Configuration{at("ns/cam", 3), at("ns/cam-8120fe", 1), at("ns/cam-8120fe-a19705", 2)},
			map[string]string{"cam-8120fe": "ns/cam-8120fe", "cam-8120fe-a19705": "ns/cam-8120fe"}, "ns/cam-8120fe-a19705"},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // in whichever order they are listed
				slices.Reverse(tc.all)
				oldest := OldestOf(tc.all)
				for name, want := range tc.want {
					got := ""
					if c := oldest.ResourceOwner(name); c != nil {
						got = c.Namespace + "/" + c.Name
					}
					if got != want {
						t.Errorf("%q is the name of %q, want %q", name, got, want)
					}
				}
				var not []string
				for _, c := range tc.all {
					if oldest.InForce(c.Name) != c {
						not = append(not, c.Namespace+"/"+c.Name)
					}
				}
				slices.Sort(not)
				if got := strings.Join(not, " "); got != tc.not {
					t.Errorf("not in force: %q, want %q", got, tc.not)
				}
			}
		})
	}
}
