package deviceslices

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/agent/reports"
	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// reported is what is known of a Configuration whose handler sees the devices.
func reported(c *v0.Configuration, label string, devices ...discovery.Device) Known {
	e := reports.Examination{Configuration: c, Node: "node-a", Named: func(string) string { return "" }, Allowed: func(discovery.Device) error { return nil }}
	found, _ := e.Examine(discovery.Result{Devices: devices, Shared: true})
	return Known{Label: label, Standing: reports.Standing{Settled: true, Devices: found}}
}

// apply makes the changes as the API server would.
func apply(is []*v1alpha1.DeviceSlice, changes ...change) []*v1alpha1.DeviceSlice {
	is = slices.Clone(is)
	for _, c := range changes {
		is = slices.DeleteFunc(is, func(s *v1alpha1.DeviceSlice) bool { return s.Name == c.slice.Name })
		if !c.delete {
			s := c.slice.DeepCopy()
			s.ResourceVersion = "1"
			is = append(is, s)
		}
	}
	return is
}

// Whatever the slices are and the handlers report: two phases of writes make the slices
// say it within the limits, write no slice that is right, and leave nothing to do. No
// device that stays is missing in between, in whatever order a phase is written.
func TestPlan(t *testing.T) {
	configurations := []*v0.Configuration{configuration("cam"), configuration("mic"), configuration("gps")}
	sizes := rapid.SampledFrom([]int{0, 0, 1000, 20_000})
	rapid.Check(t, func(t *rapid.T) {
		v := &view{node: "node-a", owner: v1alpha1.NodeOwner("node-a", "uid")}
		for pass := range 3 {
			v.Known, v.Complete = map[v1alpha1.ConfigurationReference]Known{}, rapid.Bool().Draw(t, "complete")
			ref := reports.Reference(configurations[0])
			v.Problems = slices.Repeat([]v1alpha1.Problem{{Configuration: &ref}},
				rapid.SampledFrom([]int{0, 0, 1, 70}).Draw(t, "problems"))
			want, unusable := map[string]int{}, map[string]bool{}
			for i, c := range configurations {
				if rapid.IntRange(0, 4).Draw(t, "gone") == 0 {
					continue
				}
				label := rapid.SampledFrom([]string{"", "", c.Name}).Draw(t, "label")
				var devices []discovery.Device
				first, n, size := rapid.IntRange(0, 200).Draw(t, "first"), rapid.IntRange(0, 300).Draw(t, "n"), sizes.Draw(t, "size")
				for id := first; id < first+n; id++ {
					devices = append(devices, discovery.Device{ID: fmt.Sprint(i, id), Properties: map[string]string{"X": strings.Repeat("x", size)}})
				}
				k := reported(c, label, devices...)
				for _, hash := range slices.Sorted(maps.Keys(k.Devices)) {
					f := k.Devices[hash]
					f.Unschedulable = rapid.IntRange(0, 3).Draw(t, "lost") == 0
					k.Devices[hash] = f
				}
				if k.Settled = rapid.IntRange(0, 4).Draw(t, "unsettled") > 0; !k.Settled {
					k.Unreported.Shared = reports.Age(rapid.IntRange(int(reports.Usable), int(reports.Withdrawn)).Draw(t, "unreported"))
					k.Had = map[string]bool{}
					if rapid.Bool().Draw(t, "nothing reported") {
						k.Devices = nil
					}
					for _, s := range v.slices {
						for _, d := range s.Spec.Devices {
							if d.Configuration != reports.Reference(c) {
								continue
							}
							if rapid.IntRange(0, 9).Draw(t, "had") == 0 {
								k.Had[d.Hash] = true
							} else if k.Unreported.Shared != reports.Withdrawn {
								want[d.ID] = 1
								unusable[d.ID] = d.Unschedulable || k.Unreported.Shared == reports.Unschedulable
							}
						}
					}
				}
				for _, f := range k.Devices {
					want[f.ID], unusable[f.ID] = 1, f.Unschedulable
				}
				v.Known[reports.Reference(c)] = k
			}
			// Of what goes, devices of which the node holds slots stay listed, as gone.
			gone := map[string]bool{}
			if v.Holds = nil; rapid.Bool().Draw(t, "holds slots") {
				residue := rapid.IntRange(0, 2).Draw(t, "held")
				v.Holds = func(instance string) bool { return int(instance[len(instance)-1])%3 == residue }
				for _, s := range v.slices {
					for _, d := range s.Spec.Devices {
						if want[d.ID] == 0 && s.Labels[DiscoveryLabel] == "" && v.Holds(d.Instance()) {
							want[d.ID], unusable[d.ID], gone[d.ID] = 1, true, true
						}
					}
				}
			}
			count := func(is []*v1alpha1.DeviceSlice) map[string]int {
				ids := map[string]int{}
				for _, s := range is {
					for _, d := range s.Spec.Devices {
						ids[d.ID]++
					}
				}
				return ids
			}
			before := count(v.slices)
			first, then := plan(v)
			for _, phase := range [][]change{first, then} {
				for _, c := range rapid.Permutation(phase).Draw(t, "order") {
					at := slices.IndexFunc(v.slices, func(s *v1alpha1.DeviceSlice) bool { return s.Name == c.slice.Name })
					if at >= 0 && !c.delete && apiequality.Semantic.DeepEqual(v.slices[at].Spec, c.slice.Spec) {
						t.Fatalf("pass %d writes %s, which is right", pass, c.slice.Name)
					}
					v.slices = apply(v.slices, c)
					meanwhile := count(v.slices)
					for id := range before {
						if want[id] > 0 && meanwhile[id] == 0 {
							t.Fatalf("pass %d: device %s is missing after the write of %s", pass, id, c.slice.Name)
						}
					}
				}
			}
			if is := count(v.slices); !maps.Equal(is, want) {
				t.Fatalf("pass %d reports %d devices, want %d: %v", pass, len(is), len(want), cmp.Diff(want, is))
			}
			for _, s := range v.slices {
				bytes := 0
				for _, d := range s.Spec.Devices {
					bytes += reports.Size(d)
					k := v.Known[d.Configuration]
					if d.Unschedulable != unusable[d.ID] {
						t.Fatalf("device %s is unschedulable: %t, want %t", d.ID, d.Unschedulable, unusable[d.ID])
					}
					_, reported := k.Devices[d.Hash]
					if gone[d.ID] && !d.Gone || d.Gone && (reported || !d.Unschedulable) {
						t.Fatalf("device %s is gone: %t, want %t; it is reported: %t", d.ID, d.Gone, gone[d.ID], reported)
					}
					if (reported || k.Settled && !d.Gone) && k.Label != s.Labels[DiscoveryLabel] {
						t.Fatalf("device %s is in slice %s with labels %v, want %q", d.ID, s.Name, s.Labels, k.Label)
					}
				}
				if len(s.Spec.Devices) > v1alpha1.MaxDevices || bytes > v1alpha1.MaxSliceBytes || len(s.Spec.Problems) > v1alpha1.MaxProblems {
					t.Fatalf("slice %s has %d devices of %d bytes and %d problems", s.Name, len(s.Spec.Devices), bytes, len(s.Spec.Problems))
				}
			}
			if len(v.slices) == 0 && (v.Complete || len(v.Problems) > 0) {
				t.Fatal("no slice")
			}
			if first, then = plan(v); len(first)+len(then) > 0 {
				t.Fatalf("pass %d leaves something to do: %d and %d changes", pass, len(first), len(then))
			}
		}
	})
}

