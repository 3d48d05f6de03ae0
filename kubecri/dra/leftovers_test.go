package dra

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// podOf is a pod on the node that uses the ResourceClaim.
func podOf(name, claim string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "uid-of-" + "pod"},
		Spec: corev1.PodSpec{NodeName: here, ResourceClaims: []corev1.PodResourceClaim{{Name: "cam",
			ResourceClaimName: ptr.To(claim)}}}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
}

// What a kubelet that has lost its state does not unprepare is released when the ResourceClaim is not
// allocated any more, and no container runs that may still use it.
func TestLeftovers(t *testing.T) {
	allocated := claim("u1", "one "+camera+" 1")
	elsewhere := claim("u1", "one "+camera+" 1")
	elsewhere.Status.Allocation.Devices.Results[0].ShareID = ptr.To(types.UID("s9"))
	deallocated := claim("u1")
	deallocated.Status.Allocation = nil
	anew := claim("u2", "one "+camera+" 1")
	anew.Name = "claim-u1"
	strange := claim("u2", "one "+camera+" 1")
	strange.Name, strange.Status.Allocation.Devices.Results[0].Device = "claim-u1", "strange"
	ended := podOf("ended", "claim-u1")
	ended.Status.Phase = corev1.PodSucceeded
	pending := podOf("pending", "claim-u1")
	pending.Status.Phase = corev1.PodPending
	extendedStatus := corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "claim-u1"}
	extended := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x"},
		Spec:   corev1.PodSpec{NodeName: here},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ExtendedResourceClaimStatus: &extendedStatus}}
	for name, test := range map[string]struct {
		claim      *resourceapi.ResourceClaim // nil: it is gone
		pods       []runtime.Object
		containers []*runtimeapi.Container
		released   bool
	}{
		"gone":                              {released: true},
		"gone, and another has its name":    {claim: anew, released: true},
		"the same, with another's device":   {claim: strange, released: true},
		"not allocated":                     {claim: deallocated, released: true},
		"allocated anew":                    {claim: elsewhere, released: true},
		"allocated, and its pod is to come": {claim: allocated},
		"allocated, and its pod waits":      {claim: allocated, pods: []runtime.Object{pending}},
		"gone, and a pod waits for another of its name": {claim: anew, pods: []runtime.Object{pending},
			released: true},
		"its pod is here":         {pods: []runtime.Object{podOf("p", "claim-u1")}},
		"by an extended resource": {pods: []runtime.Object{extended}},
		"its pod has ended":       {pods: []runtime.Object{ended}, released: true},
		"its pod has ended, and a container runs": {pods: []runtime.Object{ended},
			containers: []*runtimeapi.Container{container("c1", "uid-of-pod", "")}},
		"another's pod is here":              {pods: []runtime.Object{podOf("p", "another")}, released: true},
		"a container of an unknown pod runs": {containers: []*runtimeapi.Container{container("c1", "unknown", "")}},
		"a container of a known pod runs": {pods: []runtime.Object{podOf("p", "another")},
			containers: []*runtimeapi.Container{container("c1", "uid-of-pod", "")}, released: true},
	} {
		t.Run(name, func(t *testing.T) {
			objects := test.pods
			if test.claim != nil {
				objects = append(slices.Clone(objects), test.claim)
			}
			a := newAPI(configuration(2), objects...)
			r := start(t, a, here, t.TempDir())
			if err := r.ask(t, allocated); err != nil {
				t.Fatal(err)
			}
			r.runtime.has(test.containers...)
			if err := r.look(t.Context()); (err != nil) != (len(test.containers) > 0 && !test.released) {
				t.Error(err)
			}
			if released := len(r.held(t)) == 0; released != test.released || (r.spec("u1") == "") != test.released {
				t.Errorf("released: %t, spec %q; want released: %t", released, r.spec("u1"), test.released)
			}
		})
	}
}

// A spec whose SlotClaims somebody has deleted, and that cannot be made again, is left over, too.
func TestLeftoverSpec(t *testing.T) {
	a := newAPI(configuration(2))
	r := start(t, a, here, t.TempDir())
	if err := r.ask(t, claim("u1", "one "+camera+" 1")); err != nil {
		t.Fatal(err)
	}
	r.lose(t, camera+"-0")
	if err := r.look(t.Context()); err != nil || r.spec("u1") != "" {
		t.Errorf("%v; left %s", err, r.spec("u1"))
	}
}

// Of two ResourceClaims of one name, of which a running pod uses the later one, the former is left over.
func TestLeftoverOfTheName(t *testing.T) {
	former, now := claim("u1", "one "+camera+" 1"), claim("u2", "one "+camera+" 1")
	now.Name = former.Name
	a := newAPI(configuration(2), now, podOf("p", now.Name))
	r := start(t, a, here, t.TempDir())
	for _, c := range []*resourceapi.ResourceClaim{former, now} {
		if err := r.ask(t, c); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.look(t.Context()); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(map[string]string{camera + "-1": "dra.u2.s0"}, r.held(t)); diff != "" ||
		r.spec("u1") != "" || r.spec("u2") == "" {
		t.Errorf("(-want +got):\n%s%s%s", diff, r.spec("u1"), r.spec("u2"))
	}
}

// What is prepared stays so also when the watch shows a slot of it too many, whose creation was not answered: that one
// is released, though a container uses the claim.
func TestLeftoverOfWhatIsPrepared(t *testing.T) {
	c, pod := claim("u1", "one "+camera+" 1"), podOf("p", "claim-u1")
	pod.Status.Phase = corev1.PodPending
	a := newAPI(configuration(2), c, pod)
	r := start(t, a, here, t.TempDir())
	if err := r.ask(t, c); err != nil {
		t.Fatal(err)
	}
	before := r.spec("u1")
	r.runtime.has(container("c1", "uid-of-pod", ""))
	a.put(t, camera+"-1", v1alpha1.SlotClaimSpec{NodeName: here, Holder: "dra.u1.s0", ResourceClaim: reference(c)})
	await.That(t, "the slot to be released", func() bool { return a.claimed(t)[camera+"-1"] == "" })
	if err := r.look(t.Context()); err != nil || r.spec("u1") != before {
		t.Errorf("%v; its spec is\n%s", err, r.spec("u1"))
	}
	if diff := cmp.Diff(map[string]string{camera + "-0": "dra.u1.s0"}, r.held(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
