package slotcache

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	testclock "k8s.io/utils/clock/testing"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotrequest"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// choosers are node-a and node-b, which choose slots themselves and share three cameras.
type choosers struct {
	*testing.T
	*Cache
	cameras []string // their Instances
	claims  int
}

func newChoosers(t *testing.T, capacity int32) *choosers {
	c := &choosers{T: t, Cache: New(klog.Background(), testclock.NewFakeClock(time.Now()), nil)}
	off := false
	c.SetConfiguration(&akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: "cam", Namespace: "default"},
		Spec: akriv0.ConfigurationSpec{Capacity: capacity, UniqueDevices: &off}})
	var devices []v1alpha1.Device
	for _, id := range []string{"one", "two", "three"} {
		hash := slot.InstanceHash(id, true, "", slot.ShortHash)
		c.cameras = append(c.cameras, slot.InstanceName("cam", hash))
		devices = append(devices, v1alpha1.Device{Configuration: v1alpha1.ConfigurationReference{Namespace: "default", Name: "cam"}, ID: id, Hash: hash, Shared: true})
	}
	for _, node := range []string{"node-a", "node-b"} {
		c.SetSlice(&v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: v1alpha1.DeviceSliceSpec{NodeName: node, Devices: devices}})
		c.SetNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{v1alpha1.ModeLabel: v1alpha1.ModeDevicePlugin}}})
	}
	return c
}

// keep has slots kept for a pod on its way to the node.
func (c *choosers) keep(pod *v1.Pod, node string) {
	c.Helper()
	c.SetPod(pod)
	req, err := slotrequest.Of(pod)
	if err != nil {
		c.Fatal(err)
	}
	if shortfall := c.KeepUntilClaimed(req, node, ledger.Spread); shortfall != nil {
		c.Fatal(shortfall)
	}
}

// kept is what is kept for the pod.
func (c *choosers) kept(pod string) []slot.Name {
	var kept []slot.Name
	if u := c.unclaimed[pod]; u != nil {
		for _, g := range u.kept {
			kept = append(kept, g.Slot)
		}
	}
	return kept
}

// claim is one that the node makes of the slot.
func (c *choosers) claim(of slot.Name, node string) *v1alpha1.SlotClaim {
	c.claims++
	made := v1alpha1.NewSlotClaim(of, v1alpha1.SlotClaimSpec{NodeName: node, Level: v1alpha1.ConfigurationLevel, Holder: "id"}, v1alpha1.NodeOwner(node, ""))
	made.UID, made.ResourceVersion = types.UID(fmt.Sprint("claim ", c.claims)), fmt.Sprint(c.claims)
	return made
}

// wantKept checks how many slots the ledger keeps, and how many are free.
func (c *choosers) wantKept(kept, free int) {
	c.Helper()
	if n := c.ledger.SlotCounts()[0]; n.Nominated != kept || n.Free != free {
		c.Errorf("%d slots are kept and %d free, want %d and %d", n.Nominated, n.Free, kept, free)
	}
}

func twoSlots(name string) *v1.Pod {
	pod := asking(name, "cam")
	pod.Spec.Containers[0].Resources.Requests["akri.sh/cam"] = resource.MustParse("2")
	return pod
}

// onNode is the pod as it is once it is bound, before its containers run.
func onNode(pod *v1.Pod, node string) *v1.Pod {
	pod = pod.DeepCopy()
	pod.Spec.NodeName, pod.Status.Phase = node, v1.PodPending
	return pod
}

func TestKeepUntilClaimed(t *testing.T) {
	for name, test := range map[string]struct {
		capacity   int32
		do         func(*choosers)
		kept, free int
	}{
		"another node takes one of two slots: the pod keeps two": {1, func(c *choosers) {
			c.keep(twoSlots("two"), "node-a")
			c.keep(asking("one", "cam"), "node-b")
			c.SetClaim(c.claim(c.kept("two")[0], "node-b"))
		}, 2, 0},
		"a claim of any Instance does not serve who asked for one by name": {1, func(c *choosers) {
			c.keep(asking("named", c.cameras[0]), "node-a")
			c.keep(asking("any", "cam"), "node-a")
			for _, camera := range c.cameras[1:] {
				if other := (slot.Name{Instance: camera}); c.kept("any")[0] != other {
					c.SetClaim(c.claim(other, "node-a"))
				}
			}
			if want := []slot.Name{{Instance: c.cameras[0]}}; !slices.Equal(c.kept("named"), want) {
				c.Errorf("%v is kept for the pod, want %v", c.kept("named"), want)
			}
		}, 1, 1},
		"containers that run in turn have one slot": {3, func(c *choosers) {
			pod := asking("p", "cam")
			pod.Spec.InitContainers = []v1.Container{*pod.Spec.Containers[0].DeepCopy()}
			pod.Spec.InitContainers[0].Name = "init"
			c.keep(pod, "node-a")
			c.SetClaim(c.claim(slot.Name{Instance: c.cameras[0], Index: 2}, "node-a"))
		}, 0, 8},
		"a claim is shown again": {3, func(c *choosers) {
			c.keep(asking("p", "cam"), "node-a")
			c.keep(asking("q", "cam"), "node-a")
			claim := c.claim(slot.Name{Instance: c.cameras[0], Index: 2}, "node-a")
			c.SetClaim(claim)
			c.SetClaim(claim)
		}, 1, 7},
		"a claim that does not count": {1, func(c *choosers) {
			c.keep(asking("p", "cam"), "node-a")
			c.SetClaim(c.claim(slot.Name{Instance: c.cameras[0], Index: 7}, "node-a"))
		}, 1, 2},
		"the answer to its Binding is lost": {1, func(c *choosers) {
			pod := asking("p", "cam")
			c.keep(pod, "node-a")
			c.Forget(pod)
			c.wantKept(0, 3)
			c.SetPod(onNode(pod, "node-a"))
		}, 1, 2},
		"another scheduler binds it elsewhere": {1, func(c *choosers) {
			pod := asking("p", "cam")
			c.keep(pod, "node-a")
			c.SetPod(onNode(pod, "node-b"))
			c.SetClaim(c.claim(c.kept("p")[0], "node-b"))
		}, 0, 2},
		"more important pods cannot take it": {1, func(c *choosers) {
			c.keep(asking("p", "cam"), "node-a")
			pod := asking("important", "cam")
			priority := int32(1000)
			pod.Spec.Priority = &priority
			req, _ := slotrequest.Of(pod)
			req.Containers[0].Resources[0].Count = 3
			if c.KeepUntilClaimed(req, "node-b", ledger.Spread) == nil {
				c.Error("it has taken what is kept")
			}
		}, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			c := newChoosers(t, test.capacity)
			c.T = t
			test.do(c)
			c.wantKept(test.kept, test.free)
		})
	}
}
