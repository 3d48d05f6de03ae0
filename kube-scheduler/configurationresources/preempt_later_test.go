package configurationresources

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corelisters "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubeslot/kubeslot/kube-scheduler/requeue"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// requeuedWithin returns who has been activated since it was last asked, within a while. Nobody is
// tried meanwhile, and so they are activated again.
func (r *rig) requeuedWithin(within time.Duration) []string {
	end := time.Now().Add(within)
	for {
		synctest.Wait()
		wait, more := r.cache.Queue.Step()
		if left := time.Until(end); !more || wait > left {
			time.Sleep(left)
			synctest.Wait()
			return r.requeued()
		}
		time.Sleep(max(wait, time.Millisecond))
	}
}

// A node may have one slot of an Instance, and the pod that has it is on its way
// out. There are free slots, but its successor waits, and is not tried meanwhile.
func TestWaitsWhileItsNodeHasASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, other := preemptionRig(t)
		onePerNode := cameras(3)
		onePerNode.Spec.UniqueScope = akriv0.UniquePerNode
		r.cache.SetConfiguration(onePerNode)
		old := pod("old", "1")
		r.schedule(t, old, "node-a")
		old = bound(t, old, "node-a", r.given(old))
		r.cache.SetPod(old)
		r.cache.DeletePod(other) // its slot is the lowest
		ending := old.DeepCopy()
		ending.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		r.cache.SetPod(ending)

		next := pod("next", "1")
		r.cache.SetPod(next)
		r.requeuedWithin(time.Minute)
		for range 2 {
			if node, status := r.postFilter(t, next); node != "node-a" || !status.IsSuccess() {
				t.Errorf("nominated to %q, %v", node, status)
			}
		}
		if got := r.requeuedWithin(time.Minute); len(got) != 0 {
			t.Errorf("while the other pod is ending: activated %v", got)
		}
		r.cache.DeletePod(ending)
		if got := r.requeuedWithin(time.Minute); !slices.Contains(got, "next") {
			t.Errorf("the other pod gone: activated %v", got)
		}
	})
}

// Filter refuses a slot that a nominated pod is expected to take. Nothing keeps it
// for that pod: the one that was refused is tried again, but not at once.
func TestRefusedThoughFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, holder := preemptionRig(t)
		r.cache.DeletePod(holder)
		p := pod("p", "1")
		r.cache.SetPod(p)
		r.requeuedWithin(time.Minute)
		info, err := framework.NewPodInfo(important("expected"))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			state, _ := r.filter(p, "node-a")
			r.AddPod(r.ctx, state, p, info, nil)
			status := r.Filter(r.ctx, state, p, nodeInfo("node-a"))
			if status.Code() != fwk.Unschedulable {
				t.Fatal(status)
			}
			statuses := framework.NewDefaultNodeToStatus()
			statuses.Set("node-a", status.WithPlugin(Name))
			statuses.Set("node-b", fwk.NewStatus(fwk.Unschedulable).WithPlugin("NodeResourcesFit"))
			if result, status := r.PostFilter(r.ctx, state, p, statuses); result != nil || status.Code() != fwk.Unschedulable {
				t.Errorf("PostFilter: %v, %v", result, status)
			}
		}
		if got := r.requeuedWithin(0); len(got) != 0 {
			t.Errorf("at once: activated %v", got)
		}
		if got := r.requeuedWithin(time.Minute); !slices.Equal(got, []string{"p"}) {
			t.Errorf("within a minute: activated %v", got)
		}
	})
}

// A victim cannot be evicted: its slot is kept no longer, and the pod is tried
// again, but not at once, since that is as likely to fail again.
func TestVictimCannotBeEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := preemptionRig(t)
		r.client.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("a webhook denied the request")
		})
		recorder := events.NewFakeRecorder(1)
		handle := r.handle.(nodesHandle)
		handle.recorder = recorder
		r.use(handle)
		vip := important("vip")
		r.cache.SetPod(vip)
		r.preempts(t, vip)
		if got := r.requeuedWithin(0); len(got) != 0 {
			t.Errorf("at once: activated %v", got)
		}
		if got := r.cache.NominatedNode("vip-uid"); got != "" {
			t.Errorf("slots are kept on %q", got)
		}
		const want = "Warning PreemptionFailed 1 of 1 pods could not be made to give up their slots, and it is tried again; " +
			"the first: evict pod default/holder: a webhook denied the request"
		if got := <-recorder.Events; got != want {
			t.Errorf("event %q, want %q", got, want)
		}
		if got := r.requeuedWithin(time.Minute); !slices.Equal(got, []string{"vip"}) {
			t.Errorf("within a minute: activated %v", got)
		}
	})
}

