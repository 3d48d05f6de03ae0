package devicepluginmode

import (
	"fmt"
	"maps"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// The values of Akri's own tests of what is in use: reconcile_tests of
// agent/src/util/slot_reconciliation.rs, with test/json/shared-instance-list-slots.json, and
// test_get_used_slots. Containers use slots by their annotations. Akri waits for its grace
// period before it releases one; here that is settling.
func TestAkrisReconciliation(t *testing.T) {
	const instance = "config-a-359973"
	was := map[int]string{0: "node-b", 1: "node-a", 2: "node-b", 3: "node-a", 4: "node-c"}
	type step struct {
		uses   []int // slots of containers on node-a
		down   bool  // the runtime's answer fails
		age    time.Duration
		become map[int]string // other than before; "" is free
	}
	for name, steps := range map[string][]step{
		"no slots to reconcile": {{uses: []int{1, 3}, age: settling}},
		"get slots error":       {{down: true, age: time.Hour}},
		"slots to add":          {{uses: []int{3, 5}, become: map[int]string{5: "node-a"}}},
		"slots to delete":       {{uses: []int{3}}, {uses: []int{3}, age: settling, become: map[int]string{1: ""}}},
		"slots to delete and add": {{uses: []int{3}},
			{uses: []int{3, 5}, age: settling, become: map[int]string{1: "", 5: "node-a"}}},
		"slots to delete only temporarily": {{uses: []int{3}}, {uses: []int{1, 3}, age: settling}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI()
			for index, node := range was {
				s := slot.Name{Instance: instance, Index: index}
				spec := v1alpha1.SlotClaimSpec{NodeName: node, Level: v1alpha1.InstanceLevel, Holder: s.String()}
				claim := v1alpha1.NewSlotClaim(s, spec, v1alpha1.NodeOwner(node, ""))
				if _, err := (slotClaims{api: a}).Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			r := newRig(t, a, "node-a", akriv0.ConfigurationSpec{}, "east")
			if err := r.Configurations.Informer().GetIndexer().Add(&akriv0.Configuration{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "config-a"},
				Spec:       akriv0.ConfigurationSpec{Capacity: 6}}); err != nil {
				t.Fatal(err)
			}
			want := maps.Clone(was)
			for i, step := range steps {
				r.step(step.age)
				r.machine.down, r.machine.containers = step.down, nil
				for _, index := range step.uses {
					key, value := slot.Annotation(slot.Name{Instance: instance, Index: index}, "")
					r.machine.containers = append(r.machine.containers, &runtimeapi.Container{Id: fmt.Sprint("c", index), PodSandboxId: fmt.Sprint("s", index),
						State: runtimeapi.ContainerState_CONTAINER_RUNNING, Annotations: map[string]string{key: value}})
				}
				if err := r.refresh(t.Context()); (err != nil) != step.down {
					t.Fatalf("step %d: %v", i, err)
				}
				for index, node := range step.become {
					if want[index] = node; node == "" {
						delete(want, index)
					}
				}
				got := map[int]string{}
				for text, usage := range a.usage() {
					s, err := slot.Parse(text)
					if err != nil {
						t.Fatal(err)
					}
					got[s.Index] = usage
				}
				if !maps.Equal(got, want) {
					t.Errorf("step %d: slots are %v, want %v", i, got, want)
				}
			}
		})
	}

	// test_get_used_slots: of four slots two are this node's, by the id of each.
	r := newRig(t, newAPI(), "node-a", akriv0.ConfigurationSpec{}, "east")
	for index, spec := range []v1alpha1.SlotClaimSpec{
		{NodeName: "node-a", Level: v1alpha1.ConfigurationLevel, Holder: "config-a-1"},
		{NodeName: "node-a", Level: v1alpha1.InstanceLevel, Holder: "instance-a-1"},
		{NodeName: "node-b", Level: v1alpha1.InstanceLevel, Holder: "instance-a-2"},
	} {
		r.shows(v1alpha1.NewSlotClaim(slot.Name{Instance: "instance-a", Index: index}, spec,
			v1alpha1.NodeOwner("node-a", "")), false)
	}
	ids := map[string]string{}
	for _, h := range r.holds("") {
		ids[h.Holder] = h.resource
	}
	if want := map[string]string{"config-a-1": "akri.sh/instance", "instance-a-1": "akri.sh/instance-a"}; !maps.Equal(ids, want) {
		t.Errorf("held are %v, want %v", ids, want)
	}
}
