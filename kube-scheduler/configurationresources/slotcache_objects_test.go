package configurationresources

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/kube-scheduler/slotcache"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/slot"
)

// A slice comes before its Configuration, or after it: the pod is tried when both are
// there.
func TestSliceAndItsConfigurationInAnyOrder(t *testing.T) {
	configuration := func(b *slotcache.Cache) { b.SetConfiguration(cameras(2)) }
	slice := func(b *slotcache.Cache) { device(b, "cam-000001", nil, "node-a") }
	for name, order := range map[string][]func(*slotcache.Cache){
		"Configuration first": {configuration, slice},
		"slice first":         {slice, configuration},
	} {
		t.Run(name, func(t *testing.T) {
			r, p := newRig(t), pod("p", "1")
			r.cache.DeleteConfiguration(cameras(1))
			r.cache.SetPod(p)
			for _, step := range order {
				r.refused(p, "node-a")
				r.requeued()
				step(r.cache)
			}
			r.wantActivated("both are there", "p")
			r.schedule(p, "node-a")
			r.wantFree("of the Configuration's 2", "cam", 1)
		})
	}
}

// Pods that wait for devices of a Configuration are tried when it is deleted, and so told that
// it is gone; pods of another are not.
func TestWaitingPodsAreToldOfADeletedConfiguration(t *testing.T) {
	r := newRig(t)
	waits, other := pod("waits", "1"), asks("other", "door", "1")
	for _, p := range []*v1.Pod{waits, other} {
		r.cache.SetPod(p)
		r.refused(p, "node-a")
	}
	r.requeued()
	r.cache.DeleteConfiguration(cameras(1))
	r.wantActivated("the Configuration is gone", "waits")
	_, status := r.filter(waits, "node-a")
	wantStatus(t, "it is told", status, fwk.UnschedulableAndUnresolvable, "no Configuration")
}

// What a node reports and is not so is logged with the reason, once until it changes, and
// a few of hundreds.
func TestLeftOutDevicesAreLogged(t *testing.T) {
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
	r := newLoggingRig(t, logger)
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
	r.wantFree("that of the other device", "cam", 1)
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
	here, there := advertising("node-a", ""), advertising("node-b", "")
	here.Labels = map[string]string{"site": "one"}
	nodes.OnAdd(here, true)
	nodes.OnAdd(there, true)
	device(r.cache, "cam-000001", nil, "node-a")
	r.cache.SetPod(p)
	r.requeued()
	r.refused(p, "node-b")
	moved := there.DeepCopy()
	moved.Labels = map[string]string{"site": "one"}
	nodes.OnUpdate(there, moved)
	r.wantActivated("a node begins to reach the device", "p")
	heartbeat := moved.DeepCopy()
	heartbeat.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady}}
	nodes.OnUpdate(moved, heartbeat)
	r.wantActivated("a heartbeat")
	r.schedule(p, "node-b")
	nodes.OnDelete(heartbeat)
	if err := ledgerOf(r.cache).Check("p-uid"); err == nil {
		t.Error("the pod may be bound to a node that is gone")
	}
}
