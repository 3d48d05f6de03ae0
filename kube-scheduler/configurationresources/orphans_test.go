package configurationresources

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// A claim whose pod is not bound, as far as the API says, stays: etcd may have been restored from a backup
// that is older than the Binding, and the pod's container runs. Its node alone knows.
func TestClaimsOfUnboundPodsStay(t *testing.T) {
	again := claim("cam-000001-0", "C:p-uid:node-a")
	again.Spec.MadeAgain = true
	for name, c := range map[string]*v1alpha1.SlotClaim{"made again by its node": again, "by a scheduler that ended": claim("cam-000001-0", "C:p-uid:node-a")} {
		synctestRun(t, name, func(t *testing.T) {
			r, p := newClaimRig(t), pod("p", "1")
			r.create(p)
			r.cache.SetPod(p)
			r.cache.SetClaim(r.api.Put(c))
			(&Factory{cache: r.cache}).Lead()
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := r.holder("cam-000001-0"); got != "p-uid on node-a" || r.api.Calls("delete") != 0 {
				t.Errorf("the slot is claimed by %q after %d deletions, want p's claim left alone", got, r.api.Calls("delete"))
			}
		})
	}
}
