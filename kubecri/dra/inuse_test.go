package dra

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/kubecri/crilist"
	"github.com/kubeslot/kubeslot/test/await"
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
		if diff := cmp.Diff(former, a.claimed(t)); diff != "" || !r.says(`!"u1-one"`, camera)() {
			t.Errorf("(-want +got):\n%s%s", diff, r.spec("u1"))
		}
	}
	r.runtime.has()
	if err := r.ask(t, c); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{other + "-0": "dra.u1.s0", other + "-1": "dra.u1.s1"},
		r.held(t)); diff != "" {
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
		ResourceClaim: reference(former)})
	r = start(t, a, here, r.dir)
	if err := r.ask(t, claim("u1", "one "+other+" 1")); err != nil {
		t.Fatal(err)
	}
	if !r.says(`"u1-one"`, other+"-0", "!"+camera)() {
		t.Errorf("its spec is\n%s", r.spec("u1"))
	}
	if diff := cmp.Diff(map[string]string{other + "-0": "dra.u1.s0"}, r.held(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A slot that another has by now is not replaced by the next one while a container may use it: the kubelet gets
// an error.
func TestSlotLostWhilePrepared(t *testing.T) {
	a := newAPI(configuration(3), podOf("p", "claim-u1"))
	r := start(t, a, here, t.TempDir())
	c := claim("u1", "one "+camera+" 1")
	if err := r.ask(t, c); err != nil {
		t.Fatal(err)
	}
	r.runtime.has(container("c1", "uid-of-pod", ""))
	r.lose(t, camera+"-0")
	a.put(t, camera+"-0", v1alpha1.SlotClaimSpec{NodeName: there, Holder: "another"})
	a.noneAgain.Store(false)
	var err error
	await.That(t, "an error", func() bool { err = r.ask(t, c); return err != nil })
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

// While a SlotClaim that somebody has deleted cannot be made again, the spec stays: no other has the slot, and the
// containers that use it are created again.
func TestPreparedAgainInAnOutage(t *testing.T) {
	a := newAPI(configuration(3), podOf("p", "claim-u1"))
	r := start(t, a, here, t.TempDir())
	c := claim("u1", "one "+camera+" 1")
	if err := r.ask(t, c); err != nil {
		t.Fatal(err)
	}
	before := r.spec("u1")
	r.runtime.has(container("c1", "uid-of-pod", ""))
	r.lose(t, camera+"-0")
	a.set(away)
	await.That(t, "an error", func() bool { return r.ask(t, c) != nil })
	if r.spec("u1") != before {
		t.Errorf("the spec is\n%s", r.spec("u1"))
	}
	a.set(nil)
	a.noneAgain.Store(false)
	if err := r.ask(t, c); err != nil || a.claimed(t)[camera+"-0"] != "dra.u1.s0" {
		t.Errorf("%v; slots %v", err, a.claimed(t))
	}
}

// The kubelet has a claim unprepared while containers of a pod that was deleted by force run still. Its slots stay,
// and no container is created with them from before the runtime is asked; once the last has ended they are free.
func TestUnpreparedWhileAContainerRuns(t *testing.T) {
	a := newAPI(configuration(2), claim("u1", "one "+camera+" 1"))
	r := start(t, a, here, t.TempDir())
	if err := r.ask(t, claim("u1", "one "+camera+" 1")); err != nil {
		t.Fatal(err)
	}
	r.runtime.has(container("c1", "forced", ""))
	r.runtime.asked = func() {
		if !r.says(`!"u1-one"`)() {
			t.Error("a container that is created now is not listed, and gets the device")
		}
	}
	for range 2 {
		if err := unprepare(t, r, "u1"); err == nil || !strings.Contains(err.Error(), "ns/pod-forced") {
			t.Errorf("a container uses its slots, and the error is %v", err)
		}
		if a.claimed(t)[camera+"-0"] != "dra.u1.s0" {
			t.Errorf("released: %v", a.claimed(t))
		}
	}
	a.remove(t, camera+"-0")
	await.That(t, "the slot to be claimed again", func() bool { return a.claimed(t)[camera+"-0"] == "dra.u1.s0" })
	if err := r.describeAgain(t.Context()); err != nil || !r.says(`!"u1-one"`)() {
		t.Errorf("described again (%v):\n%s", err, r.spec("u1"))
	}
	r.runtime.has()
	if err := unprepare(t, r, "u1"); err != nil || len(r.held(t)) != 0 || r.spec("u1") != "" {
		t.Errorf("%v; slots %v", err, a.claimed(t))
	}
}

// A claim that could not be unprepared, since a container had not ended, and is prepared once more is given again.
func TestPreparedAgainAfterItWasRevoked(t *testing.T) {
	a := newAPI(configuration(2))
	r := start(t, a, here, t.TempDir())
	c := claim("u1", "one "+camera+" 1")
	if err := r.ask(t, c); err != nil {
		t.Fatal(err)
	}
	before := r.spec("u1")
	r.runtime.has(container("c1", "forced", ""))
	if err := unprepare(t, r, "u1"); err == nil || !r.says(`!"u1-one"`)() {
		t.Fatalf("%v; its spec is\n%s", err, r.spec("u1"))
	}
	if err := r.ask(t, c); err != nil || r.spec("u1") != before || a.claimed(t)[camera+"-0"] != "dra.u1.s0" {
		t.Errorf("%v; slots %v; its spec is\n%s", err, a.claimed(t), r.spec("u1"))
	}
}

// A container may use a ResourceClaim if it has not ended and its pod uses the claim, or is one that only the runtime
// knows.
func TestUser(t *testing.T) {
	in := func(state runtimeapi.ContainerState, pod string) *runtimeapi.Container {
		c := container("c1", pod, "")
		c.State = state
		return c
	}
	elsewhere := container("c1", "unknown", "")
	elsewhere.Labels["io.kubernetes.pod.namespace"] = "other"
	const running, created = runtimeapi.ContainerState_CONTAINER_RUNNING, runtimeapi.ContainerState_CONTAINER_CREATED
	failed := podOf("p", "claim-u1")
	failed.Status.Phase = corev1.PodFailed
	ready, static := &runtimeapi.PodSandbox{}, &runtimeapi.PodSandbox{Annotations: map[string]string{
		"kubernetes.io/config.source": "file"}}
	api := &runtimeapi.PodSandbox{Annotations: map[string]string{"kubernetes.io/config.source": "api"}}
	stopped := &runtimeapi.PodSandbox{State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY}
	for name, test := range map[string]struct {
		container *runtimeapi.Container
		sandbox   *runtimeapi.PodSandbox
		pod       *corev1.Pod
		want      bool
	}{
		"of a pod that is not known":         {in(running, "unknown"), api, nil, true},
		"whose sandbox is not known, either": {in(running, "unknown"), nil, nil, true},
		"in an unknown state": {in(runtimeapi.ContainerState_CONTAINER_UNKNOWN, "unknown"), stopped, nil,
			true},
		"created, and to start":     {in(created, "unknown"), ready, nil, true},
		"created, and not to start": {in(created, "unknown"), stopped, nil, false},
		"ended": {in(runtimeapi.ContainerState_CONTAINER_EXITED, "unknown"), ready, nil,
			false},
		"of another namespace":            {elsewhere, ready, nil, false},
		"of a static pod":                 {in(running, "unknown"), static, nil, false},
		"of a pod with the claim":         {in(running, "uid-of-pod"), ready, podOf("p", "claim-u1"), true},
		"the same, by the API ended":      {in(running, "uid-of-pod"), ready, failed, true},
		"of a pod with another claim":     {in(running, "uid-of-pod"), ready, podOf("p", "another"), false},
		"of a pod whose name is that one": {in(running, "former"), ready, podOf("p", "another"), true},
	} {
		listed := crilist.Listing{Containers: []*runtimeapi.Container{test.container},
			Sandboxes: map[string]*runtimeapi.PodSandbox{}}
		if test.sandbox != nil {
			listed.Sandboxes[test.container.PodSandboxId] = test.sandbox
		}
		var pods []*corev1.Pod
		if test.pod != nil {
			pods = append(pods, test.pod)
		}
		ref := v1alpha1.ResourceClaimReference{Namespace: "ns", Name: "claim-u1", UID: "u1"}
		if got := user(listed, pods, ref) != nil; got != test.want {
			t.Errorf("a container %s: may use the claim: %t", name, got)
		}
	}
}
