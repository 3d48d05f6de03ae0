package configurationresources

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// Two pods are nominated on one node, with no assignment yet. Each is tried with
// the other imagined there: neither may be given what is kept for the other, or
// both would wait until the nominations end.
func TestNominatedPodsDoNotBlockEachOther(t *testing.T) {
	for name, slots := range map[string]int{"slots for both": 4, "slots for one": 2} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			names := []string{"cam-1", "cam-2"}
			for _, name := range names {
				in := instance(name, "")
				in.Spec.Capacity = int32(slots / len(names))
				r.book.setInstance(in)
			}
			pods := []*v1.Pod{pod("p", "2"), pod("q", "2")}
			for _, p := range pods {
				p.Status.NominatedNodeName = "node-a"
				r.book.setPod(p)
			}
			bound := 0
			for i, p := range pods {
				state, status := r.filter(p, "node-a")
				imagined := state.Clone()
				if other := pods[1-i]; status.IsSuccess() && !r.book.holds(string(other.UID)) {
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
	r.book.setInstance(instance("cam-2", ""))
	p := pod("p", "1")
	r.book.setPod(p)
	state := r.schedule(t, p, "node-a")
	shown := p.DeepCopy()
	shown.Status.NominatedNodeName = "node-a"
	r.book.setPod(shown)
	if !r.mayTake("node-b") {
		t.Error("the other slot is kept for a pod that has one")
	}
	r.Unreserve(r.ctx, state, p, "node-a")
	if got := r.book.ledger.Free("cam"); got != 2 {
		t.Errorf("%d slots are free of 2", got)
	}
}

// A pod that slots are kept for takes others, which are free as well: the kept ones
// are for whoever comes.
func TestNominatedPodTakesOtherSlots(t *testing.T) {
	r := newScheduler(t)
	p := pod("p", "1")
	p.Status.NominatedNodeName = "node-a"
	r.book.setPod(p)
	if r.mayTake("node-b") {
		t.Fatal("the slot is not kept")
	}
	larger := instance("cam-0", "")
	larger.Spec.Capacity = 2
	r.book.setInstance(larger)
	r.schedule(t, p, "node-a")
	if got := r.book.ledger.Holds("p-uid"); len(got) != 1 || got[0].Instance != "cam-0" {
		t.Fatalf("took %v, want of the Instance with the most free", got)
	}
	if got := r.book.ledger.Free("cam-1"); got != 1 {
		t.Error("the slot that it did not take is still kept for it")
	}
}
