package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/test/cluster"
	"github.com/kubeslot/kubeslot/types"
)

// A plugin's servers are killed again and again while pods come and go: no container has a widget that its pod was
// not given, or that another one has, none is lost, and kubecri and the scheduler stay.
func TestKilledPluginServers(t *testing.T) {
	kills := 100
	if testing.Short() {
		kills = 20
	}
	r := newRig(t)
	s := r.serveWidgets("Go")
	before := pids(r)
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	const seed = 1
	l := r.startPluginLoad(ctx, seed, func(random *rand.Rand, name string) *v1.Pod {
		return widgetPod(name, []string{"", nodeA, nodeB}[random.IntN(3)], 1+random.IntN(2))
	}, func(from types.ResourceName) string {
		var board, widget int
		if _, err := fmt.Sscanf(string(from), "resource/group/board/%d/widget/%d/cards", &board, &widget); err != nil {
			return ""
		}
		return fmt.Sprintf("widget-%d-%d", board, widget)
	})
	random := rand.New(rand.NewPCG(seed, 1<<32))
	programs := [][2]string{{widgetScheduler, ""}, {widgetDevice, nodeA}, {widgetDevice, nodeB}}
	for i := 0; i < kills && !t.Failed(); i++ {
		time.Sleep(time.Duration(random.IntN(600)) * time.Millisecond) // any moment
		p := programs[random.IntN(len(programs))]
		r.check(shared.Restart(p[0], p[1]))
	}
	cancel()
	l.finish()
	if after := pids(r); before != after {
		t.Errorf("processes were %s, and are %s", before, after)
	}
	r.deletePods()
	var all []string
	for i, node := range []string{nodeA, nodeA, nodeB, nodeB} {
		r.create(widgetPod(fmt.Sprint("last-", i), node, 2))
	}
	for i, node := range []string{nodeA, nodeA, nodeB, nodeB} {
		for _, w := range r.widgets(fmt.Sprint("last-", i), 2) {
			all = append(all, node+" "+w)
		}
	}
	slices.Sort(all)
	if all = slices.Compact(all); len(all) != 8 {
		t.Errorf("of 8 widgets the last pods have %q", all)
	}
	s.awaitReadyz(cluster.Scheduler, "", "200")
}

func pids(r *rig) string {
	r.Helper()
	var all []string
	for _, p := range [][2]string{{cluster.Scheduler, ""}, {cluster.Kubecri, nodeA}, {cluster.Kubecri, nodeB}} {
		pid, err := shared.PID(p[0], p[1])
		r.check(err)
		all = append(all, fmt.Sprint(p[0], " ", pid))
	}
	return strings.Join(all, ", ")
}
