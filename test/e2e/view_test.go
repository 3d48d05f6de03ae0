package e2e

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/test/cluster"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// instances lists a Configuration's Instances, sorted by name.
func (r *rig) instances(configuration string) []akriv0.Instance {
	r.Helper()
	list, err := akri.AkriV0().Instances(r.ns).List(r.ctx, metav1.ListOptions{})
	r.check(err)
	found := slices.DeleteFunc(list.Items, func(in akriv0.Instance) bool { return in.Spec.ConfigurationName != configuration })
	slices.SortFunc(found, func(a, b akriv0.Instance) int { return strings.Compare(a.Name, b.Name) })
	return found
}

// awaitView waits until the Configuration's Instances show what its slices, its
// claims and itself say.
func (r *rig) awaitView(configuration string) {
	r.Helper()
	show := func(name string, capacity int, shared bool, nodes []string, count int, usage map[string]string) string {
		return fmt.Sprintf("%s capacity=%d shared=%v nodes=%v nodeCount=%d usage=%v\n", name, capacity, shared, nodes, count, usage)
	}
	r.await("the Instances of "+configuration+" to show what is", func() (bool, string) {
		c, err := akri.AkriV0().Configurations(r.ns).Get(r.ctx, configuration, metav1.GetOptions{})
		r.check(err)
		claims, want, got := r.slotClaims(configuration), "", ""
		for _, d := range r.devices(configuration) {
			usage := map[string]string{}
			for index := range c.Spec.Slots() {
				usage[slot.Name{Instance: d.name, Index: index}.String()] = ""
			}
			for _, claim := range claims { // also beyond the capacity, when it has shrunk
				if name, err := claim.Slot(); err == nil && name.Instance == d.name && slices.Contains(d.nodes, claim.Spec.NodeName) {
					usage[claim.Name] = claim.Spec.Usage().String()
				}
			}
			want += show(d.name, c.Spec.Slots(), d.shared, d.nodes, len(d.nodes), usage)
		}
		for _, in := range r.instances(configuration) {
			slices.Sort(in.Spec.Nodes)
			got += show(in.Name, int(in.Spec.Capacity), in.Spec.Shared, in.Spec.Nodes, int(in.Status.NodeCount), in.Spec.DeviceUsage)
		}
		return got == want, fmt.Sprintf("they show\n%sinstead of\n%s", got, want)
	})
}

// The controller alone writes Instances: they follow slices and claims, what somebody
// else writes is undone, and it decides nothing.
func TestInstancesAreAView(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	devices := r.debugEcho("view", 1, nil, "view0", "view1")
	r.create(newPod("any", nodeA, map[string]int64{"view": 1}))
	free := devices[0].name
	if slots := r.agree("any", "view", 1); strings.HasPrefix(slots[0], free) {
		free = devices[1].name
	}
	r.create(newPod("this", nodeB, map[string]int64{free: 1}))
	r.agree("this", "view", 1)
	r.awaitView("view")
	r.create(newPod("waiter", "", map[string]int64{"view": 1}))
	r.awaitPending("waiter", "0 of 2 slots free", "2 held")
	before := r.containers(nodeA, r.pod("any"))[0].Id

	instances := akri.AkriV0().Instances(r.ns)
	for _, d := range devices {
		_, err := instances.Patch(r.ctx, d.name, types.MergePatchType, []byte(fmt.Sprintf(
			`{"spec":{"capacity":50,"nodes":["%s"],"brokerProperties":{"A":"b"},"deviceUsage":{"%[2]s-0":"","%[2]s-7":"C:x:%[1]s"}}}`, nodeB, d.name)), metav1.PatchOptions{})
		r.check(err)
	}
	r.awaitView("view")
	for _, in := range r.instances("view") {
		if in.Spec.BrokerProperties["A"] != "" {
			t.Errorf("%s keeps the properties that somebody wrote: %v", in.Name, in.Spec.BrokerProperties)
		}
		r.check(instances.Delete(r.ctx, in.Name, metav1.DeleteOptions{}))
	}
	r.awaitView("view")
	r.ledgersAgree("view")
	r.agree("any", "view", 1)
	if after := r.containers(nodeA, r.pod("any")); after[0].Id != before {
		t.Errorf("the container was replaced: %s, was %s", after[0].Id, before)
	}
	if p := r.pod("waiter"); p.Spec.NodeName != "" {
		t.Errorf("a pod was bound to %s with what an Instance said", p.Spec.NodeName)
	}

	r.delete("any")
	r.agree("waiter", "view", 1)
	begin := time.Now()
	r.awaitView("view")
	if took := time.Since(begin); took > time.Minute { // one write a second, and the machine may be busy
		t.Errorf("the Instances show the new claims after %s", took)
	}
}

