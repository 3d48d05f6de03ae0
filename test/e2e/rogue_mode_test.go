package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// A node that puts itself into device-plugin mode, in which claims name no pod, takes
// nothing more than before: its claims count for devices that its own slices list, up to the
// capacity. The controller deletes the others and says so.
func TestRogueNodeInDevicePluginMode(t *testing.T) {
	testAll(t, "kills kubecri again")
	r := newRig(t)
	r.debugEchoUnchecked("vault", "debugEcho", `{"descriptions": ["vault"], "shared": false}`)
	local := r.awaitDevices("vault", 2)
	r.awaitAdvertised("vault", 1, local)
	theirs := local[slices.IndexFunc(local, func(d device) bool { return d.nodes[0] == nodeB })].name
	unseen := r.debugEcho("unseen", 2, nil, "unseen0")[0].name
	shares := r.debugEcho("shares", 2, nil, "shares0")[0].name
	thief := r.newRogue()
	restore := r.killKubecri()

	r.check(thief.patchNode(nodeA, `{"metadata":{"labels":{"kubeslot.io/mode":"device-plugin"}}}`, "status"))
	own, err := thief.akri.KubeslotV1alpha1().DeviceSlices().Get(r.ctx, r.sliceOf(nodeA), metav1.GetOptions{})
	r.check(err)
	own.Spec.Devices = slices.DeleteFunc(own.Spec.Devices, func(d v1alpha1.Device) bool { return d.Configuration.Name == "unseen" })
	_, err = thief.akri.KubeslotV1alpha1().DeviceSlices().Update(r.ctx, own, metav1.UpdateOptions{})
	r.check(err)
	r.await("the controller to know that node-a does not see a device", func() (bool, string) {
		in, err := akri.AkriV0().Instances(r.ns).Get(r.ctx, unseen, metav1.GetOptions{})
		r.check(err)
		return slices.Equal(in.Spec.Nodes, []string{nodeB}), fmt.Sprint(in.Spec.Nodes)
	})
	refused := []string{theirs + "-0", unseen + "-0", unseen + "-1"}
	taken := []string{shares + "-0", shares + "-1"}
	for _, name := range append(taken, refused...) {
		r.check(thief.takeFor(nodeA, name, nil))
	}

	// What node-a does not see, others get.
	r.create(newPod("owner", "", map[string]int64{theirs: 1}))
	r.create(newPod("user", nodeB, map[string]int64{"unseen": 1}))
	// What it shares it may take, all of it.
	r.create(newPod("guest", nodeB, map[string]int64{"shares": 1}))
	if node := r.awaitRunning("owner").Spec.NodeName; node != nodeB {
		t.Errorf("the pod with node-b's device runs on %s", node)
	}
	r.awaitClaims("vault", map[string]holding{theirs + "-0": heldBy(r.pod("owner")).byName()}) // it may start without its claim
	r.agree("owner", "vault", 1)
	r.agree("user", "unseen", 1)
	r.awaitPending("guest", "0 of 2 slots free")
	// One Event tells of all of them. What counted before the controller first judged a claim
	// it does not know: just after its start claims have a grace.
	reasons := []string{"SlotClaimNeverCounted", "SlotClaimDoesNotCount"}
	r.await("an Event of node-a that its claims do not count", func() (bool, string) {
		list, err := kube.EventsV1().Events("").List(r.ctx, metav1.ListOptions{})
		r.check(err)
		return slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
			return slices.Contains(reasons, e.Reason) && e.Regarding.Name == nodeA
		}), fmt.Sprint(len(list.Items), " Events")
	})
	r.await("the audit log to show that no node deleted the claims", func() (bool, string) {
		by := map[string]string{}
		for _, e := range auditEvents(r) {
			if e.Verb == "delete" && e.ObjectRef.Resource == "slotclaims" && slices.Contains(refused, e.ObjectRef.Name) {
				by[e.ObjectRef.Name] = e.User.Username
				if strings.HasPrefix(e.User.Username, "system:kubecri:") {
					t.Errorf("%s deleted the claim of %s; want the controller to do it", e.User.Username, e.ObjectRef.Name)
				}
			}
		}
		return len(by) == len(refused), fmt.Sprint(by)
	})
	for _, name := range taken {
		r.check(thief.akri.KubeslotV1alpha1().SlotClaims().Delete(r.ctx, name, metav1.DeleteOptions{}))
	}
	r.agree("guest", "shares", 1)

	// The real kubecri, which is not in that mode, takes the label away.
	restore()
	r.awaitReady(nodeA)
	r.await("node-a to be in its own mode", func() (bool, string) {
		n, err := kube.CoreV1().Nodes().Get(r.ctx, nodeA, metav1.GetOptions{})
		r.check(err)
		return n.Labels[v1alpha1.ModeLabel] == "", fmt.Sprint(n.Labels)
	})
}
