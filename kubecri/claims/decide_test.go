package claims

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/slot"
)

func TestDecide(t *testing.T) {
	by := func(uid string) []user {
		use := Use{"CL", uid}
		slots := map[slot.Name]Use{mustSlot(t, "cam-a1-0"): use, mustSlot(t, "cam-a1-2"): use}
		return []user{{slots: slots, pod: Pod{UID: uid}}}
	}
	now := time.Unix(1000, 0)
	const grace = 20 * time.Second
	since := func(ago time.Duration) memory { return memory{orphan: "1", since: now.Add(-ago)} }
	made := memory{remade: now.Add(-time.Hour), lost: "9"}
	for _, test := range []struct {
		name     string
		slot     string // cam-a1-0 if empty
		claim    string // with UID 1
		going    bool   // the claim is being deleted
		use      use
		entitled []Use
		known    memory
		want     decision
		remake   bool
	}{
		{name: "free and unused"},
		{name: "held as claimed", claim: "CL u1", use: use{held: by("u1")}, known: made, want: decision{memory: memory{remade: made.remade}}},
		{name: "a claim with no container is given time", claim: "CL u1", want: decision{recheck: grace, memory: since(0)}},
		{name: "also one through the Instance", claim: "IL u1", want: decision{recheck: grace, memory: since(0)}},
		{name: "its time passes", claim: "CL u1", known: since(15 * time.Second), want: decision{recheck: 5 * time.Second, memory: since(15 * time.Second)}},
		{name: "its time is over", claim: "CL u1", known: since(grace), want: decision{remove: true}},
		{name: "another claim's time is another", claim: "CL u1", known: memory{orphan: "0", since: now.Add(-grace)}, want: decision{recheck: grace, memory: since(0)}},
		{name: "a bound pod's claim stays, though its containers are long in coming", claim: "CL u1",
			entitled: []Use{{"CL", "u0"}, {"CL", "u1"}}, known: since(grace)},
		{name: "another pod's on the same slot does not", claim: "CL u2", entitled: []Use{{"CL", "u1"}},
			want: decision{recheck: grace, memory: since(0)}},
		{name: "nor one at the other level", claim: "CL u1", entitled: []Use{{"IL", "u1"}},
			want: decision{recheck: grace, memory: since(0)}},
		{name: "no time when the container is known to have gone", claim: "CL u1",
			use: use{freed: []string{"u0", "u1"}}, entitled: []Use{{"CL", "u1"}},
			want: decision{remove: true, settled: true}},
		{name: "which says nothing of another pod's claim", claim: "CL u2", use: use{freed: []string{"u0", "u1"}},
			entitled: []Use{{"CL", "u2"}}, want: decision{settled: true}},
		{name: "gone and released", use: use{freed: []string{"u0", "u1"}}, want: decision{settled: true}},
		{name: "gone, and the claim is on its way", claim: "CL u1", going: true, use: use{freed: []string{"u0", "u1"}}},
		{name: "a create in flight is not touched", claim: "CL u1", use: use{busy: true, freed: []string{"u0", "u1"}}, known: since(grace), want: decision{memory: since(grace)}},
		{name: "nor is its claim made again", use: use{busy: true, held: by("u1")}},
		{name: "a lost claim is made again", use: use{held: by("u1")}, known: made, want: decision{memory: made}, remake: true},
		{name: "not while it is being deleted", claim: "CL u1", going: true, use: use{held: by("u1")}},
		{name: "not at once a second time", use: use{held: by("u1")}, known: memory{remade: now.Add(-time.Second)},
			want: decision{recheck: remakeInterval - time.Second, memory: memory{remade: now.Add(-time.Second)}}},
		{name: "not beyond the capacity", slot: "cam-a1-2", use: use{held: by("u1")}},
		{name: "a claim beyond the capacity stays while held", slot: "cam-a1-2", claim: "CL u1", use: use{held: by("u1")}},
		{name: "and goes then", slot: "cam-a1-2", claim: "CL u1", use: use{freed: []string{"u0", "u1"}}, want: decision{remove: true, settled: true}},
		{name: "a claim of a pod that has no container here is the container's", claim: "CL u2", use: use{held: by("u1")}, want: decision{remove: true}, remake: true},
		{name: "one of two pods' containers", claim: "CL u1", use: use{held: append(by("u0"), by("u1")...)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.slot == "" {
				test.slot = "cam-a1-0"
			}
			v := view{slot: mustSlot(t, test.slot), use: test.use, entitled: test.entitled, capacity: 2}
			if test.claim != "" {
				v.claim = claimed(t, test.slot, test.claim+" "+here)
				v.claim.UID = "1"
				if test.going {
					v.claim.DeletionTimestamp = &metav1.Time{}
				}
			}
			got := decide(v, test.known, now, grace)
			if (got.remake != nil) != test.remake || test.remake && got.remake.pod.UID != "u1" {
				t.Errorf("made again for %+v, want %t", got.remake, test.remake)
			}
			got.remake = nil
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(decision{}, memory{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A slot is of the Configuration that owns the name, as the scheduler has it.
func TestCheckOfAGrant(t *testing.T) {
	at := func(namespace string, seconds int64, capacity int32) *akriv0.Configuration {
		return &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cam", CreationTimestamp: metav1.Unix(seconds, 0)},
			Spec: akriv0.ConfigurationSpec{Capacity: capacity}}
	}
	going := at("c", 0, 9)
	going.DeletionTimestamp = &metav1.Time{}
	other, older := at("d", 5, 9), at("d", 0, 9) // named as an Instance
	other.Name, older.Name = "cam-8120fe", "cam-8120fe"
	all := []*akriv0.Configuration{at("a", 2, 9), going, at("b", 1, 2), other}
	for _, test := range []struct {
		name   string
		all    []*akriv0.Configuration
		grant  []string
		holds  bool
		errors []string
	}{
		{name: "of the oldest", all: all, grant: []string{"cam", "cam-8120fe-1"}},
		{name: "through the Instance", all: all, grant: []string{"cam-8120fe", "cam-8120fe-1"}},
		{name: "beyond its capacity", all: all, grant: []string{"cam", "cam-8120fe-2"}, errors: []string{"cam-8120fe-2", "capacity 2"}},
		{name: "which the pod holds", all: all, grant: []string{"cam", "cam-8120fe-2"}, holds: true},
		{name: "without a capacity", all: []*akriv0.Configuration{at("a", 1, 0)}, grant: []string{"cam", "cam-8120fe-1"}, errors: []string{"capacity 1"}},
		{name: "none", grant: []string{"cam", "cam-8120fe-0"}, errors: []string{"Configuration cam"}},
		{name: "only one that is being deleted", all: []*akriv0.Configuration{going}, grant: []string{"cam", "cam-8120fe-0"}, holds: true, errors: []string{"being deleted: apply the Configuration again, or delete the pod"}},
		{name: "of another Configuration", all: all, grant: []string{"mic", "cam-8120fe-0"}, errors: []string{"akri.sh/mic", "Configuration cam"}},
		{name: "of one that is named as an older one's Instance", all: all, grant: []string{"cam-8120fe", "cam-8120fe-a19705-0"}, holds: true,
			errors: []string{"Configuration cam-8120fe, which has no devices", "Configuration b/cam is older"}},
		{name: "of the same, which is older", all: append(all[:3:3], older), grant: []string{"cam-8120fe", "cam-8120fe-a19705-0"}},
		{name: "of an Instance with an older one's name", all: append(all[:3:3], older), grant: []string{"cam", "cam-8120fe-0"}, errors: []string{"Configuration d/cam-8120fe has, which is older"}},
		{name: "of the same, which the pod holds", all: append(all[:3:3], older), grant: []string{"cam", "cam-8120fe-0"}, holds: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := check(grants(t, test.grant...)[0], test.all, test.holds)
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
			_, err := r.verify()
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
