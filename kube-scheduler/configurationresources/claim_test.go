package configurationresources

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/kube-scheduler/claims"
	"github.com/kubeslot/kubeslot/kube-scheduler/claims/claimstest"
	"github.com/kubeslot/kubeslot/kube-scheduler/requeue"
	"github.com/kubeslot/kubeslot/types/client/restored"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// claimRig has claimMode Scheduler, and two cameras of one slot each.
type claimRig struct {
	*rig
	api *claimstest.API
	// answer is what the API server says to a Binding, and does with it.
	answer func(live *v1.Pod) error
}

func newClaimRig(t *testing.T, sources ...cache.InformerSynced) *claimRig {
	r := &claimRig{rig: newRig(t, sources...), api: claimstest.New()}
	r.claims = &claims.Writer{Client: r.api, Clock: clock.RealClock{}}
	shared(r.cache, "cam-000001", "cam-000002")
	r.client.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		b := a.(clienttesting.CreateAction).GetObject().(*v1.Binding)
		live := pod(b.Name, "1")
		live.Spec.NodeName, live.Annotations = b.Target.Name, b.Annotations
		var err error
		if r.answer != nil {
			err = r.answer(live)
		}
		if r.client.Tracker().Add(live) != nil && err == nil {
			err = apierrors.NewConflict(v1.Resource("pods"), b.Name, errors.New("it is bound"))
		}
		return true, nil, err
	})
	return r
}

// holder is whose claim the API server has on the slot, and where: "" for nobody's.
func (r *claimRig) holder(slot string) string {
	c := r.api.Claim(slot)
	if c == nil {
		return ""
	}
	return c.Spec.Holder + " on " + c.Spec.NodeName
}

func TestClaimsBeforeTheBinding(t *testing.T) {
	r := newClaimRig(t)
	p := pod("p", "2")
	state := r.schedule(p, "node-a")
	r.answer = func(*v1.Pod) error {
		for _, slot := range []string{"cam-000001-0", "cam-000002-0"} {
			if got := r.holder(slot); got != "p-uid on node-a" {
				t.Errorf("when the Binding is sent, slot %s is claimed by %q", slot, got)
			}
		}
		return nil
	}
	if status := r.Bind(r.ctx, state, p, "node-a"); !status.IsSuccess() || len(r.bindings()) != 1 {
		t.Fatalf("Bind: %v, %d bindings", status, len(r.bindings()))
	}
	if r.api.Calls("create") != 2 || len(r.api.Actions()) != 2 {
		t.Errorf("more than one write a slot: %v", r.api.Actions())
	}
	for _, slot := range []string{"cam-000001-0", "cam-000002-0"} {
		c := r.api.Claim(slot)
		if owner := c.OwnerReferences[0]; owner.Name != "node-a" || owner.UID != "node-a-uid" {
			t.Errorf("the owner of claim %s is %v", slot, owner)
		}
	}
}

// A backup may have been restored when the scheduler starts: it claims nothing before nodes have had time to
// make their claims again. A slot that one of them has claimed meanwhile is not the pod's any more.
func TestClaimsWaitForObjections(t *testing.T) {
	for _, objects := range []bool{false, true} {
		synctestRun(t, fmt.Sprint("a node objects: ", objects), func(t *testing.T) {
			r := newClaimRig(t)
			r.cache.AwaitObjectionsFor(restored.ObjectionTime)
			p := pod("p", "2")
			r.know(p)
			state, start := r.schedule(p, "node-a"), time.Now()
			if objects {
				time.AfterFunc(restored.ObjectionTime-1, func() {
					c := claim("cam-000002-0", "C:runs:node-b")
					c.Spec.MadeAgain = true
					r.cache.SetClaim(r.api.Put(c))
				})
			}
			status := r.Bind(r.ctx, state, p, "node-a")
			if waited := time.Since(start); waited < restored.ObjectionTime || status.IsSuccess() == objects {
				t.Errorf("after %v: %v", waited, status)
			}
			if objects && (r.holder("cam-000001-0") != "" || r.holder("cam-000002-0") != "runs on node-b" || len(r.bindings()) != 0) {
				t.Errorf("claimed by %q and %q, bound: %v", r.holder("cam-000001-0"), r.holder("cam-000002-0"), r.bindings())
			}
		})
	}
}