// In whatever order problems come, they are written alike: else each pass would write.
func TestProblemsHaveAnOrder(t *testing.T) {
	ref := reports.Reference(configuration("cam"))
	var all []v1alpha1.Problem
	for i := range 20 {
		all = append(all, v1alpha1.Problem{Configuration: &ref, Reason: "DiscoveryFailed", Message: fmt.Sprint("endpoint ", i)})
	}
	want := tidy(all)
	rapid.Check(t, func(t *rapid.T) {
		if got := tidy(rapid.Permutation(all).Draw(t, "order")); !cmp.Equal(got, want) {
			t.Errorf("problems %v, want %v", got, want)
		}
	})
}

// BenchmarkPlan plans what a change of one of 10,000 devices takes.
func BenchmarkPlan(b *testing.B) {
	v := &view{node: "node-a", owner: v1alpha1.NodeOwner("node-a", "uid"),
		State: State{Known: map[v1alpha1.ConfigurationReference]Known{}}}
	for i := range 50 {
		c := configuration(fmt.Sprintf("cam%d", i))
		var devices []discovery.Device
		for n := range 200 {
			id := fmt.Sprintf("foo%d", n)
			devices = append(devices, discovery.Device{ID: id, Properties: map[string]string{"ID": id, "PATH": "/dev/" + id}})
		}
		v.Known[reports.Reference(c)] = reported(c, "", devices...)
	}
	first, _ := plan(v)
	v.slices = apply(nil, first...)
	v.slices[7].Spec.Devices[3].ID = "another"
	b.ReportAllocs()
	for b.Loop() {
		if first, then := plan(v); len(first) != 0 || len(then) != 1 {
			b.Fatal(len(first), len(then))
		}
	}
}

func configuration(name string) *v0.Configuration {
	return &v0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "cameras", Name: name, UID: types.UID("uid-" + name)},
		Spec: v0.ConfigurationSpec{DiscoveryHandler: v0.DiscoveryHandlerInfo{Name: "echoes"}}}
}
