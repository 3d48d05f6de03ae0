package scheduler

import (
	"encoding/json"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kubeslot "github.com/kubeslot/kubeslot/types"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/slot"
)

// The check after a run finds each way in which slots can be given out wrongly.
func TestCheckSlots(t *testing.T) {
	ours := run{arm: arm{resource: assignment.ResourcePrefix + kindName}}
	instances := map[string]*akriv0.Instance{}
	for _, name := range []string{"cam-a", "cam-b"} {
		instances[name] = &akriv0.Instance{Spec: akriv0.InstanceSpec{Capacity: 2, Nodes: []string{"node-a"}}}
	}
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
			errs := ours.checkSlots(tc.pods, instances)
			if tc.want == "" && len(errs) > 0 || tc.want != "" && (len(errs) != 1 || !strings.Contains(errs[0].Error(), tc.want)) {
				t.Errorf("checkSlots() = %v, want one error with %q", errs, tc.want)
			}
		})
	}
}

// assignedPod is a bound pod that asks for some slots and was assigned others.
func assignedPod(t *testing.T, r run, name, node string, asked int, slots ...string) v1.Pod {
	t.Helper()
	p := r.pod(asked)
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
	info := &kubeslot.PodInfo{Name: name, NodeName: node, RunningContainers: map[string]kubeslot.ContainerInfo{"main": c}}
	text, err := json.Marshal(info)
	if err != nil {
		t.Fatal(err)
	}
	p.Annotations = map[string]string{assignment.Annotation: string(text), assignment.HolderAnnotation: name}
	return *p
}

// With claimMode Scheduler, also each way in which claims can be wrong.
func TestCheckClaims(t *testing.T) {
	strict := run{arm: arm{resource: assignment.ResourcePrefix + kindName, strict: true}}
	for name, tc := range map[string]struct {
		usage map[string]string
		want  string
	}{
		"right":              {usage: map[string]string{"cam-a-0": "C:a:node-a", "cam-a-1": ""}},
		"not claimed":        {usage: map[string]string{"cam-a-0": ""}, want: `slot cam-a-0 is claimed as "" instead of "C:a:node-a"`},
		"not even listed":    {want: "slot cam-a-0 is not claimed"},
		"by another":         {usage: map[string]string{"cam-a-0": "C:b:node-a"}, want: `"C:b:node-a" instead of`},
		"left by a pod gone": {usage: map[string]string{"cam-a-0": "C:a:node-a", "cam-a-1": "node-a"}, want: `slot cam-a-1 is claimed as "node-a" instead of ""`},
	} {
		t.Run(name, func(t *testing.T) {
			instances := map[string]*akriv0.Instance{"cam-a": {Spec: akriv0.InstanceSpec{Capacity: 2, Nodes: []string{"node-a"}, DeviceUsage: tc.usage}}}
			errs := strict.checkSlots([]v1.Pod{assignedPod(t, strict, "a", "node-a", 1, "cam-a-0")}, instances)
			if tc.want == "" && len(errs) > 0 || tc.want != "" && (len(errs) != 1 || !strings.Contains(errs[0].Error(), tc.want)) {
				t.Errorf("checkSlots() = %v, want one error with %q", errs, tc.want)
			}
		})
	}
}
