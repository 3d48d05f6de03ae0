package e2e

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
)

// Without the CRDs, plain pods schedule and run; pods that ask for slots say
// what is missing, and run once the CRDs are there. It is the last test, since
// it takes all Configurations away.
func TestWithoutCRDs(t *testing.T) {
	testAll(t, "takes the CRDs away")
	r := newRig(t)
	crds := filepath.Join(shared.Config().RepoRoot, "deploy/crds")
	_, err := shared.Kubectl(r.ctx, "delete", "--wait", "-f", crds)
	r.check(err)
	restored := false
	restore := func() {
		if !restored {
			_, err := shared.Kubectl(r.ctx, "apply", "-f", crds)
			r.check(err)
			_, err = shared.Kubectl(r.ctx, "wait", "--for=condition=Established", "-f", crds)
			r.check(err)
			restored = true
		}
	}
	t.Cleanup(func() { restore() }) // before the rig's own clean-up, which lists objects of theirs
	r.check(shared.Kill("kube-scheduler", "", syscall.SIGKILL))
	r.check(shared.Start("kube-scheduler", ""))

	r.create(newPod("plain", nodeA, nil))
	r.awaitRunning("plain")
	r.create(newPod("waiter", nodeB, map[string]int64{"late": 1}))
	r.awaitPending("waiter", "are the CRDs installed")

	restore()
	r.awaitCRDs()
	r.debugEcho("late", 1, nil, "late0")
	r.agree("waiter", "late", 1)
}

func (r *rig) awaitCRDs() {
	r.Helper()
	r.await("the CRDs to be served", func() (bool, string) {
		_, err := shared.Kubectl(r.ctx, "get", "configurations,instances,deviceslices,slotclaims", "-A")
		return err == nil, fmt.Sprint(err)
	})
}
