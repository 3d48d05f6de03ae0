package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubeslot/kubeslot/test/cluster"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// allocator changes who gives a Configuration's devices.
func (r *rig) allocator(configuration string, to akriv0.Allocator) {
	r.Helper()
	r.patchConfiguration(configuration, fmt.Sprintf(`{"spec":{"allocator":%q}}`, to))
}

// A Configuration moves to DRA and back while pods use its devices. They keep them, and each device is the other
// allocator's once nobody holds it.
func TestHandOver(t *testing.T) {
	t.Parallel()
	newRig(t).handOver("moves")
}

// The same while the controller is killed after each of its writes.
func TestHandOverControllerKilled(t *testing.T) {
	testAll(t, "kills the controller after each of its writes")
	r := newRig(t)
	k := r.killAfterEachWrite()
	r.handOver("moves-killed")
	kills := k.stop()
	t.Logf("killed after: %v", kills)
	for _, write := range []string{"create resourceslices", "delete resourceslices", "create deviceclasses"} {
		if kills[write] == 0 {
			t.Errorf("never killed after %q: %v", write, kills)
		}
	}
}

// handOver moves a Configuration of that name to DRA and back.
func (r *rig) handOver(name string) {
	r.Helper()
	dir := r.TempDir()
	devices := r.debugEcho(name, 1, func(c *akriv0.Configuration) {
		c.Spec.DiscoveryHandler.DiscoveryDetails = fmt.Sprintf(
			"descriptions: [%s0, %[1]s1]\nmounts: [{containerPath: /slots, hostPath: %s}]\n", name, dir)
	}, name+"0", name+"1")
	r.createTemplate("one", wants(name, 1))
	create := func(p *v1.Pod) {
		p.Spec.Containers[0].Args = []string{"hold", "/slots", "1h"}
		r.create(p)
	}
	create(newPod("slot", nodeA, map[string]int64{name: 1}))
	held := r.instancesOf(r.agree("slot", name, 1))[0]
	free := devices[0].name
	if free == held {
		free = devices[1].name
	}

	r.allocator(name, akriv0.AllocatorDRA)
	r.awaitAllocator(name, akriv0.AllocatorDRA, held)
	r.awaitPublished(name, free)
	create(claimPod("claim", nodeB, "one"))
	if got := r.instancesOf(r.agreeDRA("claim", name, 1)); got[0] != free {
		r.Errorf("the claim has %q, want %s: the other one is held", got, free)
	}
	r.agree("slot", name, 1)
	create(claimPod("next", nodeB, "one"))
	r.awaitUnallocated("next")
	r.delete("slot")
	r.agreeDRA("next", name, 1)
	r.awaitAllocator(name, akriv0.AllocatorDRA)
	r.awaitPublished(name, held, free)

	r.allocator(name, akriv0.AllocatorSlots)
	r.awaitPublished(name)
	create(newPod("back", nodeA, map[string]int64{name: 1}))
	r.awaitPending("back", name)
	r.agreeDRA("claim", name, 1)
	r.delete("next")
	if got := r.instancesOf(r.agree("back", name, 1)); got[0] != held {
		r.Errorf("pod back has %q, want %s: the other one is held by a claim", got, held)
	}
	r.agreeDRA("claim", name, 1)
	r.delete("claim")
	r.awaitAllocator(name, "")
	create(newPod("too", nodeB, map[string]int64{name: 1}))
	r.agree("too", name, 1)
	r.noConflict(dir)
}

// handOverLoad are pods of both allocators that come and go. Each container locks its slots for as long as it lives,
// and reports them.
type handOverLoad struct {
	*rig
	dir     string
	reports map[akriv0.Allocator]string
	stopped chan struct{}
	workers sync.WaitGroup
}

// handOverWorkers are those of each allocator: twice what has slots.
const handOverWorkers = 4

// startHandOverLoad makes two devices of a slot each, and pods that follow from the seed.
func (r *rig) startHandOverLoad(seed uint64) *handOverLoad {
	r.Helper()
	l := &handOverLoad{rig: r, dir: r.TempDir(), stopped: make(chan struct{}),
		reports: map[akriv0.Allocator]string{akriv0.AllocatorSlots: r.TempDir(), akriv0.AllocatorDRA: r.TempDir()}}
	r.debugEcho("switch", 1, func(c *akriv0.Configuration) {
		c.Spec.DiscoveryHandler.DiscoveryDetails = fmt.Sprintf(
			"descriptions: [switch0, switch1]\nmounts: [{containerPath: /slots, hostPath: %s}]\n", l.dir)
	}, "switch0", "switch1")
	r.createTemplate("one", wants("switch", 1))
	for i := range 2 * handOverWorkers {
		kind := akriv0.AllocatorSlots
		if i >= handOverWorkers {
			kind = akriv0.AllocatorDRA
		}
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		l.workers.Go(func() {
			for n := 0; ; n++ {
				goesOn, err := l.life(random, kind, fmt.Sprintf("%s-%d-%d", strings.ToLower(string(kind)), i, n))
				if err != nil {
					r.Errorf("load: %v", err)
				}
				if !goesOn {
					return
				}
			}
		})
	}
	return l
}