// A pod that finds at Reserve, or when its slots are to be claimed, that another has just
// got them is not asked whom it could preempt, and may find other slots: it is tried again.
func TestAnotherWasFaster(t *testing.T) {
	synctestRun(t, "at Reserve", func(t *testing.T) {
		r := newRig(t)
		device(r.cache, "cam-000001", nil, "node-a")
		p := pod("p", "1")
		r.know(p)
		state, status := r.filter(p, "node-a")
		if !status.IsSuccess() {
			t.Fatal(status)
		}
		r.schedule(t, pod("faster", "1"), "node-a")
		if status := r.Reserve(r.ctx, state, p, "node-a"); status.Code() != fwk.Unschedulable {
			t.Fatalf("Reserve: %v", status)
		}
		if got := r.requeuedWithin(requeue.RetryInterval); !slices.Equal(got, []string{"p"}) {
			t.Errorf("activated: %v", got)
		}
	})
	t.Run("at the claim", func(t *testing.T) {
		r := newClaimRig(t)
		p := pod("p", "1")
		r.cache.SetPod(p)
		state := r.schedule(t, p, "node-a")
		r.api.Put(claim(r.given(p)["main"][0].Slot.String(), "C:other:node-b"))
		if status := r.Bind(r.ctx, state, p, "node-a"); status.Code() != fwk.Unschedulable {
			t.Fatalf("Bind: %v", status)
		}
		r.Unreserve(r.ctx, state, p, "node-a")
		eventually(t, "the pod to be tried, which the other slot would do", func() bool { return slices.Contains(r.requeued(), "p") })
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
		meanwhile func(t *testing.T, r *rig, holder *v1.Pod)
		node      string
		deleted   []string
		later     []string
	}{
		"nothing happens": {func(*testing.T, *rig, *v1.Pod) {}, "node-a", []string{"holder"}, nil},
		"the holder has gone": {func(t *testing.T, r *rig, holder *v1.Pod) { r.cache.DeletePod(holder) },
			"", nil, []string{"vip"}},
		"a more important pod has the slot": {func(t *testing.T, r *rig, holder *v1.Pod) {
			r.cache.DeletePod(holder)
			r.cache.SetPod(bound(t, important("other"), "node-a", cam1))
		}, "", nil, []string{"vip"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, holder := preemptionRig(t)
				device(r.cache, "cam-000001", nil, "node-a")
				device(r.cache, "cam-000002", nil, "node-b")
				vip, king, less := important("vip"), important("king"), int32(50)
				king.Spec.Priority = &less // and more than the holder's
				r.schedule(t, king, "node-b")
				r.cache.SetPod(vip)
				r.requeuedWithin(time.Minute)
				var asked atomic.Int32 // of the eviction, too
				state, _ := r.filter(vip, "node-a")
				r.preemption.Pods = watchedPods{r.preemption.Pods, func() {
					if asked.Add(1) == 2 { // for the victim on the second node
						test.meanwhile(t, r, holder)
						r.requeuedWithin(0) // of what it can have now
					}
				}}
				statuses := framework.NewDefaultNodeToStatus()
				for _, node := range []string{"node-a", "node-b"} {
					statuses.Set(node, fwk.NewStatus(fwk.Unschedulable).WithPlugin(Name))
				}
				node := ""
				if result, _ := r.PostFilter(r.ctx, state, vip, statuses); result != nil {
					node = result.NominatedNodeName
				}
				if n := asked.Load(); n < 2 {
					t.Errorf("%d nodes were looked at", n)
				}
				if node != test.node || r.cache.NominatedNode("vip-uid") != test.node {
					t.Errorf("nominated to %q; slots are kept on %q", node, r.cache.NominatedNode("vip-uid"))
				}
				if got := r.requeuedWithin(time.Minute); !slices.Equal(got, test.later) {
					t.Errorf("activated %v", got)
				}
				if got := r.deleted(); !slices.Equal(got, test.deleted) {
					t.Errorf("deleted %v", got)
				}
			})
		})
	}
}
