package e2e

import (
	"fmt"
	"maps"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/test/cluster"
)

// A slice or a claim that somebody deletes, or a slice that somebody edits, is made
// again by the node at once. Pods run on, and nobody gets their slots.
func TestDeletedByHand(t *testing.T) {
	r := newRig(t)
	r.debugEcho("hand", 1, nil, "hand0")
	r.create(newPod("holder", nodeA, map[string]int64{"hand": 1}))
	held := r.agree("holder", "hand", 1)[0]
	before, claims := r.containers(nodeA, r.pod("holder"))[0].Id, r.claims("hand")
	r.create(newPod("waiter", nodeB, map[string]int64{"hand": 1}))
	r.awaitPending("waiter", "0 of 1 slots free", "1 held")

	ofNodeA := metav1.ListOptions{FieldSelector: "spec.nodeName=" + nodeA}
	reported := akri.KubeslotV1alpha1().DeviceSlices()
	restored := func(what string) {
		t.Helper()
		r.awaitDevices("hand", 1)
		r.await("the claim to be there", func() (bool, string) {
			got := r.claims("hand")
			return maps.Equal(got, claims), fmt.Sprint(got)
		})
		r.ledgersAgree("hand")
		r.agree("holder", "hand", 1)
	}
	r.check(reported.DeleteCollection(r.ctx, metav1.DeleteOptions{}, ofNodeA))
	restored("slices deleted")

	list, err := reported.List(r.ctx, ofNodeA)
	r.check(err)
	for _, s := range list.Items {
		_, err := reported.Patch(r.ctx, s.Name, types.MergePatchType, []byte(`{"spec":{"devices":[]}}`), metav1.PatchOptions{})
		r.check(err)
	}
	restored("slices emptied")

	former, err := akri.KubeslotV1alpha1().SlotClaims().Get(r.ctx, held, metav1.GetOptions{})
	r.check(err)
	r.check(r.releaseClaim(held))
	restored("claim deleted")
	if c, err := akri.KubeslotV1alpha1().SlotClaims().Get(r.ctx, held, metav1.GetOptions{}); err != nil || c.UID == former.UID {
		t.Errorf("the claim was not made again: %v, was %v, %v", c, former, err)
	}
	if after := r.containers(nodeA, r.pod("holder")); after[0].Id != before {
		t.Errorf("the container was replaced: %s, was %s", after[0].Id, before)
	}
	if p := r.pod("waiter"); p.Spec.NodeName != "" {
		t.Errorf("the waiting pod was bound to %s", p.Spec.NodeName)
	}
}

// Node.status has the totals of Configurations only. The kubelet admits a pod that
// requests an Instance, also after its restart, and lets one live that runs.
func TestInstanceLevelNeedsNothingInNodeStatus(t *testing.T) {
	testAll(t, "restarts the kubelet")
	r := newRig(t)
	name := r.debugEcho("named", 2, nil, "named0")[0].name
	key := v1.ResourceName("akri.sh/" + name)
	clean := func(when string) {
		r.await(when+", node-a to have no resource "+string(key), func() (bool, string) {
			n, err := kube.CoreV1().Nodes().Get(r.ctx, nodeA, metav1.GetOptions{})
			r.check(err)
			_, capacity := n.Status.Capacity[key]
			_, allocatable := n.Status.Allocatable[key]
			return !capacity && !allocatable, fmt.Sprint(n.Status.Capacity)
		})
	}
	clean("at first")
	r.create(newPod("holder", nodeA, map[string]int64{name: 1}))
	r.agree("holder", "named", 1)
	before := r.containers(nodeA, r.pod("holder"))[0].Id

	// What an earlier version has left is removed, also under a pod that holds it.
	_, err := kube.CoreV1().Nodes().Patch(r.ctx, nodeA, types.MergePatchType,
		[]byte(fmt.Sprintf(`{"status":{"capacity":{%q:"2"},"allocatable":{%[1]q:"2"}}}`, key)), metav1.PatchOptions{}, "status")
	r.check(err)
	clean("once an earlier version has written it")

	r.check(shared.Restart(cluster.Kubelet, nodeA))
	r.create(newPod("next", nodeA, map[string]int64{name: 1}))
	r.agree("next", "named", 1) // a kubelet that runs a new pod has looked at its old ones
	p := r.pod("holder")
	if c := r.containers(nodeA, p); p.Status.Phase != v1.PodRunning || len(c) != 1 || c[0].Id != before || p.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("after the kubelet's restart the pod is %s (%s) with containers %v, want it untouched in %s", p.Status.Phase, p.Status.Message, c, before)
	}
	r.agree("holder", "named", 1)
	clean("in the end")
}
