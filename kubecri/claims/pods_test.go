package claims

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubeslot/kubeslot/types"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// boundPod is a pod as a scheduler bound it here, with its slots.
func boundPod(t *testing.T, uid string, resourceAndSlots ...string) *corev1.Pod {
	t.Helper()
	c := types.ContainerInfo{}
	assignment.Set(&c, grants(t, resourceAndSlots...))
	info := &types.PodInfo{Name: "pod-" + uid, NodeName: here, RunningContainers: map[string]types.ContainerInfo{"main": c}}
	notes, err := assignment.Encode(info, uid, nil)
	if err != nil {
		t.Fatal(err)
	}
	requests := corev1.ResourceList{}
	for name, n := range c.Requests {
		requests[corev1.ResourceName(name)] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod-" + uid, UID: apitypes.UID(uid), Annotations: notes},
		Spec: corev1.PodSpec{NodeName: here, Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: requests}}}}}
}

// A scheduler claims for a pod, binds it, and the containers are long in coming:
// the claims stay until the pod is gone, and then go at once.
func TestClaimsOfABoundPodStay(t *testing.T) {
	for name, end := range map[string]func(*kubefake.Clientset, *corev1.Pod) error{
		"deleted": func(c *kubefake.Clientset, p *corev1.Pod) error {
			return c.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), p.Namespace, p.Name)
		},
		"not admitted by the kubelet": func(c *kubefake.Clientset, p *corev1.Pod) error {
			p = p.DeepCopy()
			p.Status.Phase = corev1.PodFailed
			return c.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), p, p.Namespace)
		},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakeClock(time.Now())
			a := newAPI(t, cam("cam-a1", 3, map[string]string{"cam-a1-0": "C:u1:node-a", "cam-a1-1": "node-a", "cam-a1-2": "C:u2:node-a"}))
			pod := boundPod(t, "u1", "cam", "cam-a1-0", "cam-a1", "cam-a1-1")
			pods := kubefake.NewClientset(pod)
			f := start(t, a, &fakeRuntime{}, setup{grace: 20 * time.Second, clock: clock, pods: pods})
			<-f.ready
			f.wantOrphans(t, 1)
			clock.Step(time.Hour)
			f.wantUsage(t, "cam-a1-2", "") // of a pod that was never bound: the scheduler was killed
			if err := f.reconcile(t.Context(), "cam-a1"); err != nil {
				t.Fatal(err)
			}
			for slot, want := range map[string]string{"cam-a1-0": "C:u1:node-a", "cam-a1-1": "node-a"} {
				if got := a.usage(t, slot); got != want {
					t.Errorf("after an hour, deviceUsage of %s is %q, want %q", slot, got, want)
				}
			}
			// Its container takes them without a write, at last, and one fails.
			writes := a.writes()
			r := request(t, "u1", "cam", "cam-a1-0", "cam-a1", "cam-a1-1")
			taken, err := f.Take(t.Context(), r)
			if err != nil || a.writes() != writes {
				t.Fatalf("take what the scheduler claimed: %v, %d writes", err, a.writes()-writes)
			}
			taken.release()
			if err := f.reconcile(t.Context(), "cam-a1"); err != nil {
				t.Fatal(err)
			}
			if got := a.usage(t, "cam-a1-0"); got != "C:u1:node-a" {
				t.Errorf("after a failed create, deviceUsage is %q", got)
			}
			if err := end(pods, pod); err != nil {
				t.Fatal(err)
			}
			f.wantUsage(t, "cam-a1-0", "")
			f.wantUsage(t, "cam-a1-1", "")
		})
	}
}

// What a pod's author writes into its annotation keeps no claim beyond what the pod
// requests: no container comes to use it.
func TestSurplusKeepsNoClaim(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	a := newAPI(t, cam("cam-a1", 2, map[string]string{"cam-a1-0": "node-a", "cam-a1-1": "C:u1:node-a"}))
	forged := boundPod(t, "u1", "cam", "cam-a1-1", "cam-a1", "cam-a1-0")
	forged.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	f := start(t, a, &fakeRuntime{}, setup{grace: 20 * time.Second, clock: clock, pods: kubefake.NewClientset(forged)})
	<-f.ready
	f.wantOrphans(t, 2)
	clock.Step(time.Hour)
	f.wantUsage(t, "cam-a1-0", "")
	f.wantUsage(t, "cam-a1-1", "")
}

// The end of a pod is no news of a slot that a container, or another pod, has.
func TestAPodsEndLeavesOthersClaims(t *testing.T) {
	a := newAPI(t, cam("cam-a1", 2, nil))
	gone, next := boundPod(t, "u1", "cam", "cam-a1-0", "cam", "cam-a1-1"), boundPod(t, "u2", "cam", "cam-a1-1")
	f := start(t, a, &fakeRuntime{}, setup{pods: kubefake.NewClientset(next)})
	f.mustTake(t, "c1", request(t, "u1", "cam", "cam-a1-0"))
	a.write(t, "cam-a1", func(in *akriv0.Instance) { in.Spec.DeviceUsage["cam-a1-1"] = "C:u2:node-a" })
	f.podGone(gone)
	if n := f.book.pending(); n != 0 {
		t.Errorf("%d slots are taken for free", n)
	}
}

// wantOrphans waits until as many claims of cam-a1 are given their grace.
func (f *fixture) wantOrphans(t *testing.T, n int) {
	t.Helper()
	in := cam("cam-a1", 1, nil)
	for deadline := time.Now().Add(10 * time.Second); len(f.memory.orphansOf(key(in))) != n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("in 10 s there were not %d claims without a container, but %v", n, f.memory.orphansOf(key(in)))
		}
	}
}
