package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/test/cluster"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// soakTargets are faults that last: for the seconds from and to.
var soakTargets = []struct {
	fault
	from, to int
}{
	{fault{how: "kill", component: cluster.Kubelet, node: nodeA}, 50, 80},
	{fault{how: "kill", component: cluster.Kubelet, node: nodeB}, 50, 80},
	{fault{how: "freeze", component: cluster.Kubelet, node: nodeA}, 50, 80},
	{fault{how: "cut off", node: nodeA}, 60, 90},
	{fault{how: "cut off", node: nodeB}, 60, 90},
	{fault{how: "lose the devices of", node: nodeA}, 20, 60},
	{fault{how: "lose the devices of", node: nodeB}, 20, 60},
	{fault{how: "freeze", component: cluster.Containerd, node: nodeA}, 20, 60},
	{fault{how: "freeze", component: cluster.Containerd, node: nodeB}, 20, 60},
	{fault{how: "kill", component: cluster.Kubecri, node: nodeA}, 0, 60},
	{fault{how: "freeze", component: cluster.Kubecri, node: nodeB}, 0, 60},
	{fault{how: "kill", component: cluster.Controller}, 0, 30},
	{fault{how: "kill", component: cluster.Scheduler}, 0, 20},
	{fault{how: "kill", component: cluster.APIServer}, 0, 30},
	{fault{how: "freeze", component: cluster.APIServer}, 0, 30},
}

// promised is less than a node may be cut off, and more than kubecri may be frozen.
const promised = 80 * time.Second

// endure has a fault come and go while the supervisor starts what ends by itself.
func (f fault) endure(s *supervisor) error {
	s.away(f.component, f.node, true)
	defer s.away(f.component, f.node, false)
	if err := f.last(); err != nil {
		return err
	}
	if f.component == cluster.APIServer && f.how == "kill" { // which the supervisor leaves alone
		return shared.Start(f.component, f.node)
	}
	return nil
}

// restore goes back to a backup of seconds ago. Kubernetes' own components are restarted, as its docs
// want it.
func (l *chaosLoad) restore(ctx context.Context, back time.Duration) error {
	backup := filepath.Join(l.TempDir(), fmt.Sprint("etcd-", time.Now().UnixNano()))
	if err := shared.Backup(backup); err != nil {
		return err
	}
	time.Sleep(back)
	if err := shared.Restore(backup); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := shared.AwaitServing(ctx, cluster.APIServer, ""); err != nil {
		return err
	}
	for _, at := range [][2]string{{cluster.Kubelet, nodeA}, {cluster.Kubelet, nodeB}, {cluster.ControllerManager, ""}} {
		if err := shared.Kill(at[0], at[1], syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
	}
	return os.RemoveAll(backup)
}

// A witness in each container locks a file for each of its slots while nodes are cut off or see no
// device, kubelets and runtimes are away for longer than a node takes to be not Ready, pods are deleted
// by force and without a grace period, and etcd is restored. No slot is in two containers, none is
// leaked, and containers start again after each round. Of half the devices slots are released when
// their node is cut off for long.
func TestSoak(t *testing.T) {
	testAll(t, "goes on for minutes")
	r := newRig(t)
	window, seed, err := chaosWindow()
	r.check(err)
	random := rand.New(rand.NewPCG(seed, 1))
	classes := r.chaosClasses()
	l := &soakLoad{newChaosLoad(r, "soak", classes, nil), newChaosLoad(r, "soakpromise", classes, func(c *akriv0.Configuration) {
		c.Spec.ReleaseUnreachableAfter = &metav1.Duration{Duration: promised}
	})}
	l.chaosLoad.rough, l.promised.rough = true, true
	s := r.superviseBut("", "")
	defer s.stop()
	t.Cleanup(r.controlPlaneRuns)
	l.begin(seed)
	l.promised.begin(seed + 1)
	started := l.containers()
	rounds, restores := 0, 0
	for end := time.Now().Add(window); rounds < 2 || time.Now().Before(end); rounds++ {
		before := l.containers()
		switch rounds % 4 {
		case 0, 2: // the nodes are there, and what they run is not left in peace
			l.quick(s, random, 30*time.Second)
		case 1:
			if rounds%8 != 1 {
				l.round(s, random, rounds, seed)
				break
			}
			back := time.Duration(5+random.IntN(35)) * time.Second
			t.Logf("round %d of seed %d: restore of a backup of %v ago", rounds, seed, back)
			r.check(l.restore(r.ctx, back))
			restores++
		default:
			l.round(s, random, rounds, seed)
		}
		l.await("containers to start again", func() (bool, string) {
			n := l.containers() - before
			return n > 0 && l.containers() > before+1, fmt.Sprint(n, " have started in this round")
		})
		l.one()
	}
	l.stop()
	l.promised.stop()
	l.settle()
	l.promised.settle()
	t.Logf("seed %d: %d rounds, %d of them restores, %d containers, none of which found its slot in use", seed, rounds, restores, l.containers()-started)
}

// soakLoad is two loads: the Configuration of the second has releaseUnreachableAfter.
type soakLoad struct {
	*chaosLoad
	promised *chaosLoad
}

// quick kills and freezes for a second at most, again and again.
func (l *soakLoad) quick(s *supervisor, random *rand.Rand, window time.Duration) {
	l.Helper()
	for end := time.Now().Add(window); time.Now().Before(end); {
		f := soakTargets[random.IntN(len(soakTargets))].fault
		f.outage = time.Duration(random.IntN(1000)) * time.Millisecond
		l.check(f.endure(s))
		time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
	}
}

// round has one to three faults at the same time.
func (l *soakLoad) round(s *supervisor, random *rand.Rand, round int, seed uint64) {
	l.Helper()
	var faults []fault
	had := map[string]bool{}
	for _, i := range random.Perm(len(soakTargets))[:1+random.IntN(3)] {
		f := soakTargets[i]
		if at := f.component + " " + f.node; had[at] {
			continue
		} else {
			had[at] = true
		}
		f.outage = time.Duration(f.from)*time.Second + time.Duration(random.IntN((f.to-f.from)*1000))*time.Millisecond
		faults = append(faults, f.fault)
	}
	l.Logf("round %d of seed %d: %v", round, seed, faults)
	errs := make([]error, len(faults))
	var enduring sync.WaitGroup
	for i, f := range faults {
		enduring.Go(func() {
			if err := f.endure(s); err != nil {
				errs[i] = fmt.Errorf("%s: %w", f, err)
			}
		})
	}
	enduring.Wait()
	for _, err := range errs {
		l.check(err)
	}
}

// containers is how many have reported their devices.
func (l *soakLoad) containers() int {
	l.Helper()
	n := 0
	for _, dir := range []string{l.reports, l.promised.reports} {
		files, err := os.ReadDir(dir)
		l.check(err)
		for _, f := range files {
			if strings.HasSuffix(f.Name(), ".json") {
				n++
			}
		}
	}
	return n
}

// one checks that no two containers had a slot at once.
func (l *soakLoad) one() {
	l.Helper()
	for _, dir := range []string{l.dir, l.promised.dir} {
		if conflict, err := os.ReadFile(filepath.Join(dir, "CONFLICT")); err == nil {
			l.Fatalf("containers used a slot at the same time:\n%s", conflict)
		}
	}
}
