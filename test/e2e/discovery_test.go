package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// A device that is plugged into a node is an Instance of that node within a second,
// and a pod that waits for it opens it; unplugged, it is gone as fast. The devices are
// the kernel's own: macvtaps, each in one node's /sys.
func TestPluggedIn(t *testing.T) {
	r := newRig(t)
	r.discover("taps", "udev", 1, `udevRules: ['SUBSYSTEM=="macvtap", KERNELS=="plug*"']`)
	seen := r.watchInstances()
	var in, out []time.Duration
	for round := range 6 {
		node := []string{nodeA, nodeB}[round%2]
		begin := time.Now()
		tap := r.plugIn(node, "plug0")
		added := seen.next(watch.Added)
		in = append(in, time.Since(begin))
		if !slices.Equal(added.Spec.Nodes, []string{node}) || added.Spec.Shared {
			t.Errorf("plugged into %s, and the Instance has nodes %v, shared %v", node, added.Spec.Nodes, added.Spec.Shared)
		}
		if got := added.Spec.BrokerProperties; got["UDEV_DEVNODE"] != tap.Device || got["UDEV_DEVPATH"] != tap.DevPath {
			t.Errorf("properties %v of %v", got, tap)
		}
		begin = time.Now()
		r.unplug(node, "plug0")
		r.await("the device to be gone", func() (bool, string) {
			devices := r.devices("taps")
			return len(devices) == 0, fmt.Sprint(devices)
		})
		out = append(out, time.Since(begin))
		if deleted := seen.next(watch.Deleted); deleted.Name != added.Name {
			t.Errorf("Instance %s is deleted, want %s", deleted.Name, added.Name)
		}
	}
	// The first time waits for the Configuration to be seen.
	r.prompt("plugged in, until there is an Instance", in[1:])
	r.prompt("unplugged, until no node reports it", out[1:])

	r.create(newPod("waiter", "", map[string]int64{"taps": 1}))
	r.awaitPending("waiter", "akri.sh/taps")
	tap := r.plugIn(nodeA, "plug0")
	r.agree("waiter", "taps", 1)
	if p := r.pod("waiter"); p.Spec.NodeName != nodeA {
		t.Errorf("the pod is on %s, its device on %s", p.Spec.NodeName, nodeA)
	}
	if env := r.env("waiter"); env["UDEV_DEVNODE"] != tap.Device || env["UDEV_DEVPATH"] != tap.DevPath {
		t.Errorf("environment %v of %v", env, tap)
	}
	r.exec("waiter", "read", tap.Device, "0") // opens it

	// The pod that has it is told; the next one waits, and gets what is plugged in next.
	before := r.containers(nodeA, r.pod("waiter"))[0].Id
	r.unplug(nodeA, "plug0")
	r.awaitWithdrawn("taps")
	r.awaitEvent("waiter", "DeviceGone")
	r.create(newPod("next", "", map[string]int64{"taps": 1}))
	r.awaitPending("next", "akri.sh/taps")
	if now := r.containers(nodeA, r.pod("waiter")); len(now) != 1 || now[0].Id != before {
		t.Errorf("the pod whose device is gone has containers %v, want %s", now, before)
	}
	r.plugIn(nodeB, "plug1")
	r.agree("next", "taps", 1)
	if p := r.pod("next"); p.Spec.NodeName != nodeB {
		t.Errorf("the pod is on %s, its device on %s", p.Spec.NodeName, nodeB)
	}
	r.awaitInstance("taps", nodeB)
}
