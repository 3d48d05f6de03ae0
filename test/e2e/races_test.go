package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kubeslot/kubeslot/test/cluster"
	"github.com/kubeslot/kubeslot/test/history"
)

// Two further schedulers, which take the place of the one that Up started.
const schedulerB, schedulerC = "kube-scheduler-b", "kube-scheduler-c"

var schedulerPorts = map[string]int{cluster.Scheduler: 10259, schedulerB: 10269, schedulerC: 10279}

// schedulers runs the given schedulers instead of the cluster's own one, until the
// test ends.
func (r *rig) schedulers(components []string, args ...string) {
	r.Helper()
	r.check(shared.Kill("kube-scheduler", "", syscall.SIGKILL))
	r.Cleanup(func() {
		for _, component := range components {
			if err := shared.RemoveScheduler(component); err != nil {
				r.Error(err)
			}
		}
		r.dropLease()
		r.check(shared.Start("kube-scheduler", ""))
		r.check(shared.AwaitServing(context.Background(), "kube-scheduler", ""))
	})
	r.dropLease()
	for _, component := range components {
		r.check(shared.StartScheduler(r.ctx, component, schedulerPorts[component], args...))
	}
}

// dropLease deletes the schedulers' lease, which one that is killed does not give back, so that the
// next one need not wait for its end.
func (r *rig) dropLease() {
	r.Helper()
	err := kube.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(context.Background(), "kube-scheduler", metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		r.Error(err)
	}
}

// keepRunning restarts components that have ended, as systemd does, until stopped.
func (r *rig) keepRunning(components ...string) (stop func()) {
	ctx, cancel := context.WithCancel(r.ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		wait.UntilWithContext(ctx, func(context.Context) {
			for _, component := range components {
				if _, err := shared.PID(component, ""); err != nil {
					if err := shared.Start(component, ""); err != nil {
						r.Error(err)
					}
				}
			}
		}, 100*time.Millisecond)
	})
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	r.Cleanup(stop)
	return stop
}

// leads reports whether the component's running process has acquired the lease.
func leads(component string) bool {
	log, err := os.ReadFile(shared.LogPath(component, ""))
	if err != nil {
		return false
	}
	_, err = shared.PID(component, "")
	life := log[max(0, bytes.LastIndex(log, []byte("\n--- "))):]
	return err == nil && bytes.Contains(life, []byte("uccessfully acquired lease"))
}

// awaitLeader waits until one of them leads, and returns which, and another.
func (r *rig) awaitLeader(among ...string) (leader string) {
	r.Helper()
	r.await(fmt.Sprintf("one of %v to lead", among), func() (bool, string) {
		for _, component := range among {
			if leads(component) {
				leader = component
				return true, ""
			}
		}
		return false, "none does"
	})
	return leader
}

// awaitBound waits until the load's pods are being bound: n more of them than now.
func (l *load) awaitBound(n int) {
	l.Helper()
	l.awaitMore(n, "bound", func(so history.Report) int { return so.Bound })
}

// awaitPreempted waits until one more of the load's pods has been preempted.
func (l *load) awaitPreempted() {
	l.Helper()
	l.awaitMore(1, "preempted", func(so history.Report) int { return so.Preempted })
}

func (l *load) awaitMore(n int, what string, of func(history.Report) int) {
	l.Helper()
	seen := func() int {
		events, err := l.recorder.Events(l.ctx)
		l.check(err)
		return of(history.Check(events, history.Rules{Doubles: true}))
	}
	before := seen()
	l.await(fmt.Sprintf("%d more pods to be %s", n, what), func() (bool, string) {
		now := seen()
		return now >= before+n, fmt.Sprint(now-before, " were")
	})
}

// The leader is killed, or stopped until another leads and then resumed: it does
// not know yet that its lease is gone, and may bind late. Under load no slot has
// two live holders, and none is lost.
func TestLeaderFailover(t *testing.T) {
	testAll(t, "kills schedulers under load")
	r := newRig(t)
	r.schedulers([]string{schedulerB, schedulerC},
		"--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=500ms")
	r.keepRunning(schedulerB, schedulerC)
	l := startLoad(r, "over")
	other := map[string]string{schedulerB: schedulerC, schedulerC: schedulerB}
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGSTOP} {
		l.awaitBound(3)
		leader := r.awaitLeader(schedulerB, schedulerC)
		for err := shared.Kill(leader, "", signal); err != nil; err = shared.Kill(leader, "", signal) {
			if !errors.Is(err, os.ErrProcessDone) {
				r.Fatal(err)
			}
			leader = r.awaitLeader(schedulerB, schedulerC) // it had just ended by itself
		}
		r.awaitLeader(other[leader])
		if signal == syscall.SIGSTOP {
			l.awaitBound(1) // by the new leader
			r.check(shared.Kill(leader, "", syscall.SIGCONT))
		}
	}
	l.awaitBound(3)
	l.finish(history.Rules{Doubles: true})
}

// Scheduler and kubecri are killed again and again under load: no slot has two holders, and none
// is lost.
func TestKillLoops(t *testing.T) {
	testAll(t, "kills schedulers and kubecris under load")
	r := newRig(t)
	r.schedulers([]string{schedulerB}, "--leader-elect=false")
	l := startLoad(r, "kill")
	for round := range 6 {
		if round%2 == 0 {
			l.awaitPreempted() // its slots are kept for another pod, by a ledger that goes
		} else {
			l.awaitBound(1)
		}
		r.check(shared.Restart(schedulerB, ""))
		l.awaitBound(1)
		r.check(shared.Restart("kubecri", []string{nodeA, nodeB}[round%2]))
	}
	l.awaitBound(3)
	l.finish(history.Rules{})
}

// Two schedulers are active for the same pods: of two that they bind with one slot the later goes,
// and no slot is lost.
func TestTwoActiveSchedulers(t *testing.T) {
	testAll(t, "runs other schedulers under load")
	r := newRig(t)
	r.schedulers([]string{schedulerB, schedulerC}, "--leader-elect=false")
	l := startLoad(r, "both")
	l.awaitBound(25)
	l.finish(history.Rules{Doubles: true})
}
