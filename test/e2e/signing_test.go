package e2e

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kubeslot/kubeslot/types/assignment/signing/signingtest"
)

// schedulerKey makes a scheduler's key: the file of the private one, and the public
// one in PEM.
func (r *rig) schedulerKey() (private string, public []byte) {
	r.Helper()
	key, public := signingtest.Pair(r)
	private = filepath.Join(r.TempDir(), "signing.key")
	r.check(os.WriteFile(private, key, 0o600))
	return private, public
}

// A node with the public keys of schedulers gives out devices by what these have
// signed alone. A key that is added to its file counts without a restart.
func TestSignedAssignments(t *testing.T) {
	testAll(t, "starts other schedulers")
	r := newRig(t)
	r.debugEcho("signed", 4, nil, "signed0")
	first, firstPublic := r.schedulerKey()
	second, secondPublic := r.schedulerKey()
	keys := filepath.Join(t.TempDir(), "schedulers.pem")
	r.check(os.WriteFile(keys, firstPublic, 0o644))
	r.check(shared.SetKubecriArgs(r.ctx, nodeA, "--assignment-public-keys-file="+keys))
	t.Cleanup(func() { r.check(shared.SetKubecriArgs(context.Background(), nodeA)) })

	r.create(newPod("unsigned", nodeA, map[string]int64{"signed": 1}))
	r.awaitEvent("unsigned", "was not signed by a scheduler that this node trusts", "kubeslot.io/signature is missing", "--assignment-public-keys-file")
	r.create(newPod("plain", nodeA, nil))
	r.awaitRunning("plain")
	r.create(newPod("elsewhere", nodeB, map[string]int64{"signed": 1}))
	r.awaitRunning("elsewhere")

	r.schedulers([]string{schedulerB}, "--assignment-signing-key-file="+first)
	r.create(newPod("by-the-first", nodeA, map[string]int64{"signed": 1}))
	r.agree("by-the-first", "signed", 1)
	r.check(shared.RemoveScheduler(schedulerB))

	r.check(shared.StartScheduler(r.ctx, schedulerB, schedulerPorts[schedulerB], "--leader-elect=false", "--assignment-signing-key-file="+second))
	r.create(newPod("by-the-second", nodeA, map[string]int64{"signed": 1}))
	r.awaitEvent("by-the-second", "was not signed", "is by a key that this node does not trust")
	r.check(os.WriteFile(keys, slices.Concat(firstPublic, secondPublic), 0o644))
	r.agree("by-the-second", "signed", 1)
}