// With no controller pods are scheduled, get slots and release them: only the view
// waits. It catches up when the controller is there again, also with what happened
// after its kill.
func TestControllerDown(t *testing.T) {
	r := newRig(t)
	r.check(shared.Kill(cluster.Controller, "", syscall.SIGKILL))
	t.Cleanup(r.controlPlaneRuns)
	devices := r.debugEcho("blind", 2, nil, "blind0", "blind1")
	for i, node := range []string{nodeA, nodeB} {
		r.create(newPod(fmt.Sprint("p", i), node, map[string]int64{"blind": 2}))
		r.agree(fmt.Sprint("p", i), "blind", 2)
	}
	r.create(newPod("by-name", nodeA, map[string]int64{devices[0].name: 1}))
	r.awaitPending("by-name", "0 of 2 slots free")
	r.delete("p0")
	r.agree("by-name", "blind", 1)
	if in := r.instances("blind"); len(in) != 0 {
		t.Errorf("who wrote Instances while the controller was down? %v", in)
	}

	r.check(shared.Start(cluster.Controller, ""))
	r.awaitView("blind")
	r.check(shared.Kill(cluster.Controller, "", syscall.SIGKILL))
	r.delete("p1")
	r.create(newPod("next", nodeB, map[string]int64{"blind": 1}))
	r.agree("next", "blind", 1)
	_, err := akri.AkriV0().Configurations(r.ns).Patch(r.ctx, "blind", types.MergePatchType, []byte(`{"spec":{"capacity":3}}`), metav1.PatchOptions{})
	r.check(err)
	r.check(shared.Start(cluster.Controller, ""))
	r.awaitView("blind")
	r.ledgersAgree("blind")
}

// What an hour brings, while there is no controller: forty devices go and forty others
// come, a node ends, and more than a hundred claims are of pods that are gone. After its
// start all is right, and the claim of a pod that runs is not touched.
func TestControllerDownForLong(t *testing.T) {
	testAll(t, "has no controller for long")
	r := newRig(t)
	const devices = 40
	ids := func(name string) (ids []string) {
		for i := range devices {
			ids = append(ids, fmt.Sprint(name, i))
		}
		return ids
	}
	gone := r.debugEcho("gone", 3, nil, ids("gone")...)
	r.awaitView("gone")
	other := r.newStranger("gone")

	r.check(shared.Kill(cluster.Controller, "", syscall.SIGKILL))
	t.Cleanup(r.controlPlaneRuns)
	for _, d := range gone {
		for index := range 3 {
			pod := fmt.Sprint(d.name, "-", index)
			r.check(r.claim(pod, other.owner, v1alpha1.SlotClaimSpec{NodeName: strangerName, Level: v1alpha1.ConfigurationLevel, Holder: pod,
				Pod: &v1alpha1.PodReference{Namespace: r.ns, Name: pod, UID: types.UID(pod)}}))
		}
	}
	r.check(akri.KubeslotV1alpha1().DeviceSlices().Delete(r.ctx, strangerName+"-0", metav1.DeleteOptions{}))
	r.patchConfiguration("gone", nobodyDiscovers)
	r.awaitDevices("gone", 0)
	r.debugEcho("come", 3, nil, ids("come")...)
	r.create(newPod("holder", nodeA, map[string]int64{"come": 2}))
	r.agree("holder", "come", 2)
	held := r.claims("come")
	if claims, left, made := len(r.claims("gone")), len(r.instances("gone")), len(r.instances("come")); claims != 3*devices || left != devices || made != 0 {
		t.Errorf("somebody did the controller's work: %d claims and %d Instances are left, and %d new ones", claims, left, made)
	}

	r.check(shared.Start(cluster.Controller, ""))
	r.awaitClaims("gone", map[string]holding{})
	r.await("the Instances of devices that are gone to be deleted", func() (bool, string) {
		left := len(r.instances("gone"))
		return left == 0, fmt.Sprint(left, " of them are left")
	})
	r.awaitView("come")
	r.awaitClaims("come", held)
	for _, configuration := range []string{"gone", "come"} {
		r.ledgersAgree(configuration)
	}
	r.agree("holder", "come", 2)
}
