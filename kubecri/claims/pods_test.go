package claims

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
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
			return c.Tracker().Delete(pods, p.Namespace, p.Name)
		},
		"not admitted by the kubelet": func(c *kubefake.Clientset, p *corev1.Pod) error {
			p = p.DeepCopy()
			p.Status.Phase = corev1.PodFailed
			return c.Tracker().Update(pods, p, p.Namespace)
		},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakeClock(time.Now())
			a := newAPI(t, 3, map[string]string{"cam-a1-0": "CL u1 node-a", "cam-a1-1": "IL u1 node-a", "cam-a1-2": "CL u2 node-a"})
			pod := boundPod(t, "u1", "cam", "cam-a1-0", "cam-a1", "cam-a1-1")
			pods := kubefake.NewClientset(pod)
			f := start(t, a, &fakeRuntime{}, setup{grace: 20 * time.Second, clock: clock, pods: pods})
			f.still(t, "cam-a1-2", "CL u2 node-a")
			clock.Step(time.Hour)
			f.want(t, "cam-a1-2", "") // of a pod that was never bound: the scheduler was killed
			f.still(t, "cam-a1-0", "CL u1 node-a")
			f.still(t, "cam-a1-1", "IL u1 node-a")
			// Its container takes them without a write, at last, and one fails.
			writes := a.writes()
			taken, err := f.Take(t.Context(), request(t, "u1", "cam", "cam-a1-0", "cam-a1", "cam-a1-1"))
			if err != nil || a.writes() != writes {
				t.Fatalf("take what the scheduler claimed: %v, %d writes", err, a.writes()-writes)
			}
			taken.release()
			f.still(t, "cam-a1-0", "CL u1 node-a")
			if err := end(pods, pod); err != nil {
				t.Fatal(err)
			}
			f.want(t, "cam-a1-0", "")
			f.want(t, "cam-a1-1", "")
		})
	}
}

// What a pod's author writes into its annotation keeps no claim beyond what the pod
// requests: no container comes to use it.
func TestSurplusKeepsNoClaim(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	a := newAPI(t, 2, map[string]string{"cam-a1-0": "IL u1 node-a", "cam-a1-1": "CL u1 node-a"})
	forged := boundPod(t, "u1", "cam", "cam-a1-1", "cam-a1", "cam-a1-0")
	forged.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	f := start(t, a, &fakeRuntime{}, setup{grace: 20 * time.Second, clock: clock, pods: kubefake.NewClientset(forged)})
	f.still(t, "cam-a1-0", "IL u1 node-a")
	f.still(t, "cam-a1-1", "CL u1 node-a")
	clock.Step(time.Hour)
	f.want(t, "cam-a1-0", "")
	f.want(t, "cam-a1-1", "")
}

// The end of a pod is no news of a slot that a container, or another pod, has. What other pods' annotations say keeps
// no claim of its own: their authors can write any slot there.
func TestAPodsEndLeavesOthersClaims(t *testing.T) {
	a := newAPI(t, 3, map[string]string{"cam-a1-1": "CL u2 node-a", "cam-a1-2": "CL u1 node-a"})
	gone := boundPod(t, "u1", "cam", "cam-a1-0", "cam", "cam-a1-1", "cam", "cam-a1-2")
	next := boundPod(t, "u2", "cam", "cam-a1-1", "cam", "cam-a1-2")
	f := start(t, a, &fakeRuntime{}, setup{pods: kubefake.NewClientset(next)})
	f.mustCreate(t, "c1", "u1", "cam", "cam-a1-0")
	f.podGone(gone)
	f.want(t, "cam-a1-2", "")
	f.still(t, "cam-a1-1", "CL u2 node-a")
	f.still(t, "cam-a1-0", "CL u1 node-a")
}

// To look at one slot of a pod costs the same however many the pod has: each of them is looked at at each resync.
func TestASlotOfAPodWithMany(t *testing.T) {
	var all []string
	for i := range 500 {
		all = append(all, "cam", fmt.Sprintf("cam-a1-%d", i))
	}
	f := start(t, newAPI(t, 500, nil), &fakeRuntime{}, setup{pods: kubefake.NewClientset(boundPod(t, "u1", all...))})
	name := mustSlot(t, "cam-a1-7")
	if got := f.entitlements(name); len(got) != 1 || got[0] != (Use{v1alpha1.ConfigurationLevel, "u1"}) {
		t.Errorf("entitled: %v", got)
	}
	if n := testing.AllocsPerRun(10, func() { f.entitlements(name) }); n > 100 {
		t.Errorf("%v allocations for one slot of 500", n)
	}
}