// Another writer has taken a slot that the ledger has for free: the pod is tried again, which
// may find other slots, for the watch has shown the claim by then.
func TestSlotTakenByAnotherWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newClaimRig(t)
		p := pod("p", "2")
		r.know(p)
		state := r.schedule(p, "node-a")
		others := r.api.Put(claim("cam-000002-0", "C:other:node-b"))
		wantStatus(t, "Bind", r.Bind(r.ctx, state, p, "node-a"), fwk.Unschedulable, "cam-000002-0", "other", "node-b", "tried again")
		if len(r.bindings()) != 0 {
			t.Fatalf("bound: %v", r.bindings())
		}
		if r.holder("cam-000001-0") != "" || r.holder("cam-000002-0") != "other on node-b" {
			t.Errorf("left behind: %q, %q", r.holder("cam-000001-0"), r.holder("cam-000002-0"))
		}
		r.Unreserve(r.ctx, state, p, "node-a")
		r.cache.SetClaim(others)
		r.wantActivatedWithin(requeue.RetryInterval, "another was faster", "p")
		_, status := r.filter(p, "node-a")
		wantStatus(t, "the ledger knows", status, fwk.Unschedulable, "1 of 2 slots free")
		// What the watch shows of before changes nothing, and what comes after activates.
		r.cache.DeleteClaim(claim("cam-000002-0", "C:former:node-b"))
		r.wantActivated("an old event")
		r.cache.DeleteClaim(others)
		r.wantActivated("given back", "p")
		r.fits(p, "node-a")
	})
}

// A claim that does not count is in the way all the same, since it has the slot's name:
// the pod waits, and says for whom, until the controller has deleted it.
func TestClaimThatDoesNotCountInTheWay(t *testing.T) {
	r, p := newClaimRig(t), pod("p", "2")
	rogue := r.api.Put(claim("cam-000001-0", "C:rogue:node-z"))
	r.cache.SetClaim(rogue)
	for range 2 {
		state := r.schedule(p, "node-a")
		wantStatus(t, "Bind", r.Bind(r.ctx, state, p, "node-a"), fwk.Unschedulable, "holder rogue on node node-z")
		r.Unreserve(r.ctx, state, p, "node-a")
	}
	r.api.Remove(rogue.Name)
	r.cache.DeleteClaim(rogue)
	wantStatus(t, "Bind", r.Bind(r.ctx, r.schedule(p, "node-a"), p, "node-a"), fwk.Success)
}

func TestClaimsOnANodeThatIsGone(t *testing.T) {
	r, p := newClaimRig(t), pod("p", "1")
	state := r.fits(p, "node-a")
	r.handle.nodes = nil
	wantStatus(t, "Reserve", r.Reserve(r.ctx, state, p, "node-a"), fwk.Error, "node-a")
}

