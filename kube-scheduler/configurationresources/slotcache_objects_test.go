package configurationresources

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/kube-scheduler/slotcache"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/slot"
)

// A slice comes before its Configuration, or after it: the pod is tried when both are
// there.
func TestSliceAndItsConfigurationInAnyOrder(t *testing.T) {
	for name, order := range map[string][]func(*slotcache.Cache){
		"Configuration first": {func(b *slotcache.Cache) { b.SetConfiguration(cameras(2)) }, func(b *slotcache.Cache) { device(b, "cam-000001", nil, "node-a") }},
		"slice first":         {func(b *slotcache.Cache) { device(b, "cam-000001", nil, "node-a") }, func(b *slotcache.Cache) { b.SetConfiguration(cameras(2)) }},
	} {
		t.Run(name, func(t *testing.T) {
			r, p := newRig(t), pod("p", "1")
			r.cache.DeleteConfiguration(cameras(1))
			r.cache.SetPod(p)
			for _, step := range order {
				r.refused(t, p, "node-a")
				r.requeued()
				step(r.cache)
			}
			if got := r.requeued(); !slices.Equal(got, []string{"p"}) {
				t.Errorf("activated: %v, want the pod", got)
			}
			r.schedule(t, p, "node-a")
			if got := ledgerOf(r.cache).Free("cam"); got != 1 {
				t.Errorf("%d slots are free, want 1 of the Configuration's 2", got)
			}
			r.cache.DeleteConfiguration(cameras(2))
			if _, status := r.filter(pod("other", "1"), "node-a"); status.IsSuccess() {
				t.Error("a pod fits without the Configuration")
			}
		})
	}
}

// Pods that wait for devices of a Configuration are tried when it is deleted, and so told that
// it is gone; pods of another are not.
func TestWaitingPodsAreToldOfADeletedConfiguration(t *testing.T) {
	r := newRig(t)
	r.cache.SetConfiguration(cameras(1))
	waits, other := pod("waits", "1"), pod("other", "1")
	other.Spec.Containers[0].Resources.Requests = v1.ResourceList{"akri.sh/door": resource.MustParse("1")}
	other.Spec.Containers[0].Resources.Limits = other.Spec.Containers[0].Resources.Requests
	for _, p := range []*v1.Pod{waits, other} {
		r.cache.SetPod(p)
		if _, status := r.filter(p, "node-a"); status.IsSuccess() {
			t.Fatalf("pod %s fits", p.Name)
		}
	}
	r.requeued()
	r.cache.DeleteConfiguration(cameras(1))
	if activated := r.requeued(); !slices.Equal(activated, []string{"waits"}) {
		t.Errorf("tried again are %v, want the pod that waits for it", activated)
	}
	if _, status := r.filter(waits, "node-a"); !strings.Contains(status.Message(), "no Configuration") {
		t.Errorf("it is told %q", status.Message())
	}
}

// Somebody deletes a node's slice, which the node makes again: pods keep what they hold,
// one that was about to be bound is tried again, and nothing is given twice.
func TestSliceDeletedByHand(t *testing.T) {
	r := newRig(t)
	r.cache.SetConfiguration(cameras(3))
	s := slice("node-a", "0", reported("cam-000001"))
	r.cache.SetSlice(s)
	running, about := pod("running", "1"), pod("about", "1")
	r.cache.SetPod(bound(t, running, "node-a", cam1))
	r.cache.SetClaim(claim("cam-000001-0", "C:running-uid:node-a"), false)
	state := r.schedule(t, about, "node-a")
	r.cache.DeleteSlice(s.Name)
	if status := r.Bind(r.ctx, state, about, "node-a"); status.IsSuccess() || len(r.bindings()) != 0 {
		t.Fatalf("bound to a node that does not reach the device: %v", status)
	}
	r.Unreserve(r.ctx, state, about, "node-a")
	waiter := pod("waiter", "1")
	r.cache.SetPod(waiter)
	if _, status := r.filter(waiter, "node-a"); status.Code() != fwk.UnschedulableAndUnresolvable {
		t.Errorf("without the slice: %v", status)
	}
	if !r.cache.Holds("running-uid") {
		t.Fatal("the running pod lost its slot")
	}
	r.requeued()
	r.cache.SetSlice(as(slice("node-a", "0", reported("cam-000001")), "again", "9"))
	if got := r.requeued(); !slices.Equal(got, []string{"waiter"}) {
		t.Errorf("made again: activated %v, want the waiter", got)
	}
	if got := ledgerOf(r.cache).Free("cam"); got != 2 {
		t.Errorf("made again: %d slots are free, want 2 of 3", got)
	}
}

