package configurationresources

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubeslot/kubeslot/kube-scheduler/config"
)

// nominatedTo is the pod as the API shows it once it is nominated to the node.
func nominatedTo(p *v1.Pod, node string) *v1.Pod {
	p = p.DeepCopy()
	p.Status.NominatedNodeName = node
	return p
}

// ending is the pod as the API shows it once it is deleted, until its node has
// stopped it.
func ending(p *v1.Pod) *v1.Pod {
	p = p.DeepCopy()
	p.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	return p
}

// A pod that DefaultPreemption nominated has its slots kept as well.
func TestFollowsOthersNominations(t *testing.T) {
	r, holder := preemptionRig(t)
	vip := nominatedTo(important("vip"), "node-b")
	r.cache.SetPod(vip)
	if r.cache.NominatedNode("vip-uid") != "" {
		t.Error("nominated before any victim ends")
	}
	r.cache.SetPod(ending(holder))
	if got := r.cache.NominatedNode("vip-uid"); got != "node-b" {
		t.Fatalf("slots are kept on node %q", got)
	}
	r.cache.DeletePod(holder)
	if r.mayTake("node-a") {
		t.Error("a pod on another node may take the slot")
	}
	r.cache.SetPod(nominatedTo(vip, ""))
	if !r.mayTake("node-a") {
		t.Error("the slot is kept after the nomination was cleared")
	}
}

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
			r.cache.SetPod(pod("other", "1"))
			vip := important("vip")
			vip.Spec.SchedulerName = test.scheduler

			node := "node-b"
			if test.ours {
				node, _ = r.postFilter(t, vip)
				synctest.Wait() // for the eviction
			}
			shown := nominatedTo(vip, node)
			if test.ours {
				r.cache.SetPod(vip.DeepCopy()) // of before the nomination was written
				if got := r.cache.NominatedNode("vip-uid"); got != node {
					t.Fatalf("before the API shows the nomination: slots are kept on %q, want %q", got, node)
				}
			}
			r.cache.SetPod(shown)
			r.cache.SetPod(ending(holder))
			r.cache.DeletePod(holder)
			kept := func(when, on string) {
				t.Helper()
				synctest.Wait()
				if got := r.cache.NominatedNode("vip-uid"); got != on || r.mayTake("node-a") != (on == "") {
					t.Fatalf("%s: slots are kept on %q, another may take them: %v; want them kept on %q", when, got, r.mayTake("node-a"), on)
				}
			}
			kept("the victim gone", node)
			time.Sleep(test.timeout - time.Nanosecond)
			kept("in time", node)
			r.requeued()
			r.cache.Queue.Try("vip-uid")
			time.Sleep(time.Nanosecond)
			kept("the time over", "")
			if activated := r.requeued(); !slices.Contains(activated, "other") || !slices.Contains(activated, "vip") {
				t.Errorf("activated %v, want other and vip", activated)
			}

			r.cache.SetPod(shown.DeepCopy())
			kept("the nomination shown again", "")
			r.cache.SetPod(ending(bound(t, pod("any", "1"), "node-b", nil)))
			kept("another pod ends", "")
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
		node, _ := r.postFilter(t, vip)
		shown := nominatedTo(vip, node)
		r.cache.SetPod(shown)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := r.cache.NominatedNode("vip-uid"); got != "" {
			t.Fatalf("slots are kept on %q after the time is over", got)
		}
		if got, status := r.postFilter(t, shown); got != node || r.cache.NominatedNode("vip-uid") != node {
			t.Errorf("nominated to %q, %v; slots are kept on %q", got, status, r.cache.NominatedNode("vip-uid"))
		}
		time.Sleep(time.Minute - 1)
		synctest.Wait()
		if r.cache.NominatedNode("vip-uid") != node {
			t.Error("the second nomination ended with the first one's time")
		}
	})
}

// A nomination whose slots are lost and come back, as when the device was out of its
// node's reach for a moment, ends no later for it.
func TestNominationThatIsFollowedAgainEndsAsBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, holder := preemptionRig(t)
		r.args.NominationTimeout.Duration = time.Minute
		vip := nominatedTo(important("vip"), "node-b")
		vip.Spec.SchedulerName = v1.DefaultSchedulerName
		r.cache.SetPod(vip)
		r.cache.SetPod(ending(holder))
		r.cache.DeletePod(holder)
		time.Sleep(40 * time.Second)
		device(r.cache, "cam-000001", nil, "node-a")
		if got := r.cache.NominatedNode("vip-uid"); got != "" {
			t.Fatalf("slots are kept on %q, which does not reach the device", got)
		}
		device(r.cache, "cam-000001", nil, "node-a", "node-b")
		r.cache.SetPod(vip.DeepCopy())
		if got := r.cache.NominatedNode("vip-uid"); got != "node-b" {
			t.Fatalf("slots are kept on %q, want node-b", got)
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if got := r.cache.NominatedNode("vip-uid"); got != "" {
			t.Errorf("slots are kept on %q after the time is over", got)
		}
	})
}

