package e2e

import (
	"fmt"
	"maps"
	"slices"
	"syscall"
	"testing"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/test/cluster"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// The upgrade from Instances that the nodes wrote, as Akri's agents do, by the steps of
// docs/upgrade.md. Containers hold slots, and there are neither slices nor claims: no slot
// is given to a second pod, at no step.
func TestUpgradeWithHeldSlots(t *testing.T) {
	testAll(t, "kills kubecri and the controller again")
	r := newRig(t)
	name := r.debugEcho("old", 2, nil, "old0")[0].name
	r.create(newPod("any", nodeA, map[string]int64{"old": 1}))
	r.create(newPod("this", nodeB, map[string]int64{name: 1}))
	any, this := r.agree("any", "old", 1)[0], r.agree("this", "old", 1)[0]
	r.create(newPod("waiter", "", map[string]int64{"old": 1}))
	r.awaitPending("waiter", "0 of 2 slots free", "2 held")
	r.awaitView("old")
	claims, new := r.claims("old"), r.instances("old")[0]
	before := map[string]string{}
	for pod, node := range map[string]string{"any": nodeA, "this": nodeB} {
		before[pod] = r.containers(node, r.pod(pod))[0].Id
	}

	t.Log("as it was before: no kubecri, no controller, the nodes' Instance")
	r.check(shared.Kill(cluster.Controller, "", syscall.SIGKILL))
	for _, node := range []string{nodeA, nodeB} {
		r.check(shared.Kill(cluster.Kubecri, node, syscall.SIGKILL))
	}
	t.Cleanup(func() {
		for _, node := range []string{nodeA, nodeB} {
			if _, err := shared.PID(cluster.Kubecri, node); err != nil {
				r.check(shared.Start(cluster.Kubecri, node))
			}
		}
		r.controlPlaneRuns()
	})
	all := metav1.ListOptions{}
	r.check(akri.KubeslotV1alpha1().DeviceSlices().DeleteCollection(r.ctx, metav1.DeleteOptions{}, all))
	r.check(akri.KubeslotV1alpha1().SlotClaims().DeleteCollection(r.ctx, metav1.DeleteOptions{}, all))
	instances := akri.AkriV0().Instances(r.ns)
	r.check(instances.Delete(r.ctx, name, metav1.DeleteOptions{}))
	owners := slices.Clone(new.OwnerReferences)
	yes := true
	owners[0].Controller, owners[0].BlockOwnerDeletion = &yes, &yes
	for _, node := range []string{nodeA, nodeB} {
		owners = append(owners, v1alpha1.NodeOwner(node, r.awaitReady(node).UID))
	}
	_, err := instances.Create(r.ctx, &akriv0.Instance{
		ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{nodeA, nodeB}, OwnerReferences: owners},
		Spec: akriv0.InstanceSpec{ConfigurationName: "old", CDIName: "akri.sh/old=old0", Capacity: 2, Shared: true, Nodes: []string{nodeA, nodeB},
			BrokerProperties: map[string]string{"DEBUG_ECHO_DESCRIPTION": "old0"},
			DeviceUsage:      map[string]string{any: "C:" + string(r.pod("any").UID) + ":" + nodeA, this: nodeB}},
	}, metav1.CreateOptions{})
	r.check(err)
	untouched := func(when string) {
		t.Helper()
		in := r.instances("old")[0]
		if !slices.Equal(in.Finalizers, []string{nodeA, nodeB}) || !apiequality.Semantic.DeepEqual(in.OwnerReferences, owners) || in.Spec.DeviceUsage[this] != nodeB {
			t.Errorf("%s the Instance is %v %v %v", when, in.Finalizers, in.OwnerReferences, in.Spec.DeviceUsage)
		}
		if p := r.pod("waiter"); p.Spec.NodeName != "" {
			t.Errorf("%s the waiting pod is bound to %s", when, p.Spec.NodeName)
		}
	}

	t.Log("scheduler and controller")
	r.check(shared.Restart(cluster.Scheduler, ""))
	r.check(shared.Start(cluster.Controller, ""))
	r.controlPlaneRuns()
	r.check(shared.AwaitServing(r.ctx, cluster.Controller, ""))
	untouched("with the new scheduler and controller alone")

	t.Log("node-a, then node-b")
	r.check(shared.Start(cluster.Kubecri, nodeA))
	half := maps.Clone(claims)
	delete(half, this)
	r.awaitClaims("old", half)
	r.await("the slice of node-a", func() (bool, string) { return r.reaches(nodeA, "old"), fmt.Sprint(r.devices("old")) })
	untouched("with one node upgraded")
	r.check(shared.Start(cluster.Kubecri, nodeB))
	r.awaitClaims("old", claims)
	r.awaitDevices("old", 1)
	r.awaitView("old")
	in := r.instances("old")[0]
	if len(in.Finalizers) != 0 || !apiequality.Semantic.DeepEqual(in.OwnerReferences, new.OwnerReferences) {
		t.Errorf("the Instance has the finalizers %v and the owners %v, want none and %v", in.Finalizers, in.OwnerReferences, new.OwnerReferences)
	}
	for pod, node := range map[string]string{"any": nodeA, "this": nodeB} {
		r.awaitExec(pod)
		r.agree(pod, "old", 1)
		if list := r.containers(node, r.pod(pod)); len(list) != 1 || list[0].Id != before[pod] {
			t.Errorf("pod %s has the containers %v, and had %s before the upgrade", pod, list, before[pod])
		}
	}
	r.ledgersAgree("old")
	if p := r.pod("waiter"); p.Spec.NodeName != "" {
		t.Errorf("the waiting pod is bound to %s while both slots are held", p.Spec.NodeName)
	}

	r.delete("any")
	if got := r.agree("waiter", "old", 1); got[0] != any {
		t.Errorf("the waiting pod has %v, want %s", got, any)
	}
}
