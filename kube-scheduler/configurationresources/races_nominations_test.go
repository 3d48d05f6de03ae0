package configurationresources

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubeslot/kubeslot/kube-scheduler/config"
)

// What was kept is let go when the time of the pod's profile is over, and others are
// tried again. The pod's status goes on to show the nomination: no slots are kept
// for that again, but for another nomination.
func TestNominationEnds(t *testing.T) {
	for name, test := range map[string]struct {
		scheduler string
		ours      bool
		timeout   time.Duration
	}{
		"ours":                     {v1.DefaultSchedulerName, true, time.Minute},
		"DefaultPreemption's":      {v1.DefaultSchedulerName, false, time.Minute},
		"of another profile":       {"patient", false, time.Hour},
		"of a scheduler elsewhere": {"elsewhere", false, 5 * time.Minute},
	} {
		synctestRun(t, name, func(t *testing.T) {
			r, holder := preemptionRig(t)
			r.args.NominationTimeout.Duration = time.Minute
			patient := &config.ConfigurationResourcesArgs{NominationTimeout: metav1.Duration{Duration: time.Hour}}
			patient.SetDefaults()
			r.cache.AddProfile("patient", patient)
			r.await(pod("other", "1"))
			vip := important("vip")
			vip.Spec.SchedulerName = test.scheduler

			kept := func(when, on string) {
				t.Helper()
				synctest.Wait()
				r.wantKept(when, on)
				if may := r.mayTake("node-a"); may != (on == "") {
					t.Fatalf("%s: another may take the slots: %v", when, may)
				}
			}
			node := "node-b"
			if test.ours {
				node = "node-a"
				r.preempts(vip)
				synctest.Wait()                // for the eviction
				r.cache.SetPod(vip.DeepCopy()) // of before the nomination was written
				r.wantKept("before the API shows the nomination", node)
			}
			shown := nominatedTo(vip, node)
			r.cache.SetPod(shown)
			if !test.ours {
				r.wantKept("before any victim ends", "")
			}
			r.cache.SetPod(ending(holder))
			r.wantKept("the victim ends", node)
			r.cache.DeletePod(holder)
			kept("the victim gone", node)
			time.Sleep(test.timeout - time.Nanosecond)
			kept("in time", node)
			r.requeued()
			r.cache.Queue.Try("vip-uid")
			time.Sleep(time.Nanosecond)
			kept("the time over", "")
			r.wantActivated("the time over", "other", "vip")

			r.cache.SetPod(shown.DeepCopy())
			kept("the nomination shown again", "")
			any := ending(bound(pod("any", "1"), "node-b", nil))
			r.cache.SetPod(any)
			kept("another pod ends", "")
			r.requeued()
			r.cache.DeletePod(any)
			r.wantActivated("another pod is gone")
			another := map[string]string{"node-a": "node-b", "node-b": "node-a"}[node]
			r.cache.SetPod(nominatedTo(vip, another))
			kept("nominated to another node", another)
			time.Sleep(test.timeout)
			kept("that time over", "")
			r.cache.SetPod(nominatedTo(vip, another))
			kept("that shown again", "")
			r.cache.SetPod(vip)
			kept("cleared", "")
			r.cache.SetPod(nominatedTo(vip, another))
			kept("the same once more", another)
		})
	}
}

// A pod whose nomination is over, and for which we preempt anew, has slots kept
// again, though its status shows no change.
func TestNominatedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := preemptionRig(t)
		r.args.NominationTimeout.Duration = time.Minute
		vip := important("vip")
		r.preempts(vip)
		r.cache.SetPod(nominatedTo(vip, "node-a"))
		time.Sleep(time.Minute)
		synctest.Wait()
		r.wantKept("the time over", "")
		r.preempts(nominatedTo(vip, "node-a"))
		r.wantKept("anew", "node-a")
		time.Sleep(time.Minute - 1)
		synctest.Wait()
		r.wantKept("the first one's time over", "node-a")
	})
}

// A nomination whose slots are lost and come back, as when the device was out of its
// node's reach for a moment, ends no later for it.
func TestNominationThatIsFollowedAgainEndsAsBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, holder := preemptionRig(t)
		r.args.NominationTimeout.Duration = time.Minute
		vip := nominatedTo(important("vip"), "node-b")
		r.cache.SetPod(vip)
		r.cache.SetPod(ending(holder))
		r.cache.DeletePod(holder)
		time.Sleep(40 * time.Second)
		device(r.cache, "cam-000001", nil, "node-a")
		r.wantKept("node-b does not reach the device", "")
		device(r.cache, "cam-000001", nil, "node-a", "node-b")
		r.cache.SetPod(vip.DeepCopy())
		r.wantKept("it reaches the device again", "node-b")
		time.Sleep(20 * time.Second)
		synctest.Wait()
		r.wantKept("the time over", "")
	})
}

