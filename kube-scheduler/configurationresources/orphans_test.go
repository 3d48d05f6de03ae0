package configurationresources

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubeslot/kubeslot/kube-scheduler/recovery"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotrequest"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// Of the claims that a killed scheduler made before it could bind, those for a pod
// that waits are released, once the API server says that it is not bound.
func TestOrphanedClaims(t *testing.T) {
	synced := true
	for name, test := range map[string]struct {
		change func(*claimRig, *v1.Pod)
		kept   bool
	}{
		"of a waiting pod": {func(*claimRig, *v1.Pod) {}, false},
		"of a pod that is gone by now": {func(r *claimRig, p *v1.Pod) {
			_ = r.client.Tracker().Delete(podsResource, p.Namespace, p.Name)
		}, false},
		"of another scheduler's pod": {func(_ *claimRig, p *v1.Pod) { p.Spec.SchedulerName = "other" }, true},
		"of a pod that is bound by now": {func(r *claimRig, p *v1.Pod) {
			live := p.DeepCopy()
			live.Spec.NodeName = "node-a"
			_ = r.client.Tracker().Update(podsResource, live, p.Namespace)
		}, true},
		"without an answer": {func(r *claimRig, _ *v1.Pod) {
			r.client.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("refused") })
		}, true},
		"of an unknown holder":      {func(r *claimRig, p *v1.Pod) { r.cache.DeletePod(p) }, true},
		"before the ledger is full": {func(*claimRig, *v1.Pod) { synced = false }, true},
		"of a bind under way": {func(r *claimRig, p *v1.Pod) {
			req, _ := slotrequest.Of(p)
			if _, _, err := r.cache.Assume(req, "node-a", r.args.Strategy); err != nil {
				panic(err)
			}
		}, true},
		"that was made anew since": {func(r *claimRig, _ *v1.Pod) {
			r.api.Remove("cam-000001-0")
			r.api.Put(claim("cam-000001-0", "C:p-uid:node-a"))
		}, true},
	} {
		for level, c := range map[string]*v1alpha1.SlotClaim{"Configuration": claim("cam-000001-0", "C:p-uid:node-a"), "Instance": func() *v1alpha1.SlotClaim {
			c := claim("cam-000001-0", "node-a")
			c.Spec.Holder = "p-uid"
			return c
		}()} {
			t.Run(name+", through the "+level, func(t *testing.T) {
				synced = true
				r := newClaimRig(t, func() bool { return synced })
				p := pod("p", "1")
				r.create(p.DeepCopy())
				r.cache.SetClaim(r.api.Put(c), false)
				r.cache.SetPod(p)
				test.change(r, p)
				r.sweeper.Sweep(r.ctx)
				if got := r.holder("cam-000001-0"); (got != "") != test.kept {
					t.Errorf("the slot is claimed by %q, kept should be %v", got, test.kept)
				}
			})
		}
	}
}

// Orphaned claims are released from when the scheduler leads, be there pods to schedule or not,
// and again after each interval.
func TestOrphanedClaimsAreLookedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, p := newClaimRig(t), pod("p", "1")
		r.create(p)
		r.cache.SetPod(p)
		orphan := func() { r.cache.SetClaim(r.api.Put(claim("cam-000001-0", "C:p-uid:node-a")), false) }
		released := func(after time.Duration, want bool) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if got := r.holder("cam-000001-0") == ""; got != want {
				t.Errorf("after another %v the claim is released: %v, want %v", after, got, want)
			}
		}
		orphan()
		(&Factory{cache: r.cache, sweep: func() { r.sweeper.Run(t.Context()) }}).Lead()
		released(0, true)
		orphan()
		released(recovery.SweepInterval-1, false)
		released(1, true)
	})
}
