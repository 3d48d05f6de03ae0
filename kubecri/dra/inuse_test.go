package dra

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// A claim that was allocated anew has the slots of its new allocation alone, once no container may use the former
// ones: one of a pod that was deleted by force is stopped only afterwards, and that pod's successor may have them.
func TestAllocatedAnew(t *testing.T) {
	a := newAPI(configuration(3))
	r := start(t, a, here, t.TempDir())
	if err := r.ask(t, claim("u1", "one "+camera+" 2")); err != nil {
		t.Fatal(err)
	}
	former := a.claimed(t)
	r.runtime.has(container("c1", "forced", ""))
	c := claim("u1", "one "+other+" 1", "two "+other+" 1")
	for range 2 {
		if err := r.ask(t, c); err == nil || !strings.Contains(err.Error(), "ns/pod-forced") {
			t.Errorf("a container uses its former slots, and the error is %v", err)
		}
		if diff := cmp.Diff(former, a.claimed(t)); diff != "" || !r.says(`!"u1-one"`, camera+"-1")() {
			t.Errorf("(-want +got):\n%s%s", diff, r.spec("u1"))
		}
	}
	r.runtime.has()
	if err := r.ask(t, c); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{other + "-0": "dra.u1.s0", other + "-1": "dra.u1.s1"},
		a.claimed(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Killed after it took the slots of a new allocation, and before it wrote the spec: the next process does not take
// the former spec for the claim's.
func TestSpecOfOtherSlots(t *testing.T) {
	a := newAPI(configuration(3))
	r := start(t, a, here, t.TempDir())
	former := claim("u1", "one "+camera+" 1")
	if err := r.ask(t, former); err != nil {
		t.Fatal(err)
	}
	r.kill()
	a.remove(t, camera+"-0")
	a.put(t, other+"-0", v1alpha1.SlotClaimSpec{NodeName: here, Holder: "dra.u1.s0",
		ResourceClaim: new(reference(former))})
	r = start(t, a, here, r.dir)
	if err := r.ask(t, claim("u1", "one "+other+" 1")); err != nil {
		t.Fatal(err)
	}
	if !r.says(`"u1-one"`, other+"-0", "!"+camera)() {
		t.Errorf("its spec is\n%s", r.spec("u1"))
	}
	if diff := cmp.Diff(map[string]string{other + "-0": "dra.u1.s0"}, a.claimed(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A slot that another has by now is not replaced by the next one while a container may use it: the kubelet is told.
func TestSlotLostWhilePrepared(t *testing.T) {
	a := newAPI(configuration(3), podOf("p", "claim-u1"))
	r := start(t, a, here, t.TempDir())
	c := claim("u1", "one "+camera+" 1")
	if err := r.ask(t, c); err != nil {
		t.Fatal(err)
	}
	r.runtime.has(container("c1", "uid-of-pod", ""))
	a.remove(t, camera+"-0")
	await(t, "the informer to show that the claim is gone", func() bool { return len(r.Claims.OfDRA("")) == 0 })
	a.put(t, camera+"-0", v1alpha1.SlotClaimSpec{NodeName: there, Holder: "another"})
	err := r.ask(t, c)
	for _, part := range []string{camera + "-0", `holder "another"`, "ns/pod-uid-of-pod"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("the error %v does not say %q", err, part)
		}
	}
	if diff := cmp.Diff(map[string]string{camera + "-0": "another"}, a.claimed(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	r.runtime.has()
	if err := r.ask(t, c); err != nil || a.claimed(t)[camera+"-1"] != "dra.u1.s0" {
		t.Errorf("its container has ended: %v; slots %v", err, a.claimed(t))
	}
}
