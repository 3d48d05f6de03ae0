package configurationresources

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/kube-scheduler/informer"
	"github.com/kubeslot/kubeslot/kube-scheduler/waitreason"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// meets begins a try of a waiting pod that meets the reason.
func (r *rig) meets(p *v1.Pod, reason waitreason.Reason) {
	w, _ := r.cache.Queue.Get(p.UID)
	w.Try(time.Now())
	w.Meet(reason)
}

// A node's new device is in a DeviceSlice before its kubelet knows: a pod bound in
// between would fail its admission. Nodes advertise Configurations alone, so that a request for
// an Instance is not refused for that.
func TestWaitsForTheKubeletToKnow(t *testing.T) {
	r := cameraRig(t)
	r.cache.SetConfiguration(cameras(5))
	p, instance, both := pod("p", "1"), asks("instance", "cam-000001", "1"), pod("both", "1")
	both.Spec.Containers = []v1.Container{requests("one", "akri.sh/cam-000001=1"), requests("any", "akri.sh/cam=1")}
	r.know(p)
	for advertised, code := range map[string]fwk.Code{"": fwk.UnschedulableAndUnresolvable, "1": fwk.Unschedulable, "2": fwk.Success} {
		_, status := r.filterOn(p, infoOf(advertising("node-a", advertised), pod("holder", "1")))
		wantStatus(t, "with one in use, and advertised: "+advertised, status, code)
		if refused := r.met(p, waitreason.NotAdvertised); refused == status.IsSuccess() {
			t.Errorf("with %q advertised and one in use: remembered as refused: %v", advertised, refused)
		}
	}
	r.fits(instance, "node-a")
	_, status := r.filterOn(both, infoOf(advertising("node-a", "")))
	wantStatus(t, "both", status, fwk.UnschedulableAndUnresolvable, "akri.sh/cam:")

	node := func(n string) *v1.Node { return advertising("node-a", n) }
	withInstance := node("100") // as an older version did
	withInstance.Status.Allocatable["akri.sh/cam-000001"] = resource.MustParse("5")
	chooses, choosesInstance := choosing(r, "node-c", nil).Node(), choosing(r, "node-c", map[string]string{"cam-000001": "1"}).Node()
	two := pod("two", "2")
	for _, test := range []struct {
		pod           *v1.Pod
		refused       bool
		before, after *v1.Node
		want          fwk.QueueingHint
	}{
		{p, true, node("1"), node("2"), fwk.Queue},
		{p, true, node("1"), node(""), fwk.QueueSkip},
		{p, true, node("2"), node("1"), fwk.QueueSkip},
		{p, true, node("1"), node("1"), fwk.QueueSkip},
		{two, true, node(""), node("1"), fwk.QueueSkip},
		{two, true, node("1"), node("2"), fwk.Queue},
		// It waits for slots: the ledger activates it, but for a node that it was never tried on.
		{p, false, node("1"), node("2"), fwk.QueueSkip},
		{p, false, node(""), node("1"), fwk.Queue},
		{p, false, nil, node("2"), fwk.Queue},
		{p, false, nil, node(""), fwk.QueueSkip},
		{two, false, nil, node("1"), fwk.QueueSkip},
		{both, false, node(""), node("100"), fwk.Queue},
		// Nodes in device-plugin mode advertise Instances.
		{instance, false, node("100"), withInstance, fwk.QueueSkip},
		{instance, false, chooses, choosesInstance, fwk.Queue},
		{instance, false, choosesInstance, choosesInstance, fwk.QueueSkip},
	} {
		var old any
		if test.before != nil {
			old = test.before
		}
		r.cache.SetPod(test.pod)
		met := map[bool]waitreason.Reason{true: waitreason.NotAdvertised, false: waitreason.Held}
		r.meets(test.pod, met[test.refused])
		got, err := informer.Hint(r.afterAdvertisement)(klog.Background(), test.pod, old, test.after)
		if got != test.want || err != nil {
			t.Errorf("pod %s, refused %v, %v -> %v: hint %v, %v", test.pod.Name, test.refused, test.before, test.after.Status.Allocatable, got, err)
		}
	}
	r.meets(p, waitreason.NotAdvertised)
	r.cache.DeletePod(p)
	if r.met(p, waitreason.NotAdvertised) {
		t.Error("a pod that is gone is remembered as refused")
	}
	r.cache.DeleteConfiguration(cameras(5))
	got, err := informer.Hint(r.afterAdvertisement)(klog.Background(), both, node(""), node("100"))
	if got != fwk.QueueSkip || err != nil {
		t.Errorf("the Configuration is gone: hint %v, %v", got, err)
	}
}