// After a bind that failed for good the slots are free, and not claimed; while it may have been
// applied they are both. Package binding tests how that is found out.
func TestBindFailures(t *testing.T) {
	reset := errors.New("connection reset")
	forbidden := apierrors.NewForbidden(v1.Resource("pods"), "p", errors.New("quota"))
	conflict := apierrors.NewConflict(v1.Resource("pods"), "p", errors.New("already assigned"))
	unbound := func(p *v1.Pod) { p.Spec.NodeName = "" }
	for name, test := range map[string]struct {
		answers []error         // to one Binding after the other; then none fails
		live    func(p *v1.Pod) // makes the pod as it is then of one that is bound
		bound   bool
		kept    bool
	}{
		"refused":                          {answers: []error{forbidden}, live: unbound},
		"lost, then refused":               {answers: []error{reset, forbidden}, live: unbound},
		"lost, but applied":                {answers: []error{reset}, bound: true, kept: true},
		"timed out, but applied":           {answers: []error{apierrors.NewTimeoutError("etcd", 1)}, bound: true, kept: true},
		"bound elsewhere":                  {answers: []error{conflict}, live: func(p *v1.Pod) { p.Spec.NodeName = "node-b" }},
		"bound there by another scheduler": {answers: []error{conflict}, live: func(p *v1.Pod) { p.Annotations = nil }, kept: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newClaimRig(t)
			p := pod("p", "1")
			state := r.schedule(p, "node-a")
			answers := test.answers
			r.answer = func(live *v1.Pod) error {
				if test.live != nil {
					test.live(live)
				}
				if len(answers) == 0 {
					return nil
				}
				err := answers[0]
				answers = answers[1:]
				return err
			}
			if status := r.Bind(r.ctx, state, p, "node-a"); status.IsSuccess() != test.bound {
				t.Fatalf("Bind: %v", status)
			}
			if got := r.holder("cam-000001-0"); (got != "") != test.kept {
				t.Errorf("the slot is claimed by %q, kept should be %v", got, test.kept)
			}
			if c := r.api.Claim("cam-000001-0"); c != nil {
				r.cache.SetClaim(c)
			}
			if !test.bound {
				r.Unreserve(r.ctx, state, p, "node-a")
			}
			if _, status := r.filter(pod("next", "2"), "node-a"); status.IsSuccess() == test.kept {
				t.Errorf("a pod that needs both slots fits: %v, want %v", status, !test.kept)
			}
		})
	}
	t.Run("the scheduler ends before it knows", func(t *testing.T) {
		r := newClaimRig(t)
		p := pod("p", "1")
		state := r.schedule(p, "node-a")
		ctx, end := context.WithCancel(r.ctx)
		r.answer = func(*v1.Pod) error { end(); return reset }
		r.client.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, reset })
		if status := r.Bind(ctx, state, p, "node-a"); status.IsSuccess() {
			t.Fatal("bound")
		}
		if got := r.holder("cam-000001-0"); got != "p-uid on node-a" {
			t.Errorf("the slot is claimed by %q", got)
		}
	})
}

// A pod whose Binding is refused releases its claims. That activates who was refused
// meanwhile, and not the pod itself, which would claim and release without end: the
// watch shows the claims made and released only when the pod has given back its slots.
func TestReleasedClaimsDoNotActivateTheirPod(t *testing.T) {
	r := newClaimRig(t)
	p, q := pod("p", "2"), pod("q", "1")
	for _, waiting := range []*v1.Pod{p, q} {
		r.know(waiting)
		r.cache.SetPod(waiting)
	}
	state := r.schedule(p, "node-a")
	r.refused(q, "node-a")
	var made []*v1alpha1.SlotClaim
	r.answer = func(live *v1.Pod) error {
		made = append(made, r.api.Claim("cam-000001-0").DeepCopy(), r.api.Claim("cam-000002-0").DeepCopy())
		live.Spec.NodeName = ""
		return apierrors.NewForbidden(v1.Resource("pods"), "p", errors.New("a webhook's word"))
	}
	if status := r.Bind(r.ctx, state, p, "node-a"); status.IsSuccess() {
		t.Fatal("bound")
	}
	r.Unreserve(r.ctx, state, p, "node-a")
	for _, c := range made {
		if r.api.Claim(c.Name) != nil {
			t.Fatalf("slot %s stays claimed", c.Name)
		}
		r.cache.SetClaim(c.DeepCopy())
		r.cache.DeleteClaim(c)
	}
	r.wantActivated("released", "q")
}

// The pod is tried again, in vain, before the watch shows that its claims are released: then that activates it.
func TestTriedBeforeTheWatchShowsTheRelease(t *testing.T) {
	r := newClaimRig(t)
	p := pod("p", "2")
	r.know(p)
	r.cache.SetPod(p)
	state := r.schedule(p, "node-a")
	var made []*v1alpha1.SlotClaim
	r.answer = func(live *v1.Pod) error {
		for _, name := range []string{"cam-000001-0", "cam-000002-0"} {
			made = append(made, r.api.Claim(name).DeepCopy())
		}
		live.Spec.NodeName = ""
		return apierrors.NewForbidden(v1.Resource("pods"), "p", errors.New("a webhook's word"))
	}
	wantStatus(t, "Bind", r.Bind(r.ctx, state, p, "node-a"), fwk.Error)
	for _, c := range made {
		r.cache.SetClaim(c)
	}
	r.Unreserve(r.ctx, state, p, "node-a")
	r.refused(p, "node-a")
	r.requeued()
	for _, c := range made {
		r.cache.DeleteClaim(c)
	}
	r.wantActivated("the watch shows the release", "p")
}
