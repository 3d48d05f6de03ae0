package claims

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/slot"
)

func cam(usage map[string]string) *akriv0.Instance {
	return &akriv0.Instance{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cam-1", UID: "i1", ResourceVersion: "1"},
		Spec:       akriv0.InstanceSpec{ConfigurationName: "cam", Capacity: 2, Nodes: []string{"a"}, DeviceUsage: usage},
	}
}

func name(index int) slot.Name { return slot.Name{Instance: "cam-1", Index: index} }

func cl(index int) Claim { return Claim{name(index): {Node: "a", Holder: "u1"}} }
func il(index int) Claim { return Claim{name(index): {Node: "a"}} }

// What the pod's containers get is claimed as kubecri claims it, each slot once.
func TestClaimsOfAPod(t *testing.T) {
	got := Of("u1", "a", map[string][]assignment.Grant{
		"warm": {{Resource: "cam", Slot: name(0)}}, // reused by main
		"main": {{Resource: "cam", Slot: name(0)}, {Resource: "cam-1", Slot: name(1)}, {Resource: "cam", Ordinal: 1, Slot: slot.Name{Instance: "cam-2"}}},
	})
	if len(got) != 2 || len(got["cam-1"]) != 2 || got["cam-1"][name(0)].String() != "C:u1:a" || got["cam-1"][name(1)].String() != "a" ||
		got["cam-2"][slot.Name{Instance: "cam-2"}].String() != "C:u1:a" {
		t.Errorf("%v", got)
	}
}

func TestTake(t *testing.T) {
	both := Claim{name(0): {Node: "a", Holder: "u1"}, name(1): {Node: "a"}}
	for _, test := range []struct {
		name   string
		usage  map[string]string
		change func(*akriv0.Instance)
		claim  Claim
		mine   bool
		writes int
		held   string // a part of the reason
	}{
		{name: "free", usage: map[string]string{"cam-1-0": "", "cam-1-1": ""}, claim: both, writes: 2},
		{name: "free, in the sparse form", usage: map[string]string{}, claim: both, writes: 2},
		{name: "nothing listed at all", claim: both, writes: 2},
		{name: "the pod's already", usage: map[string]string{"cam-1-0": "C:u1:a"}, claim: cl(0)},
		{name: "one of two the pod's already", usage: map[string]string{"cam-1-0": "C:u1:a"}, claim: both, writes: 1},
		{name: "another pod's", usage: map[string]string{"cam-1-0": "C:u2:b"}, claim: cl(0), held: "cam-1-0 is claimed by holder u2 on node b"},
		{name: "the pod's on another node", usage: map[string]string{"cam-1-0": "C:u1:b"}, claim: cl(0), held: "on node b"},
		{name: "held through the Instance", usage: map[string]string{"cam-1-0": "b"}, claim: cl(0), held: "by a pod on node b through its Instance"},
		{name: "so held on the same node is another pod's", usage: map[string]string{"cam-1-0": "a"}, claim: il(0), held: "by a pod on node a"},
		{name: "unless it was just written here", usage: map[string]string{"cam-1-0": "a"}, claim: il(0), mine: true},
		{name: "unreadable", usage: map[string]string{"cam-1-0": "C:x"}, claim: cl(0), held: "unknown holder"},
		{name: "one of two held", usage: map[string]string{"cam-1-1": "b"}, claim: both, held: "cam-1-1"},
		{name: "beyond the capacity", claim: cl(2), held: "cam-1-2 does not exist"},
		{name: "out of reach", change: func(in *akriv0.Instance) { in.Spec.Nodes = []string{"b"} }, claim: cl(0), held: "cannot be reached from node a"},
	} {
		t.Run(test.name, func(t *testing.T) {
			in := cam(test.usage)
			if test.change != nil {
				test.change(in)
			}
			patch, err := take(in, test.claim, test.mine)
			var held *Held
			if errors.As(err, &held) != (test.held != "") || err != nil && !strings.Contains(err.Error(), test.held) {
				t.Fatalf("error %v, want one with %q", err, test.held)
			}
			writes := 0
			for _, o := range patch {
				if o.Op == "add" && strings.HasPrefix(o.Path, "/spec/deviceUsage/") {
					writes++
				}
			}
			if writes != test.writes || (writes == 0) != (len(patch) == 0) {
				t.Errorf("%d writes in %v, want %d", writes, patch, test.writes)
			}
		})
	}
}

func TestReleaseTakesBackOnlyItsOwn(t *testing.T) {
	in := cam(map[string]string{"cam-1-0": "C:u2:a", "cam-1-1": "C:u1:a"})
	patch := release(in, Claim{name(0): {Node: "a", Holder: "u1"}, name(1): {Node: "a", Holder: "u1"}})
	if len(patch) != 3 || patch[2] != (operation{"add", "/spec/deviceUsage/cam-1-1", ""}) {
		t.Errorf("%v", patch)
	}
	if patch := release(in, cl(0)); patch != nil {
		t.Errorf("another's claim: %v", patch)
	}
}