// Claims that do not count leave their slots free: of a node that does not reach the
// device, or beyond the capacity. They count from when that changes.
func TestClaimsThatDoNotCount(t *testing.T) {
	for name, test := range map[string]struct {
		claims []string // slot and usage
		counts func(*slotcache.Cache)
		free   int // then
	}{
		"out of reach": {[]string{"cam-000001-0 C:rogue:node-z", "cam-000001-1 node-z"},
			func(b *slotcache.Cache) { alsoReaches(b, "cam-000001", "node-z") }, 0},
		"beyond the capacity": {[]string{"cam-000001-2 C:rogue:node-a", "cam-000001-9999 node-a"},
			func(b *slotcache.Cache) { b.SetConfiguration(cameras(4)) }, 3},
		"of a device that nobody reports": {[]string{"cam-000005-0 C:rogue:node-a"},
			func(b *slotcache.Cache) { alsoReaches(b, "cam-000005", "node-a") }, 3},
		"of no Configuration": {[]string{"mic-000001-0 C:rogue:node-a"}, func(*slotcache.Cache) {}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.cache.SetConfiguration(cameras(2))
			device(r.cache, "cam-000001", nil, "node-a")
			for _, c := range test.claims {
				slot, usage, _ := strings.Cut(c, " ")
				r.cache.SetClaim(claim(slot, usage), false)
			}
			if got, _ := ledgerOf(r.cache).Ignored(); got != len(test.claims) {
				t.Errorf("%d claims are ignored, want %d", got, len(test.claims))
			}
			if got := ledgerOf(r.cache).Free("cam"); got != 2 {
				t.Fatalf("%d slots are free, want 2", got)
			}
			state := r.schedule(t, pod("p", "1"), "node-a")
			r.Unreserve(r.ctx, state, pod("p", "1"), "node-a")
			test.counts(r.cache)
			if got := ledgerOf(r.cache).Free("cam"); got != test.free {
				t.Errorf("then %d slots are free, want %d", got, test.free)
			}
		})
	}
}

// alsoReaches tells the slot cache that one more node reaches the device.
func alsoReaches(b *slotcache.Cache, name, node string) {
	_, hash := slot.SplitInstance(name)
	b.SetSlice(slice(node, hash, reported(name)))
}

// What a node reports and is not so is logged with the reason, once until it changes, and
// a few of hundreds.
func TestLeftOutDevicesAreLogged(t *testing.T) {
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
	r := newRigWith(t.Context(), logger)
	logged := func() (lines []string) {
		buffer := logger.GetSink().(ktesting.Underlier).GetBuffer()
		for _, entry := range buffer.Data() {
			if strings.Contains(entry.Message, "left out") {
				lines = append(lines, fmt.Sprint(entry.Message, entry.ParameterKVList))
			}
		}
		return lines
	}
	// Another node's local device, by its hash.
	stolen := reported("cam-000001")
	stolen.Shared, stolen.Hash = false, slot.InstanceHash(stolen.ID, false, "node-b", slot.ShortHash)
	for version := range 3 {
		r.cache.SetSlice(as(slice("node-a", "0", stolen, reported("cam-000002")), "a", fmt.Sprint(version)))
	}
	if got := logged(); len(got) != 1 || !strings.Contains(got[0], "node-a") || !strings.Contains(got[0], stolen.Hash) {
		t.Errorf("logged: %q, want once, with the node and the hash", got)
	}
	if got := ledgerOf(r.cache).Free("cam"); got != 1 {
		t.Errorf("%d slots are free, want that of the other device", got)
	}
	crowd := slice("node-a", "0")
	for i := range 200 {
		d := stolen
		d.ID = fmt.Sprint(strings.Repeat("x", 1000), i)
		crowd.Spec.Devices = append(crowd.Spec.Devices, d)
	}
	r.cache.SetSlice(as(crowd, "a", "3"))
	if got := logged(); len(got) != 2 || !strings.Contains(got[1], "200") || len(got[1]) > 2000 {
		t.Errorf("logged: %q, want a second short line with the number", got)
	}
	r.cache.SetSlice(as(slice("node-a", "0"), "a", "4"))
	if _, left := ledgerOf(r.cache).Ignored(); left != 0 || len(logged()) != 2 {
		t.Errorf("none is left out, and %d are counted; logged: %q", left, logged())
	}
}