// A Configuration may have the name of another one's Instance. The older of the two is in force, and nodes
// advertise the name only if that is the former.
func TestAdvertisableNameOfAnInstance(t *testing.T) {
	r, p, namesake := newRig(t), asks("p", "cam-000001", "1"), cameras(1)
	namesake.Name, namesake.CreationTimestamp = "cam-000001", metav1.Unix(1, 0)
	want := func(what string, want bool) {
		t.Helper()
		if got := r.cache.Advertisable(p); (len(got) > 0) != want {
			t.Errorf("%s: nodes advertise %v", what, got)
		}
	}
	r.cache.DeleteConfiguration(cameras(1))
	r.cache.SetConfiguration(namesake)
	want("a Configuration", true)
	r.cache.SetConfiguration(cameras(1))
	want("an Instance of an older one", false)
	r.cache.DeleteConfiguration(cameras(1))
	want("the older one is gone", true)
}

// A pod that waits for what a node advertises is tried when one goes that counted against it;
// those that wait for slots are activated by the ledger.
func TestTriedWhenAPodGoes(t *testing.T) {
	r, waiter, plain := newRig(t), pod("waiter", "1"), pod("plain", "1")
	plain.Spec.Containers[0].Resources = v1.ResourceRequirements{}
	r.cache.SetPod(waiter)
	for _, test := range []struct {
		what    string
		reason  waitreason.Reason
		deleted *v1.Pod
		want    fwk.QueueingHint
	}{
		{"the waiter waits for slots", waitreason.Held, pod("same", "1"), fwk.QueueSkip},
		{"the waiter waits for its node", waitreason.NotAdvertised, pod("same", "1"), fwk.Queue},
		{"a plain pod goes", waitreason.NotAdvertised, plain, fwk.QueueSkip},
	} {
		r.meets(waiter, test.reason)
		got, err := informer.Hint(r.afterDeletion)(klog.Background(), waiter, test.deleted, nil)
		if got != test.want || err != nil {
			t.Errorf("%s: hint %v, %v; want %v", test.what, got, err, test.want)
		}
	}
}

