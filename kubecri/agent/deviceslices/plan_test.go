package agent

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"pgregory.net/rapid"

	"github.com/kubeslot/kubeslot/discovery"
	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// reported is what is known of a Configuration whose handler sees the devices.
func reported(c *v0.Configuration, label string, devices ...discovery.Device) known {
	e := examination{configuration: c, node: "node-a", named: func(string) string { return "" }, allowed: func(discovery.Device) error { return nil }}
	found, _ := e.examine(discovery.Result{Devices: devices, Shared: true})
	return known{label: label, standing: standing{settled: true, devices: found}}
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
			v.known, v.complete = map[v1alpha1.ConfigurationReference]known{}, rapid.Bool().Draw(t, "complete")
			ref := reference(configurations[0])
			v.problems = slices.Repeat([]v1alpha1.Problem{{Configuration: &ref}}, rapid.SampledFrom([]int{0, 0, 1, 70}).Draw(t, "problems"))
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
				for _, hash := range slices.Sorted(maps.Keys(k.devices)) {
					f := k.devices[hash]
					f.unschedulable = rapid.IntRange(0, 3).Draw(t, "lost") == 0
					k.devices[hash] = f
				}
				if k.settled = rapid.IntRange(0, 4).Draw(t, "unsettled") > 0; !k.settled {
					k.unreported.shared = age(rapid.IntRange(int(usable), int(withdrawn)).Draw(t, "unreported"))
					k.had = map[string]bool{}
					if rapid.Bool().Draw(t, "nothing reported") {
						k.devices = nil
					}
					for _, s := range v.slices {
						for _, d := range s.Spec.Devices {
							if d.Configuration != reference(c) {
								continue
							}
							if rapid.IntRange(0, 9).Draw(t, "had") == 0 {
								k.had[d.Hash] = true
							} else if k.unreported.shared != withdrawn {
								want[d.ID] = 1
								unusable[d.ID] = d.Unschedulable || k.unreported.shared == unschedulable
							}
						}
					}
				}
				for _, f := range k.devices {
					want[f.ID], unusable[f.ID] = 1, f.unschedulable
				}
				v.known[reference(c)] = k
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
					bytes += size(d)
					k := v.known[d.Configuration]
					if d.Unschedulable != unusable[d.ID] {
						t.Fatalf("device %s is unschedulable: %t, want %t", d.ID, d.Unschedulable, unusable[d.ID])
					}
					if _, reported := k.devices[d.Hash]; (reported || k.settled) && k.label != s.Labels[DiscoveryLabel] {
						t.Fatalf("device %s is in slice %s with labels %v, want %q", d.ID, s.Name, s.Labels, k.label)
					}
				}
				if len(s.Spec.Devices) > v1alpha1.MaxDevices || bytes > v1alpha1.MaxSliceBytes || len(s.Spec.Problems) > v1alpha1.MaxProblems {
					t.Fatalf("slice %s has %d devices of %d bytes and %d problems", s.Name, len(s.Spec.Devices), bytes, len(s.Spec.Problems))
				}
			}
			if len(v.slices) == 0 && (v.complete || len(v.problems) > 0) {
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
	ref := reference(configuration("cam"))
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

func TestExamine(t *testing.T) {
	first, second := collidingIDs(t)
	device := func(id string) discovery.Device { return discovery.Device{ID: id} }
	with := func(id string, properties int, key, value string) discovery.Device {
		d := discovery.Device{ID: id, Properties: map[string]string{key: value}}
		for n := range properties - 1 {
			d.Properties[fmt.Sprint("P", n)] = ""
		}
		return d
	}
	for name, tc := range map[string]struct {
		devices  []discovery.Device
		change   func(*v0.Configuration)
		local    bool
		named    string   // the id of the device of first's hash so far
		want     []string // ids
		rejected []string // parts of the reasons
	}{
		"nothing":         {},
		"all right":       {devices: []discovery.Device{device("b"), device("a")}, want: []string{"a", "b"}},
		"no id":           {devices: []discovery.Device{device(""), device("a")}, want: []string{"a"}, rejected: []string{"has no id"}},
		"NUL":             {devices: []discovery.Device{device("a\x00")}, rejected: []string{"NUL in the id"}},
		"no UTF-8":        {devices: []discovery.Device{device("\xff")}, rejected: []string{"the id is not text"}},
		"a long id":       {devices: []discovery.Device{device(strings.Repeat("ä", 1024)), device(strings.Repeat("z", 1025))}, want: []string{strings.Repeat("ä", 1024)}, rejected: []string{"more than 1024 characters"}},
		"twice":           {devices: []discovery.Device{device("a"), device("a"), device("a")}, want: []string{"a"}, rejected: []string{"more than once", "more than once"}},
		"many properties": {devices: []discovery.Device{with("a", 256, "x", ""), with("b", 257, "x", "")}, want: []string{"a"}, rejected: []string{"257 properties, of 256"}},
		"large":           {devices: []discovery.Device{with("a", 1, "x", strings.Repeat("x", 60<<10)), with("b", 1, "x", strings.Repeat("x", 64<<10))}, want: []string{"a"}, rejected: []string{"of 65536 that are allowed"}},
		"one hash for two": {
			devices: []discovery.Device{device(second), device(first)}, want: []string{first},
			rejected: []string{"spec.instanceNameDigits: 12 tells them apart"},
		},
		"one hash for two, of which one has it": {
			devices: []discovery.Device{device(second), device(first)}, named: second, want: []string{second},
			rejected: []string{"which comes first"},
		},
		"twelve digits": {
			devices: []discovery.Device{device(second), device(first)}, want: []string{first, second},
			change: func(c *v0.Configuration) { c.Spec.InstanceNameDigits = 12 },
		},
		"for other nodes": {
			devices: []discovery.Device{device("a"), {ID: "b", Mounts: make([]discovery.Mount, 1)}, {ID: "c", DeviceSpecs: make([]discovery.DeviceSpec, 1)}}, want: []string{"a"},
			change:   func(c *v0.Configuration) { c.Spec.Discovery = &v0.Discovery{} },
			rejected: []string{"with spec.discovery other nodes use it", "with spec.discovery other nodes use it"},
		},
		"for other nodes, local": {
			devices: []discovery.Device{device("a")}, local: true,
			change:   func(c *v0.Configuration) { c.Spec.Discovery = &v0.Discovery{} },
			rejected: []string{"with spec.discovery other nodes use it"},
		},
		"properties that are no environment": {
			devices:  []discovery.Device{with("a", 1, "A=B", ""), with("b", 1, "", ""), with("c", 1, "A", "\x00"), with("d", 1, "A", "\xff"), with("e", 1, "A", "=\n")},
			want:     []string{"e"},
			rejected: []string{"name of an environment variable", "name of an environment variable", "not text", "not text"},
		},
		"paths": {
			devices: []discovery.Device{
				{ID: "a", Mounts: []discovery.Mount{{ContainerPath: "/x", HostPath: "/y"}}, DeviceSpecs: []discovery.DeviceSpec{{ContainerPath: "/x", HostPath: "/y", Permissions: "rw"}}},
				{ID: "b", Mounts: []discovery.Mount{{ContainerPath: "x", HostPath: "/y"}}},
				{ID: "c", Mounts: []discovery.Mount{{ContainerPath: "/x", HostPath: ""}}},
				{ID: "d", DeviceSpecs: []discovery.DeviceSpec{{ContainerPath: "/x", HostPath: "/y\x00"}}},
				{ID: "e", DeviceSpecs: []discovery.DeviceSpec{{ContainerPath: "/x", HostPath: "/y", Permissions: "rwx"}}},
				{ID: "f", Mounts: make([]discovery.Mount, 200), DeviceSpecs: make([]discovery.DeviceSpec, 57)},
				{ID: "g", Mounts: []discovery.Mount{{ContainerPath: "/x", HostPath: "/etc"}}},
			},
			want:     []string{"a"},
			rejected: []string{`containerPath "x"`, `hostPath ""`, `hostPath "/y\x00"`, `permissions "rwx"`, "257 mounts and device nodes", "is not allowed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := configuration("cam")
			if tc.change != nil {
				tc.change(c)
			}
			e := examination{configuration: c, node: "a", named: func(string) string { return tc.named }, allowed: func(d discovery.Device) error {
				if len(d.Mounts) > 0 && d.Mounts[0].HostPath == "/etc" {
					return errors.New("is not allowed")
				}
				return nil
			}}
			devices, rejected := e.examine(discovery.Result{Devices: tc.devices, Shared: !tc.local})
			var ids []string
			for hash, d := range devices {
				ids = append(ids, d.ID)
				report := d.report(reference(c))
				if err := report.Check("a"); err != nil || hash != d.hash || len(hash) != c.Spec.HashDigits() {
					t.Errorf("device %q has hash %s: %v", d.ID, hash, err)
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
	c := configuration("cam")
	c.Spec.InstanceNameDigits = 12
	devices := make([]discovery.Device, maxDevices+10)
	for i := range devices {
		devices[i].ID = fmt.Sprint(i)
	}
	e := examination{configuration: c, node: "a", named: func(string) string { return "" }, allowed: func(discovery.Device) error { return nil }}
	taken, rejected := e.examine(discovery.Result{Devices: devices})
	if len(taken) != maxDevices || summary(rejected) != "1 devices: 20010 devices are reported, of which the first 20000 are taken" {
		t.Errorf("%d devices are taken, rejected: %s", len(taken), summary(rejected))
	}
}

// A flood of devices that cannot be served is counted, and not kept.
func TestExamineKeepsFewRejections(t *testing.T) {
	e := examination{configuration: configuration("cam"), node: "a", named: func(string) string { return "" }}
	_, rejected := e.examine(discovery.Result{Devices: make([]discovery.Device, 50_000)})
	if n := len(rejected); n != maxRejections+1 || rejected[n-1].Error() != "49000 more are left out" {
		t.Errorf("keeps %d rejections, the last is %q", n, rejected[n-1])
	}
	if text := summary(rejected); !strings.HasPrefix(text, "50000 devices: ") || !strings.HasSuffix(text, "; and 49995 more") {
		t.Errorf("summary %q", text)
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

// BenchmarkPlan plans what a change of one of 10,000 devices takes.
func BenchmarkPlan(b *testing.B) {
	v := &view{node: "node-a", owner: v1alpha1.NodeOwner("node-a", "uid"), known: map[v1alpha1.ConfigurationReference]known{}}
	for i := range 50 {
		c := configuration(fmt.Sprintf("cam%d", i))
		var devices []discovery.Device
		for _, id := range many(200) {
			devices = append(devices, discovery.Device{ID: id, Properties: map[string]string{"ID": id, "PATH": "/dev/" + id}})
		}
		v.known[reference(c)] = reported(c, "", devices...)
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