// With spec.discovery nodes reach by their labels what others discover; heartbeats of
// nodes change nothing.
func TestNodesReachByTheirLabels(t *testing.T) {
	r, p := newRig(t), pod("p", "1")
	selected := cameras(1)
	selected.Spec.Discovery = &akriv0.Discovery{NodeSelector: map[string]string{"site": "one"}}
	r.cache.SetConfiguration(selected)
	nodes := r.cache.NodeHandler()
	here, there := withNode("node-a"), withNode("node-b")
	here.Labels = map[string]string{"site": "one"}
	nodes.OnAdd(here, true)
	nodes.OnAdd(there, true)
	device(r.cache, "cam-000001", nil, "node-a")
	r.cache.SetPod(p)
	r.requeued()
	if _, status := r.filter(p, "node-b"); status.IsSuccess() {
		t.Error("a node that is not selected reaches the device")
	}
	moved := there.DeepCopy()
	moved.Labels = map[string]string{"site": "one"}
	nodes.OnUpdate(there, moved)
	if got := r.requeued(); !slices.Equal(got, []string{"p"}) {
		t.Errorf("a node begins to reach the device: activated %v", got)
	}
	heartbeat := moved.DeepCopy()
	heartbeat.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady}}
	nodes.OnUpdate(moved, heartbeat)
	if got := r.requeued(); len(got) != 0 {
		t.Errorf("a heartbeat: activated %v", got)
	}
	r.schedule(t, p, "node-b")
	nodes.OnDelete(heartbeat)
	if err := ledgerOf(r.cache).Check("p-uid"); err == nil {
		t.Error("the pod may be bound to a node that is gone")
	}
}

// Nodes advertise Configurations alone. A request for an Instance is not refused for
// that, nor does it keep a pod from being tried when a node advertises more.
func TestInstancesAreNotAdvertised(t *testing.T) {
	r := newRig(t)
	r.cache.SetConfiguration(cameras(5))
	device(r.cache, "cam-000001", nil, "node-a")
	p := pod("p", "1")
	p.Spec.Containers[0].Resources.Requests = resourceList("akri.sh/cam-000001=1")
	p.Spec.Containers[0].Resources.Limits = nil
	r.schedule(t, p, "node-a")

	both := pod("both", "1")
	both.Spec.Containers = []v1.Container{requests("one", "akri.sh/cam-000001=1"), requests("any", "akri.sh/cam=1")}
	r.cache.SetPod(both)
	bare, node := nodeInfo("node-a"), nodeInfo("node-a").Node()
	bare.SetNode(withNode("node-a"))
	state, _ := r.filter(both, "node-a")
	if status := r.Filter(r.ctx, state, both, bare); status.IsSuccess() || !strings.Contains(status.Message(), "akri.sh/cam:") {
		t.Errorf("on a node that advertises nothing: %v", status)
	}
	if got, err := r.afterAdvertisement(klog.Background(), both, bare.Node(), node); got != fwk.Queue || err != nil {
		t.Errorf("the node advertises the Configuration: hint %v, %v", got, err)
	}
	more := node.DeepCopy()
	more.Status.Allocatable["akri.sh/cam-000001"] = resource.MustParse("5")
	if got, err := r.afterAdvertisement(klog.Background(), p, node, more); got != fwk.QueueSkip || err != nil {
		t.Errorf("a node advertises an Instance, as an older version did: hint %v, %v", got, err)
	}
	r.cache.DeleteConfiguration(cameras(5))
	if got, _ := r.afterAdvertisement(klog.Background(), both, bare.Node(), node); got != fwk.QueueSkip {
		t.Errorf("the Configuration is gone: hint %v", got)
	}
}
