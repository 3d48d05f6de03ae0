package claims

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

func node(name string) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + "-uid")}}
}

func pod(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name + "-uid")},
		Spec: v1.PodSpec{InitContainers: []v1.Container{{Name: "warm"}}, Containers: []v1.Container{{Name: "main"}}}}
}

// of are the claims of a pod on the node for the slots of cam-8120fe: any device was
// requested, or this one for slots that are written !n.
func of(p, on string, indices ...string) []*v1alpha1.SlotClaim {
	var grants []assignment.Grant
	for _, index := range indices {
		number, il := strings.CutPrefix(index, "!")
		name, err := slot.Parse("cam-8120fe-" + number)
		if err != nil {
			panic(err)
		}
		g := assignment.Grant{Resource: "cam", Slot: name}
		if il {
			g.Resource = name.Instance
		}
		grants = append(grants, g)
	}
	return Of(pod(p), node(on), map[string][]assignment.Grant{"main": grants})
}

// What the pod's containers get is claimed as kubecri claims it, each slot once.
func TestClaimsOfAPod(t *testing.T) {
	first, second := slot.Name{Instance: "cam-8120fe"}, slot.Name{Instance: "cam-8120fe", Index: 1}
	var got []string
	for _, c := range Of(pod("p"), node("a"), map[string][]assignment.Grant{
		"warm": {{Resource: "cam", Slot: first}}, // main uses it later
		"main": {{Resource: "cam", Slot: first}, {Resource: "cam-8120fe", Slot: second}},
	}) {
		o := c.OwnerReferences[0]
		got = append(got, fmt.Sprint(c.Name, c.Labels, c.Spec.NodeName, *c.Spec.Pod, c.Spec.Container, c.Spec.Level, c.Spec.Holder, o.Kind, o.Name, o.UID))
	}
	want := []string{
		"cam-8120fe-0map[kubeslot.io/configuration:cam]a{default p p-uid}warmCLp-uidNodeaa-uid",
		"cam-8120fe-1map[kubeslot.io/configuration:cam]a{default p p-uid}mainILp-uidNodeaa-uid",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