// The pod that slots are kept for goes: they are free, others are tried, and nothing
// is remembered of it.
func TestNominatedPodGoes(t *testing.T) {
	preempted := func(t *testing.T, r *rig, holder, vip *v1.Pod) *v1.Pod {
		node, status := r.postFilter(t, vip)
		if node != "node-a" {
			t.Fatalf("nominated to %q, %v", node, status)
		}
		return nominatedTo(vip, node)
	}
	for name, before := range map[string]func(t *testing.T, r *rig, holder, vip *v1.Pod) *v1.Pod{
		"before its victim": preempted,
		"after its victim": func(t *testing.T, r *rig, holder, vip *v1.Pod) *v1.Pod {
			vip = preempted(t, r, holder, vip)
			r.cache.DeletePod(holder)
			return vip
		},
		"after its time": func(t *testing.T, r *rig, holder, vip *v1.Pod) *v1.Pod {
			vip = preempted(t, r, holder, vip)
			r.cache.SetPod(vip)
			time.Sleep(r.args.NominationTimeout.Duration)
			synctest.Wait()
			return vip
		},
		"nominated by DefaultPreemption": func(t *testing.T, r *rig, holder, vip *v1.Pod) *v1.Pod {
			vip = nominatedTo(vip, "node-b")
			r.cache.SetPod(vip)
			r.cache.SetPod(ending(holder))
			return vip
		},
		"and is bound elsewhere": func(t *testing.T, r *rig, holder, vip *v1.Pod) *v1.Pod {
			r.cache.SetPod(bound(t, preempted(t, r, holder, vip), "node-b", nil))
			return vip
		},
		"in its cycle, before PostFilter": func(t *testing.T, r *rig, holder, vip *v1.Pod) *v1.Pod {
			state, statuses := r.refuse(t, vip, "node-a")
			r.cache.DeletePod(vip)
			if node, status := nominated(r.PostFilter(r.ctx, state, vip, statuses)); node != "" || status.Code() != fwk.Unschedulable {
				t.Errorf("a pod that is gone is nominated to %q, %v", node, status)
			}
			synctest.Wait()
			if got := r.deleted(); len(got) != 0 {
				t.Errorf("%v are evicted for a pod that is gone", got)
			}
			return vip
		},
	} {
		synctestRun(t, name, func(t *testing.T) {
			r, holder := preemptionRig(t)
			other := pod("other", "1")
			r.cache.SetPod(other)
			vip := before(t, r, holder, important("vip"))
			synctest.Wait()
			r.requeued()
			r.cache.DeletePod(vip)
			r.cache.DeletePod(holder)
			if activated := r.requeued(); !slices.Contains(activated, "other") {
				t.Errorf("activated %v, want other", activated)
			}
			r.schedule(t, other, "node-b")
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
			pods := []*v1.Pod{pod("p", "2"), pod("q", "2")}
			for _, p := range pods {
				p.Status.NominatedNodeName = "node-a"
				r.cache.SetPod(p)
			}
			bound := 0
			for i, p := range pods {
				state, status := r.filter(p, "node-a")
				imagined := state.Clone()
				if other := pods[1-i]; status.IsSuccess() && !r.cache.Holds(string(other.UID)) {
					info, err := framework.NewPodInfo(other)
					if err != nil {
						t.Fatal(err)
					}
					r.AddPod(r.ctx, imagined, p, info, nil)
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
	r := newScheduler(t)
	shared(r.cache, "cam-000002")
	p := pod("p", "1")
	r.cache.SetPod(p)
	state := r.schedule(t, p, "node-a")
	shown := p.DeepCopy()
	shown.Status.NominatedNodeName = "node-a"
	r.cache.SetPod(shown)
	if !r.mayTake("node-b") {
		t.Error("the other slot is kept for a pod that has one")
	}
	r.Unreserve(r.ctx, state, p, "node-a")
	if got := ledgerOf(r.cache).Free("cam"); got != 2 {
		t.Errorf("%d slots are free of 2", got)
	}
}

// A pod that slots are kept for takes others, which are free as well: the kept ones
// are for whoever comes.
func TestNominatedPodTakesOtherSlots(t *testing.T) {
	r := newScheduler(t)
	p := pod("p", "1")
	p.Status.NominatedNodeName = "node-a"
	r.cache.SetPod(p)
	if r.mayTake("node-b") {
		t.Fatal("the slot is not kept")
	}
	r.cache.SetConfiguration(cameras(2))
	shared(r.cache, "cam-000000")
	r.schedule(t, p, "node-a")
	if got := ledgerOf(r.cache).Holds("p-uid"); len(got) != 1 || got[0].Instance != "cam-000000" {
		t.Fatalf("took %v, want of the device with the most free", got)
	}
	if got := ledgerOf(r.cache).Free("cam-000001"); got != 2 {
		t.Error("the slot that it did not take is still kept for it")
	}
}
