package dra

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
)

// podOf is a pod on the node that uses the ResourceClaim.
func podOf(name, claim string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "uid-of-" + "pod"},
		Spec: corev1.PodSpec{NodeName: here, ResourceClaims: []corev1.PodResourceClaim{{Name: "cam",
			ResourceClaimName: ptr.To(claim)}}}}
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
	ended := podOf("ended", "claim-u1")
	ended.Status.Phase = corev1.PodSucceeded
	extendedStatus := corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "claim-u1"}
	extended := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x"},
		Spec:   corev1.PodSpec{NodeName: here},
		Status: corev1.PodStatus{ExtendedResourceClaimStatus: &extendedStatus}}
	for name, test := range map[string]struct {
		claim      *resourceapi.ResourceClaim // nil: it is gone
		pods       []runtime.Object
		containers []*runtimeapi.Container
		released   bool
	}{
		"gone":                               {released: true},
		"gone, and another has its name":     {claim: anew, released: true},
		"not allocated":                      {claim: deallocated, released: true},
		"allocated anew":                     {claim: elsewhere, released: true},
		"allocated, and its pod is to come":  {claim: allocated},
		"its pod is here":                    {pods: []runtime.Object{podOf("p", "claim-u1")}},
		"by an extended resource":            {pods: []runtime.Object{extended}},
		"its pod has ended":                  {pods: []runtime.Object{ended}, released: true},
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
			if err := r.leftovers(t.Context()); (err != nil) != (len(test.containers) > 0 && !test.released) {
				t.Error(err)
			}
			if released := len(a.claimed(t)) == 0; released != test.released || (r.spec("u1") == "") != test.released {
				t.Errorf("released: %t, spec %q; want released: %t", released, r.spec("u1"), test.released)
			}
		})
	}
}

// A mirror pod has another UID than the static pod whose containers run.
func TestUnknownPods(t *testing.T) {
	mirror := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "mirror",
		Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "static"}}}
	exited := container("c2", "former", "")
	exited.State = runtimeapi.ContainerState_CONTAINER_EXITED
	all := []*runtimeapi.Container{container("c1", "static", ""), exited}
	if got := unknown(all, []*corev1.Pod{mirror}); got != "" {
		t.Errorf("%s is not known", got)
	}
	if got := unknown(all, nil); got != "ns/pod-static" {
		t.Errorf("got %q", got)
	}
}
