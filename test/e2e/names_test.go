package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// lens0 is the Instance of the device lens0 of the Configuration lens.
const lens0 = "lens-385eaf"

// Of a Configuration and one that is named as its Instance the older has the name: pods
// that ask for the device never get another's. When the older goes, the other takes the
// name; when that one comes back, it is the younger.
func TestAConfigurationNamedAsAnInstance(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	gets := func(pod, resource, configuration, id string) {
		t.Helper()
		r.create(newPod(pod, nodeA, map[string]int64{resource: 1}))
		r.agree(pod, configuration, 1)
		if got := r.env(pod)["DEBUG_ECHO_DESCRIPTION"]; got != id {
			t.Errorf("pod %s asked for akri.sh/%s and got the device %q, want %q", pod, resource, got, id)
		}
	}
	lens := func() {
		t.Helper()
		r.debugEchoUnchecked("lens", "debugEcho", "descriptions: [lens0, lens1]\nshared: true\n")
	}
	lens()
	found := r.awaitDevices("lens", 2)
	if !slices.ContainsFunc(found, func(d device) bool { return d.name == lens0 }) {
		t.Fatalf("no device is %s: %v", lens0, found)
	}
	r.debugEchoUnchecked(lens0, "debugEcho", "descriptions: [other]\nshared: true\n")
	r.awaitProblem(lens0, "NameTaken", "Configuration "+r.ns+"/lens is older", "names an Instance")
	if devices := r.devices(lens0); len(devices) > 0 {
		t.Errorf("the younger Configuration has devices: %v", devices)
	}
	gets("first", lens0, "lens", "lens0")
	node, err := kube.CoreV1().Nodes().Get(r.ctx, nodeA, metav1.GetOptions{})
	r.check(err)
	if q, there := node.Status.Allocatable["akri.sh/"+lens0]; there {
		t.Errorf("node-a advertises %s of akri.sh/%s", q.String(), lens0)
	}

	// The older goes.
	r.delete("first")
	r.check(akri.AkriV0().Configurations(r.ns).Delete(r.ctx, "lens", metav1.DeleteOptions{}))
	r.awaitAdvertised(lens0, 1, r.awaitDevices(lens0, 1))
	r.awaitNoProblem(lens0)
	gets("second", lens0, lens0, "other")

	// It comes back, and is the younger: by a second, which is what times are written in.
	other, err := akri.AkriV0().Configurations(r.ns).Get(r.ctx, lens0, metav1.GetOptions{})
	r.check(err)
	r.await("another second than that of its creation", func() (bool, string) {
		return time.Since(other.CreationTimestamp.Time) > 2*time.Second, ""
	})
	lens()
	r.awaitProblem("lens", "ReportsLeftOut", "Configuration "+r.ns+"/"+lens0+" is older, and has the name of its Instance")
	r.await("the one Instance of lens that has a name", func() (bool, string) {
		all := r.instances("lens")
		return len(all) == 1 && all[0].Name != lens0 && all[0].Status.Device == "lens1", fmt.Sprint(all)
	})
	r.await("node-a to advertise one slot of lens", func() (bool, string) {
		n, err := kube.CoreV1().Nodes().Get(r.ctx, nodeA, metav1.GetOptions{})
		r.check(err)
		q := n.Status.Allocatable["akri.sh/lens"]
		return q.Value() == 1, q.String()
	})
	gets("third", "lens", "lens", "lens1")
	r.create(newPod("fourth", nodeA, map[string]int64{"lens": 1}))
	r.awaitPending("fourth", "0 of 1 slots free")
	if p := r.pod("second"); p.Status.Phase != v1.PodRunning || p.Status.ContainerStatuses[0].RestartCount > 0 {
		t.Errorf("the pod of the older Configuration: %+v", p.Status)
	}
	r.delete("fourth")
	r.delete("second") // a kubelet that does not know yet that the resource is gone would count it
	r.check(akri.AkriV0().Configurations(r.ns).Delete(r.ctx, lens0, metav1.DeleteOptions{}))
	gets("fifth", lens0, "lens", "lens0")
	r.await("the Configuration to be Ready", func() (bool, string) {
		c := condition(r.status("lens"), akriv0.ConditionReady)
		return c.Status == metav1.ConditionTrue, fmt.Sprintf("%+v", c)
	})
}
