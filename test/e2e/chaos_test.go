package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kubeslot/kubeslot/test/cluster"
)

// fault is something that goes away and comes back after outage.
type fault struct {
	how             string // kill, freeze, cut off or lose the devices of
	component, node string // component is "" where it is the node that suffers
	outage          time.Duration
}

func (f fault) String() string {
	return fmt.Sprintf("%s %s for %v", f.how, strings.TrimSpace(f.component+" "+f.node), f.outage)
}

// targets of faults.
var targets = []fault{
	{component: cluster.Kubecri, node: nodeA}, {component: cluster.Kubecri, node: nodeB},
	{component: cluster.Containerd, node: nodeA}, {component: cluster.Containerd, node: nodeB},
	{component: cluster.APIServer}, {component: schedulerB}, {component: cluster.Controller},
	{node: nodeA}, {node: nodeB},
}

// nextFaults returns one to three faults of different targets, which come at the same
// time.
func nextFaults(random *rand.Rand) []fault {
	var faults []fault
	for _, i := range random.Perm(len(targets))[:1+random.IntN(3)] {
		f := targets[i]
		f.outage = time.Duration(random.IntN(3000)) * time.Millisecond
		switch {
		case f.component == "":
			f.how = "cut off"
		case random.IntN(3) == 0:
			f.how = "freeze"
		default:
			f.how = "kill"
		}
		faults = append(faults, f)
	}
	return faults
}

// last has the fault come, and go after its outage. What was killed is not started.
func (f fault) last() error {
	if f.how == "lose the devices of" {
		return f.loseDevices()
	}
	if f.component == "" {
		if err := shared.Partition(f.node); err != nil {
			return err
		}
		time.Sleep(f.outage)
		return shared.Heal(f.node)
	}
	signal := syscall.SIGKILL
	if f.how == "freeze" {
		signal = syscall.SIGSTOP
	}
	err := shared.Kill(f.component, f.node, signal)
	if err != nil && !errors.Is(err, os.ErrProcessDone) { // a scheduler ends by itself where there is no API server
		return err
	}
	time.Sleep(f.outage)
	if f.how == "freeze" {
		if err := shared.Kill(f.component, f.node, syscall.SIGCONT); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
	}
	return nil
}

// loseDevices has the node see no device of debugEcho for a time.
func (f fault) loseDevices() error {
	for _, n := range shared.Nodes() {
		if n.Name != f.node {
			continue
		}
		file := filepath.Join(n.KubecriDir, "debug-echo-availability.txt")
		if err := writeFile(file, "OFFLINE\n"); err != nil {
			return err
		}
		time.Sleep(f.outage)
		return os.Remove(file)
	}
	return fmt.Errorf("no node %s", f.node)
}

// suffer has the fault come and go, and waits until all is as before.
func (f fault) suffer(ctx context.Context) error {
	if err := f.last(); err != nil || f.component == "" {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if _, err := shared.PID(f.component, f.node); err != nil {
			if err := shared.Start(f.component, f.node); err != nil {
				return err
			}
		}
		err := shared.AwaitServing(ctx, f.component, f.node)
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

// chaosWindow is how long TestChaos goes on, CHAOS's time or a minute, and its seed.
func chaosWindow() (window time.Duration, seed uint64, err error) {
	if window, err = time.ParseDuration(cmp.Or(os.Getenv("CHAOS"), "1m")); err != nil {
		return 0, 0, fmt.Errorf("CHAOS: %w", err)
	}
	if seed, err = strconv.ParseUint(cmp.Or(os.Getenv("SEED"), "1"), 10, 64); err != nil {
		return 0, 0, fmt.Errorf("SEED: %w", err)
	}
	return window, seed, nil
}

// leastRounds of faults are had on a machine on which they take longer than the window.
const leastRounds = 5

// Pods come and go on two nodes while kubecri, containerd, the API server, scheduler and
// controller are killed or frozen, and nodes cut off, at random. No slot has two
// holders, none is leaked, and no container has other devices than it was assigned.
func TestChaos(t *testing.T) {
	testAll(t, "goes on for a minute")
	r := newRig(t)
	window, seed, err := chaosWindow()
	r.check(err)
	r.schedulers([]string{schedulerB}, "--leader-elect=false")
	random := rand.New(rand.NewPCG(seed, 0))
	l := startChaosLoad(r, "chaos", seed)
	l.awaitBound(1)
	rounds := 0
	for end := time.Now().Add(window); rounds < leastRounds || time.Now().Before(end); rounds++ {
		faults := nextFaults(random)
		t.Logf("round %d of seed %d: %v", rounds, seed, faults)
		errs := make([]error, len(faults))
		var suffering sync.WaitGroup
		for i, f := range faults {
			suffering.Go(func() {
				if err := f.suffer(r.ctx); err != nil {
					errs[i] = fmt.Errorf("%s: %w", f, err)
				}
			})
		}
		suffering.Wait()
		for _, err := range errs {
			r.check(err)
		}
		l.awaitBound(1) // pods are bound again
	}
	l.finish()
	t.Logf("seed %d: %d rounds of faults", seed, rounds)
}