// life is that of one pod: it ends by itself, or is deleted at any time. That of the end of the load stays.
func (l *handOverLoad) life(random *rand.Rand, kind akriv0.Allocator, name string) (goesOn bool, err error) {
	node := []string{"", nodeA, nodeB}[random.IntN(3)]
	p := newPod(name, node, map[string]int64{"switch": 1})
	if kind == akriv0.AllocatorDRA {
		p = claimPod(name, node, "one")
	}
	p.Spec.RestartPolicy = v1.RestartPolicyNever
	lifetime := "1h"
	if random.IntN(3) == 0 {
		lifetime = "100ms"
	}
	main := &p.Spec.Containers[0]
	main.Args = []string{"witness", "/reports", "/slots", lifetime}
	main.Env = []v1.EnvVar{{Name: "POD_UID",
		ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.uid"}}}}
	p.Spec.Volumes = []v1.Volume{{Name: "reports",
		VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: l.reports[kind]}}}}
	main.VolumeMounts = []v1.VolumeMount{{Name: "reports", MountPath: "/reports"}}
	pods := kube.CoreV1().Pods(l.ns)
	if _, err := pods.Create(l.ctx, p, metav1.CreateOptions{}); err != nil {
		return false, err
	}
	upTo := time.After(time.Duration(1000+random.IntN(5000)) * time.Millisecond)
	for ended := false; !ended; {
		select {
		case <-l.stopped:
			return false, nil
		case <-upTo:
			ended = true
		case <-time.After(100 * time.Millisecond):
			live, err := pods.Get(l.ctx, name, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			ended = live.Status.Phase == v1.PodSucceeded || live.Status.Phase == v1.PodFailed
		}
	}
	if err := pods.Delete(l.ctx, name, metav1.DeleteOptions{}); err != nil {
		return false, err
	}
	for {
		if _, err := pods.Get(l.ctx, name, metav1.GetOptions{}); err != nil {
			return true, client.IgnoreNotFound(err)
		}
		select {
		case <-l.ctx.Done():
			return false, fmt.Errorf("pod %s is not gone: %w", name, l.ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// started is how many containers of the allocator's pods have had a device.
func (l *handOverLoad) started(kind akriv0.Allocator) int {
	l.Helper()
	files, err := os.ReadDir(l.reports[kind])
	l.check(err)
	n := 0
	for _, f := range files {
		if strings.HasSuffix(f.Name(), ".json") {
			n++
		}
	}
	return n
}

// finish stops the load. Pods that it has left and that are bound run with their devices, or have ended.
func (l *handOverLoad) finish() {
	l.Helper()
	close(l.stopped)
	l.workers.Wait()
	l.noConflict(l.dir)
	pods, err := kube.CoreV1().Pods(l.ns).List(l.ctx, metav1.ListOptions{})
	l.check(err)
	left := 0
	for _, p := range pods.Items {
		if p.Spec.NodeName == "" || p.Spec.Containers[0].Args[3] != "1h" {
			continue
		}
		left++
		if len(p.Spec.ResourceClaims) > 0 {
			l.agreeDRA(p.Name, "switch", 1)
		} else {
			l.agree(p.Name, "switch", 1)
		}
	}
	l.Logf("%d containers had slots, %d had claims; %d pods are left that hold a device",
		l.started(akriv0.AllocatorSlots), l.started(akriv0.AllocatorDRA), left)
	l.deletePods()
	l.awaitClaims("switch", map[string]holding{})
	l.ledgersAgree("switch")
	for i := range 2 {
		p := newPod(fmt.Sprint("last-", i), "", map[string]int64{"switch": 1})
		p.Spec.Containers[0].Args = []string{"hold", "/slots", "1h"}
		l.create(p)
	}
	for i := range 2 {
		l.agree(fmt.Sprint("last-", i), "switch", 1)
	}
	l.noConflict(l.dir)
}

// A Configuration changes its allocator again and again while pods of both come and go, and a moment later kubecri,
// the controller or the scheduler is killed. No slot is in two containers, and each time pods of the new allocator
// get devices.
func TestHandOverKilled(t *testing.T) {
	testAll(t, "kills kubecri, controller and scheduler again and again")
	r := newRig(t)
	_, seed, err := chaosWindow()
	r.check(err)
	random := rand.New(rand.NewPCG(seed, 1<<32))
	l := r.startHandOverLoad(seed)
	victims := [][2]string{{cluster.Kubecri, nodeA}, {cluster.Kubecri, nodeB},
		{cluster.Controller, ""}, {cluster.Scheduler, ""}}
	const rounds = 20
	for round := range rounds {
		to := []akriv0.Allocator{akriv0.AllocatorDRA, akriv0.AllocatorSlots}[round%2]
		r.allocator("switch", to)
		said := ""
		for range 1 + random.IntN(2) {
			after, victim := time.Duration(random.IntN(2000))*time.Millisecond, victims[random.IntN(len(victims))]
			said += fmt.Sprintf(", %s %s killed after %v", victim[0], victim[1], after)
			time.Sleep(after) // any moment
			r.check(shared.Restart(victim[0], victim[1]))
			if victim[0] == cluster.Scheduler {
				r.dropLease()
			}
		}
		t.Logf("round %d of seed %d: to %s%s", round, seed, to, said)
		r.await(fmt.Sprint("round ", round, ": the allocator to be ", to), func() (bool, string) {
			a := r.status("switch").Allocator
			return a == nil && to == akriv0.AllocatorSlots || a != nil && a.Current == to, fmt.Sprintf("%+v", a)
		})
		before := l.started(to)
		r.await(fmt.Sprintf("round %d: a container to have a device of %s", round, to), func() (bool, string) {
			return l.started(to) > before+1 || t.Failed(), fmt.Sprintf("%+v", r.status("switch").Allocator)
		})
		r.noConflict(l.dir)
		if t.Failed() {
			break
		}
	}
	l.finish()
	t.Logf("seed %d: %d changes of the allocator", seed, rounds)
}
