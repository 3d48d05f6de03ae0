package scheduler

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kubeslot "github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// The check after a run finds each way in which slots can be given out wrongly.
func TestCheckSlots(t *testing.T) {
	ours := run{arm: arm{prefix: assignment.ResourcePrefix}}
	reach := map[string]map[string]bool{"cam-a": {"node-a": true}, "cam-b": {"node-a": true}}
	pod := func(name, node string, asked int, slots ...string) v1.Pod {
		return assignedPod(t, ours, name, node, asked, slots...)
	}
	unassigned := pod("a", "node-a", 1, "cam-a-0")
	unassigned.Annotations = nil
	for name, tc := range map[string]struct {
		pods []v1.Pod
		want string
	}{
		"right":                 {pods: []v1.Pod{pod("a", "node-a", 2, "cam-a-0", "cam-b-0"), pod("b", "node-a", 1, "cam-a-1")}},
		"no assignment":         {pods: []v1.Pod{unassigned}, want: "no assignment"},
		"two holders":           {pods: []v1.Pod{pod("a", "node-a", 1, "cam-a-0"), pod("b", "node-a", 1, "cam-a-0")}, want: "also held by a"},
		"the same slot twice":   {pods: []v1.Pod{pod("a", "node-a", 2, "cam-a-0", "cam-a-0")}, want: "also held by a"},
		"too few":               {pods: []v1.Pod{pod("a", "node-a", 2, "cam-a-0")}, want: "1 slots instead of 2"},
		"beyond the capacity":   {pods: []v1.Pod{pod("a", "node-a", 1, "cam-a-2")}, want: "does not exist"},
		"no such Instance":      {pods: []v1.Pod{pod("a", "node-a", 1, "cam-c-0")}, want: "does not exist"},
		"out of the node's way": {pods: []v1.Pod{pod("a", "node-b", 1, "cam-a-0")}, want: "cannot be reached"},
	} {
		t.Run(name, func(t *testing.T) {
			errs := ours.checkSlots(tc.pods, reach, nil)
			if tc.want == "" && len(errs) > 0 || tc.want != "" && (len(errs) != 1 || !strings.Contains(errs[0].Error(), tc.want)) {
				t.Errorf("checkSlots() = %v, want one error with %q", errs, tc.want)
			}
		})
	}
	two := run{arm: ours.arm, shape: shape{twoKinds: true}}
	errs := two.checkSlots([]v1.Pod{assignedPod(t, two, "a", "node-a", 1, "cam-a-0")}, reach, nil)
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "0 slots instead of 1 for container mic") {
		t.Errorf("of two containers one has its slot: checkSlots() = %v", errs)
	}
}

// assignedPod is a bound pod that asks for some slots and was assigned others.
func assignedPod(t *testing.T, r run, name, node string, asked int, slots ...string) v1.Pod {
	t.Helper()
	p := r.pod(asked, r.kinds()...)
	p.ObjectMeta = metav1.ObjectMeta{Name: name, UID: types.UID(name)}
	p.Spec.NodeName = node
	var grants []assignment.Grant
	for i, s := range slots {
		parsed, err := slot.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		grants = append(grants, assignment.Grant{Resource: kindName, Ordinal: i, Slot: parsed})
	}
	c := kubeslot.ContainerInfo{}
	assignment.Set(&c, grants)
	info := &kubeslot.PodInfo{Name: name, NodeName: node,
		RunningContainers: map[string]kubeslot.ContainerInfo{kindName: c}}
	text, err := json.Marshal(info)
	if err != nil {
		t.Fatal(err)
	}
	p.Annotations = map[string]string{assignment.Annotation: string(text), assignment.HolderAnnotation: name}
	return *p
}

// With claimMode Scheduler, also each way in which claims can be wrong.
func TestCheckClaims(t *testing.T) {
	strict := run{arm: arm{prefix: assignment.ResourcePrefix, strict: true}}
	right := claim{"a", "node-a", v1alpha1.ConfigurationLevel}
	for name, tc := range map[string]struct {
		claims map[string]claim
		want   string
	}{
		"right":              {claims: map[string]claim{"cam-a-0": right}},
		"not claimed":        {want: "slot cam-a-0 is not claimed"},
		"by another":         {claims: map[string]claim{"cam-a-0": {"b", "node-a", v1alpha1.ConfigurationLevel}}, want: "{b node-a CL} instead of {a node-a CL}"},
		"at another node":    {claims: map[string]claim{"cam-a-0": {"a", "node-b", v1alpha1.ConfigurationLevel}}, want: "{a node-b CL} instead of {a node-a CL}"},
		"as if by name":      {claims: map[string]claim{"cam-a-0": {"a", "node-a", v1alpha1.InstanceLevel}}, want: "{a node-a IL} instead of {a node-a CL}"},
		"left by a pod gone": {claims: map[string]claim{"cam-a-0": right, "cam-a-1": right}, want: "slot cam-a-1 is claimed by a on node node-a, and should be free"},
	} {
		t.Run(name, func(t *testing.T) {
			reach := map[string]map[string]bool{"cam-a": {"node-a": true}}
			errs := strict.checkSlots([]v1.Pod{assignedPod(t, strict, "a", "node-a", 1, "cam-a-0")}, reach, tc.claims)
			if tc.want == "" && len(errs) > 0 || tc.want != "" && (len(errs) != 1 || !strings.Contains(errs[0].Error(), tc.want)) {
				t.Errorf("checkSlots() = %v, want one error with %q", errs, tc.want)
			}
		})
	}
}

// What the nodes report is what the scheduler believes, at every size: names are those
// of the devices and all different, and slices are no larger than the API allows.
func TestDeviceSlices(t *testing.T) {
	for _, s := range shapes(100, 1) {
		s.slots *= 10
		t.Run(s.name, func(t *testing.T) {
			reach := make([]v1.Node, s.deviceNodes)
			for i := range reach {
				reach[i].Name = fmt.Sprint("node-", i)
			}
			instances, entries := map[string]bool{}, 0
			for _, part := range (run{shape: s}).deviceSlices(reach) {
				if n := len(part.Spec.Devices); n == 0 || n > v1alpha1.MaxDevices || !strings.HasPrefix(part.Name, part.Spec.NodeName+"-") {
					t.Errorf("slice %s of node %s has %d devices", part.Name, part.Spec.NodeName, n)
				}
				for i := range part.Spec.Devices {
					d := &part.Spec.Devices[i]
					entries++
					instances[d.Instance()] = true
					if err := d.Check(part.Spec.NodeName); err != nil {
						t.Fatal(err)
					}
				}
			}
			n, _ := s.instances()
			n *= len(s.kinds())
			want := n
			if s.shared {
				want *= len(reach)
			}
			if len(instances) != n || entries != want {
				t.Errorf("%d Instances in %d entries, want %d in %d", len(instances), entries, n, want)
			}
		})
	}
}
