package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kubeslot/kubeslot/kubecri/nri/nritest"
	"github.com/kubeslot/kubeslot/test/cluster"
)

// NRI fails open: containerd creates a container without a plugin that does not answer in
// time. Whatever makes kubecri slow, a device plugin or a process that is stopped, no
// container starts without its devices, or it is found and stopped.
func TestNRIWhenKubecriIsSlow(t *testing.T) {
	testAll(t, "builds a plugin, and freezes kubecri")
	r := newRig(t)
	f := r.newFickle(nodeB)
	f.say("count 3")
	devices := r.debugEcho("slow", 3, nil, "slow0")
	r.check(shared.SetNRI(r.ctx, nodeB, true))
	defer func() { r.check(shared.SetNRI(r.ctx, nodeB, false)) }()

	// A device plugin takes longer than containerd waits: the container is refused in time,
	// and created with its device when the plugin answers.
	goesOn := filepath.Join(f.dir, "goes-on")
	f.say("count 3", "Allocate hang "+goesOn)
	f.bind(newPod("plugin", "", nil), "resource/group/fickle/1/cards")
	r.awaitEvent("plugin", "Failed", "kubecri does not start container", `device plugin "fickle" failed in Allocate`)
	r.check(os.WriteFile(goesOn, nil, 0o600))
	p := r.awaitRunning("plugin")
	if env := r.env("plugin"); env["FICKLE"] != "1" || p.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("it started with FICKLE=%q, after %d starts without", env["FICKLE"], p.Status.ContainerStatuses[0].RestartCount)
	}

	// kubecri is away: a container whose devices are all a device plugin's is found.
	r.check(shared.Kill(cluster.Kubecri, nodeB, syscall.SIGKILL))
	f.bind(newPod("away", "", nil), "resource/group/fickle/2/cards")
	r.awaitRunning("away")
	if got, ok := r.env("away")["FICKLE"]; ok {
		t.Errorf("kubecri was down, and yet: %s", got)
	}
	r.check(shared.Start(cluster.Kubecri, nodeB))
	r.awaitEvent("away", "StartedWithoutDevices", `"main"`, "resource/group/fickle/2/cards")
	r.await("the container of pod away to run with its device", func() (bool, string) {
		s := r.pod("away").Status.ContainerStatuses
		if len(s) == 0 || s[0].RestartCount == 0 || s[0].State.Running == nil {
			return false, fmt.Sprint(s)
		}
		out, err := shared.Kubectl(r.ctx, "exec", "-n", r.ns, "away", "-c", "main", "--", "/app", "env") // it may be stopped just now
		return err == nil && strings.Contains(out, "FICKLE=2"), fmt.Sprint(out, err)
	})

	// kubecri hangs: the container over which it hangs is refused, and where the plugin is
	// required, so is each one after it.
	r.check(shared.AwaitServing(r.ctx, cluster.Kubecri, nodeB))
	r.check(shared.Kill(cluster.Kubecri, nodeB, syscall.SIGSTOP))
	hangs := newPod("hangs", nodeB, map[string]int64{"slow": 1})
	r.create(hangs)
	r.awaitEvent("hangs", "Failed", "kubecri", "failed to get NRI adjustment")
	r.check(shared.Kill(cluster.Kubecri, nodeB, syscall.SIGCONT))
	r.agree("hangs", "slow", 1)
	if n := r.pod("hangs").Status.ContainerStatuses[0].RestartCount; n != 0 {
		t.Errorf("the container was started %d times before", n)
	}

	// containerd does not wait for a kubecri that synchronizes late, and creates and starts
	// containers meanwhile. CRI's events tell of them, before NRI is there again.
	relay := nritest.NewRelay(t, filepath.Join(shared.Nodes()[1].Dir, "relay.sock"), filepath.Join(shared.Nodes()[1].Dir, "nri.sock"))
	r.check(shared.SetKubecriArgs(r.ctx, nodeB, "--nri-socket="+filepath.Join(shared.Nodes()[1].Dir, "relay.sock")))
	relay.HoldAt("Synchronize")
	relay.Drop()
	r.await("containerd to synchronize kubecri", func() (bool, string) { return relay.Holds(), "it has not begun to" })
	r.bindOpen("late", "slow", r.freeSlot("slow", devices[0].name, 3))
	r.awaitEvent("late", "StartedWithoutDevices", `"main"`, "slot slow-", "is stopped")
	relay.Release()
	r.await("the container of pod late to run with its device", func() (bool, string) {
		out, err := shared.Kubectl(r.ctx, "exec", "-n", r.ns, "late", "-c", "main", "--", "/app", "env")
		return err == nil && strings.Contains(out, "AKRI_DEVICES="), fmt.Sprint(out, err)
	})
	r.agree("late", "slow", 1)
}
