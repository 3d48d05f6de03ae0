package source

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kubedevice "github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Which pods hold slots is decided by their metadata and the claims; a pod is read when these do not tell.
func TestHolders(t *testing.T) {
	name := slot.Name{Instance: "cam-f30c78"}
	given := func(holder string) map[string]string {
		var c kubedevice.ContainerInfo
		assignment.Set(&c, []assignment.Grant{{Resource: "cam", Slot: name}})
		made, err := assignment.Encode(&kubedevice.PodInfo{NodeName: "a",
			RunningContainers: map[string]kubedevice.ContainerInfo{"main": c}}, holder, nil)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	claimed := func(node, holder string) []v1alpha1.SlotClaim {
		return []v1alpha1.SlotClaim{*v1alpha1.NewSlotClaim(name, v1alpha1.SlotClaimSpec{NodeName: node, Holder: holder,
			Pod: &v1alpha1.PodReference{Namespace: "default", Name: "p", UID: types.UID(holder)}},
			metav1.OwnerReference{})}
	}
	seen := *v1alpha1.NewSlotClaim(name, v1alpha1.SlotClaimSpec{NodeName: "a", Holder: "device-7"},
		metav1.OwnerReference{})
	seen.Annotations = map[string]string{v1alpha1.PodAnnotation: "default/p"}
	for what, tc := range map[string]struct {
		annotations    map[string]string
		claims         []v1alpha1.SlotClaim
		known, unclear bool
	}{
		"it was assigned nothing":                   {},
		"it has claimed what it was assigned":       {given("u"), claimed("a", "u"), true, false},
		"it has not claimed it":                     {given("u"), nil, false, true},
		"another has claimed it":                    {given("u"), claimed("a", "v"), false, true},
		"it is claimed on another node":             {given("u"), claimed("b", "u"), false, true},
		"its annotation is a copy of another pod's": {given("v"), claimed("a", "v"), false, false},
		"its annotation cannot be read": {map[string]string{assignment.Annotation: "{",
			assignment.HolderAnnotation: "u"},
			nil, false, false},
		"a claim names it, and it has no annotation": {nil, claimed("a", "u"), false, true},
		"a kubelet gave it a slot":                   {nil, []v1alpha1.SlotClaim{seen}, false, true},
	} {
		pod := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "u",
			Annotations: tc.annotations}}
		known, unclear := holders([]metav1.PartialObjectMetadata{pod}, tc.claims)
		if (len(known) > 0) != tc.known || (len(unclear) > 0) != tc.unclear {
			t.Errorf("%s: known %v, unclear %v; want %v, %v", what, known, unclear, tc.known, tc.unclear)
		}
		for _, o := range known {
			want := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "u"},
				Spec: corev1.PodSpec{NodeName: "a"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
			if diff := cmp.Diff(want, o); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
		}
	}
}
