package claims

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/slot"
)

const here, there = "node-a", "node-b"

// cam returns an Instance of Configuration "cam" that both nodes can reach.
func cam(name string, capacity int32, usage map[string]string) *akriv0.Instance {
	return &akriv0.Instance{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "uid-" + "x", ResourceVersion: "1"},
		Spec:       akriv0.InstanceSpec{ConfigurationName: "cam", Capacity: capacity, Nodes: []string{here, there}, DeviceUsage: usage},
	}
}

func mustSlot(t testing.TB, name string) slot.Name {
	t.Helper()
	s, err := slot.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func cl(uid string) slot.Usage { return slot.Usage{Node: here, Holder: uid} }

func TestDecide(t *testing.T) {
	s0, s1, s9 := mustSlot(t, "cam-a1-0"), mustSlot(t, "cam-a1-1"), mustSlot(t, "cam-a1-9")
	held := func(s slot.Name, u slot.Usage) map[slot.Name][]holder {
		return map[slot.Name][]holder{s: {{usage: u, pod: Pod{UID: u.Holder}}}}
	}
	now := time.Unix(1000, 0)
	const grace = 20 * time.Second
	for _, test := range []struct {
		name    string
		usage   map[string]string
		stray   bool // the Instance is not the owner of its name
		uses    uses
		orphans map[orphan]time.Time
		want    map[string]string // "-" for a removed entry
		recheck time.Duration
		lost    int
		settled []slot.Name
	}{
		{name: "free and unused"},
		{name: "held as claimed", usage: map[string]string{"cam-a1-0": "C:u1:node-a"}, uses: uses{held: held(s0, cl("u1"))}},
		{name: "a claim with no container is given time", usage: map[string]string{"cam-a1-0": "C:u1:node-a"}, recheck: grace},
		{name: "also one through the Instance", usage: map[string]string{"cam-a1-0": "node-a"}, recheck: grace},
		{name: "its time passes", usage: map[string]string{"cam-a1-0": "C:u1:node-a"},
			orphans: map[orphan]time.Time{{s0, "C:u1:node-a"}: now.Add(-15 * time.Second)}, recheck: 5 * time.Second},
		{name: "its time is over", usage: map[string]string{"cam-a1-0": "C:u1:node-a", "cam-a1-1": "node-a"},
			orphans: map[orphan]time.Time{{s0, "C:u1:node-a"}: now.Add(-grace), {s1, "node-a"}: now.Add(-grace)},
			want:    map[string]string{"cam-a1-0": "", "cam-a1-1": ""}},
		{name: "another claim's time is another", usage: map[string]string{"cam-a1-0": "C:u2:node-a"},
			orphans: map[orphan]time.Time{{s0, "C:u1:node-a"}: now.Add(-grace)}, recheck: grace},
		{name: "a bound pod's claim stays, though its containers are long in coming",
			usage:   map[string]string{"cam-a1-0": "C:u1:node-a", "cam-a1-1": "node-a"},
			uses:    uses{due: map[slot.Name][]slot.Usage{s0: {cl("u1")}, s1: {{Node: here}}}},
			orphans: map[orphan]time.Time{{s0, "C:u1:node-a"}: now.Add(-grace), {s1, "node-a"}: now.Add(-grace)}},
		{name: "another pod's on the same slot does not", usage: map[string]string{"cam-a1-0": "C:u2:node-a"},
			uses: uses{due: map[slot.Name][]slot.Usage{s0: {cl("u1")}}}, recheck: grace},
		{name: "no time when the container is known to have gone", usage: map[string]string{"cam-a1-0": "C:u1:node-a"},
			uses: uses{freed: map[slot.Name]bool{s0: true}}, want: map[string]string{"cam-a1-0": ""}, settled: []slot.Name{s0}},
		{name: "gone and released", usage: map[string]string{"cam-a1-0": ""},
			uses: uses{freed: map[slot.Name]bool{s0: true}}, settled: []slot.Name{s0}},
		{name: "a create in flight is not touched", usage: map[string]string{"cam-a1-0": "C:u1:node-a"},
			uses:    uses{busy: map[slot.Name]bool{s0: true}, freed: map[slot.Name]bool{s0: true}},
			orphans: map[orphan]time.Time{{s0, "C:u1:node-a"}: now.Add(-grace)}},
		{name: "nor is its claim re-made", usage: map[string]string{"cam-a1-0": ""},
			uses: uses{busy: map[slot.Name]bool{s0: true}, held: held(s0, cl("u1"))}},
		{name: "another node's claims are not ours", usage: map[string]string{"cam-a1-0": "C:u1:node-b", "cam-a1-1": "node-b"},
			uses: uses{freed: map[slot.Name]bool{s0: true}}, settled: []slot.Name{s0}},
		{name: "nor is what cannot be read", usage: map[string]string{"cam-a1-0": "C:broken", "cam-zz-0": "node-a", "nonsense": "node-a"}},
		{name: "a lost claim is re-made", usage: map[string]string{"cam-a1-0": ""}, uses: uses{held: held(s0, cl("u1"))},
			want: map[string]string{"cam-a1-0": "C:u1:node-a"}},
		{name: "also in the sparse form", uses: uses{held: held(s1, slot.Usage{Node: here})}, want: map[string]string{"cam-a1-1": "node-a"}},
		{name: "not beyond the capacity", uses: uses{held: held(s9, cl("u1"))}},
		{name: "not in an Instance that only has the name", stray: true, uses: uses{held: held(s0, cl("u1"))}},
		{name: "a claim beyond the capacity stays while held", usage: map[string]string{"cam-a1-9": "C:u1:node-a"}, uses: uses{held: held(s9, cl("u1"))}},
		{name: "and goes altogether", usage: map[string]string{"cam-a1-9": "C:u1:node-a"},
			uses: uses{freed: map[slot.Name]bool{s9: true}}, want: map[string]string{"cam-a1-9": "-"}, settled: []slot.Name{s9}},
		{name: "a claim of a pod that has no container here is the container's", usage: map[string]string{"cam-a1-0": "C:u2:node-a"},
			uses: uses{held: held(s0, cl("u1"))}, want: map[string]string{"cam-a1-0": "C:u1:node-a"}},
		{name: "claimed by another node while used here", usage: map[string]string{"cam-a1-0": "node-b"}, uses: uses{held: held(s0, cl("u1"))}, lost: 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			in := cam("cam-a1", 2, test.usage)
			before := maps.Clone(test.usage)
			d := decide(in, !test.stray, here, test.uses, test.orphans, now, grace)
			got := map[string]string{}
			for key, value := range d.edit {
				if got[key] = "-"; value != nil {
					got[key] = *value
				}
			}
			if test.want == nil {
				test.want = map[string]string{}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("edit (-want +got):\n%s", diff)
			}
			if d.recheck != test.recheck || (test.recheck > 0) != (len(d.orphans) > 0) {
				t.Errorf("recheck %s of %d orphans, want %s", d.recheck, len(d.orphans), test.recheck)
			}
			if len(d.lost) != test.lost {
				t.Errorf("lost %v, want %d", d.lost, test.lost)
			}
			if diff := cmp.Diff(test.settled, d.settled); diff != "" {
				t.Errorf("settled (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, in.Spec.DeviceUsage); diff != "" {
				t.Errorf("the Instance was changed:\n%s", diff)
			}
		})
	}
}

func grants(t testing.TB, resourceAndSlots ...string) []assignment.Grant {
	t.Helper()
	var grants []assignment.Grant
	ordinal := map[string]int{}
	for i := 0; i < len(resourceAndSlots); i += 2 {
		r := resourceAndSlots[i]
		grants = append(grants, assignment.Grant{Resource: r, Ordinal: ordinal[r], Slot: mustSlot(t, resourceAndSlots[i+1])})
		ordinal[r]++
	}
	return grants
}

func TestClaim(t *testing.T) {
	for _, test := range []struct {
		name   string
		usage  map[string]string
		grants []string
		edit   func(*akriv0.Instance)
		want   map[string]string
		errors []string
	}{
		{name: "free", usage: map[string]string{"cam-a1-0": "", "cam-a1-1": ""}, grants: []string{"cam", "cam-a1-0", "cam-a1", "cam-a1-1"},
			want: map[string]string{"cam-a1-0": "C:u1:node-a", "cam-a1-1": "node-a"}},
		{name: "free in the sparse form", grants: []string{"cam", "cam-a1-1"}, want: map[string]string{"cam-a1-1": "C:u1:node-a"}},
		{name: "the pod's already", usage: map[string]string{"cam-a1-0": "C:u1:node-a"}, grants: []string{"cam", "cam-a1-0"}},
		{name: "the node's already", usage: map[string]string{"cam-a1-0": "node-a"}, grants: []string{"cam-a1", "cam-a1-0"}},
		{name: "another Instance's slots are no matter", grants: []string{"cam", "cam-b2-0"}},
		{name: "held by another pod", usage: map[string]string{"cam-a1-0": "C:u2:node-a"}, grants: []string{"cam", "cam-a1-0"}, errors: []string{"cam-a1-0", "u2", "node-a"}},
		{name: "held on another node", usage: map[string]string{"cam-a1-0": "C:u1:node-b"}, grants: []string{"cam", "cam-a1-0"}, errors: []string{"cam-a1-0", "node-b"}},
		{name: "held through the Instance elsewhere", usage: map[string]string{"cam-a1-0": "node-b"}, grants: []string{"cam-a1", "cam-a1-0"}, errors: []string{"cam-a1-0", "node-b"}},
		{name: "held in the other form", usage: map[string]string{"cam-a1-0": "node-a"}, grants: []string{"cam", "cam-a1-0"}, errors: []string{"cam-a1-0"}},
		{name: "held by who knows whom", usage: map[string]string{"cam-a1-0": "C:x"}, grants: []string{"cam", "cam-a1-0"}, errors: []string{"cam-a1-0", "C:x"}},
		{name: "beyond the capacity", grants: []string{"cam", "cam-a1-2"}, errors: []string{"cam-a1-2", "capacity 2"}},
		{name: "beyond the capacity, and the pod's already: the capacity shrank", usage: map[string]string{"cam-a1-2": "C:u1:node-a", "cam-a1-3": "node-a"},
			grants: []string{"cam", "cam-a1-2", "cam-a1", "cam-a1-3"}},
		{name: "beyond the capacity, and another pod's", usage: map[string]string{"cam-a1-2": "C:u2:node-a"}, grants: []string{"cam", "cam-a1-2"}, errors: []string{"cam-a1-2", "capacity 2"}},
		{name: "of another Configuration", grants: []string{"mic", "cam-a1-0"}, errors: []string{"akri.sh/mic", "Configuration cam"}},
		{name: "not reachable from here", grants: []string{"cam", "cam-a1-0"}, edit: func(in *akriv0.Instance) { in.Spec.Nodes = []string{there} }, errors: []string{"cam-a1", "node-b"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			in := cam("cam-a1", 2, test.usage)
			if test.edit != nil {
				test.edit(in)
			}
			e, err := claim(in, here, &Request{Pod: Pod{UID: "u1"}, Grants: grants(t, test.grants...)})
			if (err != nil) != (test.errors != nil) {
				t.Fatalf("error %v, want one with %q", err, test.errors)
			}
			for _, part := range test.errors {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
			if err != nil {
				return
			}
			got := map[string]string{}
			for key, value := range e {
				got[key] = *value
			}
			if test.want == nil {
				test.want = map[string]string{}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestRequestIsVerified(t *testing.T) {
	for _, test := range []struct {
		name      string
		grants    []string
		requested map[string]int64
		errors    []string
	}{
		{name: "as requested", grants: []string{"cam", "cam-a1-0", "cam", "cam-b2-0", "cam-c3", "cam-c3-0"}, requested: map[string]int64{"cam": 2, "cam-c3": 1}},
		{name: "more", grants: []string{"cam", "cam-a1-0", "cam", "cam-b2-0"}, requested: map[string]int64{"cam": 1}, errors: []string{"2 slots of akri.sh/cam", "requests 1"}},
		{name: "not requested at all", grants: []string{"cam", "cam-a1-0"}, errors: []string{"1 slots of akri.sh/cam", "requests 0"}},
		{name: "fewer", grants: []string{"cam", "cam-a1-0"}, requested: map[string]int64{"cam": 2}, errors: []string{"1 slots of akri.sh/cam", "requests 2"}},
		{name: "none", requested: map[string]int64{"cam": 2}, errors: []string{"0 slots of akri.sh/cam", "requests 2"}},
		{name: "one slot twice", grants: []string{"cam", "cam-a1-0", "cam", "cam-a1-0"}, requested: map[string]int64{"cam": 2}, errors: []string{"cam-a1-0", "twice"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := Request{Grants: grants(t, test.grants...), Requested: test.requested}
			err := r.verify()
			if err == nil {
				_, err = r.usages(here)
			}
			if (err != nil) != (test.errors != nil) {
				t.Fatalf("error %v, want one with %q", err, test.errors)
			}
			for _, part := range test.errors {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
		})
	}
}