func TestRequeuedWhenADeviceClassChangesTheName(t *testing.T) {
	ours, free := deviceClass("c", "akri.sh/cam"), deviceClass("c", "")
	for name, test := range map[string]struct {
		before, now any
		want        fwk.QueueingHint
	}{
		"deleted":      {ours, nil, fwk.Queue},
		"renamed":      {ours, deviceClass("c", "akri.sh/mic"), fwk.Queue},
		"without it":   {ours, free, fwk.Queue},
		"other change": {ours, deviceClass("c", "akri.sh/cam"), fwk.QueueSkip},
		"never had it": {free, nil, fwk.QueueSkip},
		"another's":    {deviceClass("c", "akri.sh/mic"), nil, fwk.QueueSkip},
		"takes it":     {free, ours, fwk.QueueSkip},
		"the own":      {nil, deviceClass("cam.slots.kubeslot.io", "akri.sh/cam"), fwk.Queue},
		"own of mic":   {nil, deviceClass("mic.slots.kubeslot.io", "akri.sh/mic"), fwk.QueueSkip},
		"not a class":  {&v1.Pod{}, nil, fwk.Queue},
	} {
		got, _ := informer.Hint(afterDeviceClassChange)(klog.Background(), pod("p", "1"), test.before, test.now)
		if got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// A change of a node's taints alone, as cordoning it makes one, has no waiting pod tried: upstream's
// queue asks our hints, and adds none in our name.
func TestNotTriedWhenATaintChanges(t *testing.T) {
	node := advertising("node-a", "100")
	q := newRealScheduler(t, nil, node)
	q.add("node-a", crowd(50)...) // there is no camera
	before := q.rest()
	for _, cordoned := range []bool{true, false} {
		node = node.DeepCopy()
		node.Spec.Unschedulable, node.Spec.Taints = cordoned, nil
		if cordoned {
			node.Spec.Taints = []v1.Taint{{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}}
		}
		q.updateNode(node)
	}
	if tries := q.rest() - before; tries > 0 {
		t.Errorf("%d scheduling cycles of 50 waiting pods, want none", tries)
	}
}

// A pod that waits for what a node advertises runs there once the node is there without a taint.
func TestTriedWhenATaintedNodeIsReady(t *testing.T) {
	q := newRealScheduler(t, nil, advertising("node-b", ""))
	shared(q.cache, "cam-000001")
	check(q.client.Tracker().Add(pod("p", "1")))
	q.eventually("the pod to wait for what a node advertises", func() bool {
		record, waits := q.cache.Queue.Get("p-uid")
		return waits && record.Met(waitreason.NotAdvertised)
	})
	q.rest()
	node := advertising("node-a", "1")
	node.Spec.Taints = []v1.Taint{{Key: v1.TaintNodeNotReady, Effect: v1.TaintEffectNoSchedule}}
	check(q.client.Tracker().Add(node.DeepCopy()))
	q.eventually("the node to be in the scheduler's cache", func() bool { return q.scheduler.Cache.NodeCount() == 2 })
	q.rest()
	if on := q.node("p"); on != "" {
		t.Fatalf("the pod is on node %q, although it does not tolerate its taint", on)
	}
	node.Spec.Taints = nil
	q.updateNode(node)
	q.eventuallyBound("p", "node-a")
}

// A pod whose annotations leave no room for an assignment runs once its author has shortened them.
func TestTriedWhenAnnotationsAreShortened(t *testing.T) {
	const notes = "example.com/notes"
	q := newRealScheduler(t, nil, advertising("node-a", "1"))
	shared(q.cache, "cam-000001")
	p := pod("p", "1")
	p.Annotations[notes] = strings.Repeat("x", assignment.MaxBytes)
	check(q.client.Tracker().Add(p))
	q.eventually("the pod to be refused", func() bool { // the fake API server may lose a write beside the update
		p = must(q.client.CoreV1().Pods(p.Namespace).Get(t.Context(), p.Name, metav1.GetOptions{}))
		return len(p.Status.Conditions) > 0
	})
	q.rest()
	for i, length := range []int{assignment.MaxBytes, assignment.MaxBytes + 1, 10} {
		p = p.DeepCopy()
		p.ResourceVersion, p.Annotations[notes] = fmt.Sprint(i+1), strings.Repeat("x", length)
		check(q.client.Tracker().Update(podsResource, p, p.Namespace))
	}
	q.eventuallyBound("p", "node-a")
}

// A node's slices may be seen before the node, as when it was deleted and is added again. Pods that wait for one of its
// devices by name, of which nodes advertise nothing, run once the node is there.
func TestTriedWhenTheNodeOfADeviceIsAdded(t *testing.T) {
	q := newRealScheduler(t, nil, advertising("node-b", ""))
	device(q.cache, "cam-000001", nil, "node-a")
	check(q.client.Tracker().Add(asks("p", "cam-000001", "1")))
	q.eventually("the pod to be tried", func() bool { return q.tries.Load() > 0 })
	q.rest()
	node := advertising("node-a", "1")
	check(q.client.Tracker().Add(node))
	q.eventually("the node to be in the scheduler's cache", func() bool { return q.scheduler.Cache.NodeCount() == 2 })
	q.rest()
	q.cache.SetNode(node)
	q.eventuallyBound("p", "node-a")
}
