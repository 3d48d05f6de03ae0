package configurationresources

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corelisters "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/requeue"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotrequest"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// A node may have one slot of an Instance, and the pod that has it is on its way
// out. There are free slots, but its successor waits, and is not tried meanwhile.
func TestWaitsWhileItsNodeHasASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, other := preemptionRig(t)
		onePerNode := cameras(3)
		onePerNode.Spec.UniqueScope = akriv0.UniquePerNode
		r.cache.SetConfiguration(onePerNode)
		old := pod("old", "1")
		r.schedule(old, "node-a")
		old = bound(old, "node-a", r.given(old))
		r.cache.SetPod(old)
		r.cache.DeletePod(other) // its slot is the lowest
		r.cache.SetPod(ending(old))

		next := pod("next", "1")
		r.cache.SetPod(next)
		r.requeuedWithin(time.Minute)
		for range 2 {
			r.preempts(next)
		}
		r.wantActivatedWithin(time.Minute, "while the other pod is ending")
		r.cache.DeletePod(old)
		r.wantActivatedWithin(time.Minute, "the other pod gone", "next")
	})
}

// Filter refuses a slot that a nominated pod is expected to take. Nothing keeps it
// for that pod: the one that was refused is tried again, but not at once, and later and later.
func TestRefusedThoughFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, holder := preemptionRig(t)
		r.cache.DeletePod(holder)
		p := pod("p", "1")
		r.cache.SetPod(p)
		r.requeuedWithin(time.Minute)
		for try := range 5 {
			state, _ := r.filter(p, "node-a")
			r.AddPod(r.ctx, state, p, must(framework.NewPodInfo(important("expected"))), nil)
			status := r.Filter(r.ctx, state, p, nodeInfo("node-a"))
			wantStatus(t, "Filter", status, fwk.Unschedulable)
			statuses := framework.NewDefaultNodeToStatus()
			statuses.Set("node-a", status.WithPlugin(Name))
			statuses.Set("node-b", fwk.NewStatus(fwk.Unschedulable).WithPlugin("NodeResourcesFit"))
			if result, status := r.PostFilter(r.ctx, state, p, statuses); result != nil || status.Code() != fwk.Unschedulable {
				t.Errorf("PostFilter: %v, %v", result, status)
			}
			r.wantActivatedWithin(requeue.RetryInterval<<try-1, "at once")
			r.wantActivatedWithin(1, "later", "p")
		}
	})
}

// A victim cannot be evicted: its slot is kept no longer, and the pod is tried
// again, but not at once, since that is as likely to fail again, and later and later: each time costs calls of the
// API server and an Event.
func TestVictimCannotBeEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := preemptionRig(t)
		r.client.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("a webhook denied the request")
		})
		recorder := events.NewFakeRecorder(1)
		r.handle.recorder = recorder
		vip := important("vip")
		r.cache.SetPod(vip)
		r.preempts(vip)
		r.wantActivatedWithin(0, "at once")
		r.wantKept("the eviction failed", "")
		const want = "Warning PreemptionFailed The pods whose slots it is to have could not all be evicted, and it " +
			"is tried again: evict pod default/holder: a webhook denied the request"
		if got := <-recorder.Events; got != want {
			t.Errorf("event %q, want %q", got, want)
		}
		r.wantActivatedWithin(time.Minute, "later", "vip")
		for try := range 4 {
			r.preempts(vip)
			<-recorder.Events
			r.wantActivatedWithin(2*requeue.RetryInterval<<try-1, "too early")
			r.wantActivatedWithin(1, "in time", "vip")
		}
	})
}

// A victim is gone before it is evicted, and another pod has its name: the preemption has not failed.
func TestVictimIsReplaced(t *testing.T) {
	r, holder := preemptionRig(t)
	recorder := events.NewFakeRecorder(1)
	r.handle.recorder = recorder
	victim := ledger.Victim{Pod: slotrequest.PodOf(holder)}
	next := holder.DeepCopy()
	next.UID = "next"
	check(r.known.Update(next))
	r.preemption.Evict(r.ctx, important("vip"), &ledger.Preemption{Node: "node-a", Victims: []ledger.Victim{victim}},
		nil)
	select {
	case got := <-recorder.Events:
		t.Errorf("event %q", got)
	default:
	}
	r.wantDeleted("instead of the victim")
}

// A pod that finds at Reserve that another has just got its slots is not asked whom it could
// preempt, and may find other slots: it is tried again.
func TestAnotherWasFaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cameraRig(t)
		p := pod("p", "1")
		r.know(p)
		state := r.fits(p, "node-a")
		r.schedule(pod("faster", "1"), "node-a")
		wantStatus(t, "Reserve", r.Reserve(r.ctx, state, p, "node-a"), fwk.Unschedulable)
		r.wantActivatedWithin(requeue.RetryInterval, "another was faster", "p")
	})
}

// watchedPods is told when pods are looked up.
type watchedPods struct {
	corelisters.PodLister
	asked func()
}

func (l watchedPods) Pods(namespace string) corelisters.PodNamespaceLister {
	l.asked()
	return l.PodLister.Pods(namespace)
}

// While the nodes are looked at, the ledger goes on changing: what was found on the
// first is confirmed in the end.
func TestConfirmsItsPreemption(t *testing.T) {
	for name, test := range map[string]struct {
		meanwhile func(r *rig, holder *v1.Pod)
		node      string
		deleted   []string
		later     []string
	}{
		"nothing happens": {func(*rig, *v1.Pod) {}, "node-a", []string{"holder"}, nil},
		"the holder has gone": {func(r *rig, holder *v1.Pod) { r.cache.DeletePod(holder) },
			"", nil, []string{"vip"}},
		"a more important pod has the slot": {func(r *rig, holder *v1.Pod) {
			r.cache.DeletePod(holder)
			r.cache.SetPod(bound(important("other"), "node-a", cam1))
		}, "", nil, []string{"vip"}},
	} {
		synctestRun(t, name, func(t *testing.T) {
			r, holder := preemptionRig(t)
			device(r.cache, "cam-000001", nil, "node-a")
			device(r.cache, "cam-000002", nil, "node-b")
			vip := important("vip")
			r.schedule(withPriority(pod("king", "1"), 50), "node-b") // more than the holder's
			r.cache.SetPod(vip)
			r.requeuedWithin(time.Minute)
			var asked atomic.Int32 // of the eviction, too
			r.preemption.Pods = watchedPods{r.preemption.Pods, func() {
				if asked.Add(1) == 2 { // for the victim on the second node
					test.meanwhile(r, holder)
					r.requeuedWithin(0) // of what it can have now
				}
			}}
			node, _ := r.postFilterOn(vip, "node-a", "node-b")
			if n := asked.Load(); n < 2 {
				t.Errorf("%d nodes were looked at", n)
			}
			if node != test.node {
				t.Errorf("nominated to %q, want %q", node, test.node)
			}
			r.wantKept("nominated", test.node)
			r.wantActivatedWithin(time.Minute, "later", test.later...)
			r.wantDeleted("later", test.deleted...)
		})
	}
}