// The pod that slots are kept for goes: they are free, others are tried, and nothing
// is remembered of it.
func TestNominatedPodGoes(t *testing.T) {
	preempted := func(r *rig, holder, vip *v1.Pod) *v1.Pod {
		r.preempts(vip)
		return nominatedTo(vip, "node-a")
	}
	for name, before := range map[string]func(r *rig, holder, vip *v1.Pod) *v1.Pod{
		"before its victim": preempted,
		"after its victim": func(r *rig, holder, vip *v1.Pod) *v1.Pod {
			vip = preempted(r, holder, vip)
			r.cache.DeletePod(holder)
			return vip
		},
		"after its time": func(r *rig, holder, vip *v1.Pod) *v1.Pod {
			vip = preempted(r, holder, vip)
			r.cache.SetPod(vip)
			time.Sleep(r.args.NominationTimeout.Duration)
			return vip
		},
		"nominated by DefaultPreemption": func(r *rig, holder, vip *v1.Pod) *v1.Pod {
			vip = nominatedTo(vip, "node-b")
			r.cache.SetPod(vip)
			r.cache.SetPod(ending(holder))
			return vip
		},
		"and is bound elsewhere": func(r *rig, holder, vip *v1.Pod) *v1.Pod {
			r.cache.SetPod(bound(preempted(r, holder, vip), "node-b", nil))
			return vip
		},
		"in its cycle, before PostFilter": func(r *rig, holder, vip *v1.Pod) *v1.Pod {
			state, statuses := r.refuse(vip, "node-a")
			r.cache.DeletePod(vip)
			if node, status := nominated(r.PostFilter(r.ctx, state, vip, statuses)); node != "" || status.Code() != fwk.Unschedulable {
				r.Errorf("a pod that is gone is nominated to %q, %v", node, status)
			}
			synctest.Wait()
			r.wantDeleted("for a pod that is gone")
			return vip
		},
	} {
		synctestRun(t, name, func(t *testing.T) {
			r, holder := preemptionRig(t)
			other := pod("other", "1")
			r.await(other)
			vip := before(r, holder, important("vip"))
			synctest.Wait()
			r.requeued()
			r.cache.DeletePod(vip)
			r.cache.DeletePod(holder)
			r.wantActivated("both gone", "other")
			r.schedule(other, "node-b")
		})
	}
}

// Two pods are nominated on one node, with no assignment yet. Each is tried with
// the other imagined there: neither may be given what is kept for the other, or
// both would wait until the nominations end.
func TestNominatedPodsDoNotBlockEachOther(t *testing.T) {
	for name, slots := range map[string]int{"slots for both": 4, "slots for one": 2} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.cache.SetConfiguration(cameras(slots / 2))
			shared(r.cache, "cam-000001", "cam-000002")
			pods := []*v1.Pod{nominatedTo(pod("p", "2"), "node-a"), nominatedTo(pod("q", "2"), "node-a")}
			for _, p := range pods {
				r.cache.SetPod(p)
			}
			bound := 0
			for i, p := range pods {
				state, status := r.filter(p, "node-a")
				imagined := state.Clone()
				if other := pods[1-i]; status.IsSuccess() && !r.cache.Holds(string(other.UID)) {
					r.AddPod(r.ctx, imagined, p, must(framework.NewPodInfo(other)), nil)
					status = r.Filter(r.ctx, imagined, p, nodeInfo("node-a"))
				}
				if !status.IsSuccess() {
					continue
				}
				if status := r.Reserve(r.ctx, state, p, "node-a"); !status.IsSuccess() {
					t.Fatal(status)
				}
				bound++
			}
			if bound != slots/2 {
				t.Errorf("%d of 2 pods that need 2 of %d slots each can be bound", bound, slots)
			}
		})
	}
}

// A reserved pod whose bind may take long, as a gang's, is nominated by the
// framework. It has its slot; no second one is kept for it.
func TestReservedPodIsNominated(t *testing.T) {
	r := cameraRig(t)
	shared(r.cache, "cam-000002")
	p := pod("p", "1")
	r.cache.SetPod(p)
	state := r.schedule(p, "node-a")
	r.cache.SetPod(nominatedTo(p, "node-a"))
	if !r.mayTake("node-b") {
		t.Error("the other slot is kept for a pod that has one")
	}
	r.Unreserve(r.ctx, state, p, "node-a")
	r.wantFree("given back", "cam", 2)
}

// A pod that slots are kept for takes others, which are free as well: the kept ones
// are for whoever comes.
func TestNominatedPodTakesOtherSlots(t *testing.T) {
	r := cameraRig(t)
	p := nominatedTo(pod("p", "1"), "node-a")
	r.cache.SetPod(p)
	if r.mayTake("node-b") {
		t.Fatal("the slot is not kept")
	}
	r.cache.SetConfiguration(cameras(2))
	shared(r.cache, "cam-000000")
	r.schedule(p, "node-a")
	if got := ledgerOf(r.cache).Holds("p-uid"); len(got) != 1 || got[0].Instance != "cam-000000" {
		t.Fatalf("took %v, want of the device with the most free", got)
	}
	r.wantFree("it took another slot than those that were kept", "cam-000001", 2)
}

// A pod of a gang is nominated to node-a, for the slot of a pod on node-b: it is kept from the moment that this one
// begins to end, and the gang is tried when that has gone.
func TestNominatedForASlotOfAnotherNode(t *testing.T) {
	r, holder := preemptionRig(t)
	r.cache.SetPod(nominatedTo(withPriority(gang("g", "vip")[0], 100), "node-a"))
	r.wantKept("before the victim ends", "")
	r.cache.SetPod(ending(holder))
	r.wantKept("the victim ends", "node-a")
	r.cache.DeletePod(holder)
	if r.mayTake("node-b") {
		t.Error("another may take the slot")
	}
}

// A pod that is deleted before it is bound, and stays for a finalizer, is not bound any more: it waits for nothing, and
// nothing is kept for it.
func TestNominatedPodIsDeletedWithAFinalizer(t *testing.T) {
	r, holder := preemptionRig(t)
	vip := important("vip")
	r.know(vip)
	r.preempts(vip)
	vip = ending(vip)
	check(r.known.Update(vip))
	r.cache.SetPod(vip)
	r.wantKept("it is being deleted", "")
	r.cache.DeletePod(holder)
	r.filter(vip, "node-a") // a try was under way
	if n := r.waiting(); n != 0 {
		t.Errorf("%d pods wait", n)
	}
	r.schedule(pod("other", "1"), "node-b")
}
