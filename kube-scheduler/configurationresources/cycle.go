package configurationresources

import (
	"fmt"
	"sync"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotcache"
	"github.com/kubeslot/kubeslot/kube-scheduler/waitreason"
)

const stateKey = Name

// cycle is what the plugin knows of a pod during its scheduling cycle.
type cycle struct {
	*slotcache.Cycle
	// wait takes note of why the pod is refused.
	wait *waitreason.Record
	// texts are those of the *ledger.Shortfalls, which many nodes have alike.
	texts  *sync.Map
	scores []int8 // by place, once PreScore has computed them
}

// Clone implements fwk.StateData.
func (c *cycle) Clone() fwk.StateData {
	return &cycle{Cycle: c.Cycle.Clone(), wait: c.wait, texts: c.texts, scores: c.scores}
}

// groupOf returns what the pod is placed with, nil when it is placed alone. In a composite group those are the pods
// of all groups in it.
func groupOf(state fwk.CycleState) *slotcache.Group {
	root := state.GetPodGroupSchedulingCycle()
	if root == nil {
		return nil
	}
	for in := root.GetParentPlacementCycleState(); in != nil; in = root.GetParentPlacementCycleState() {
		root = in.GetPodGroupSchedulingCycle()
	}
	if data, err := root.Read(stateKey); err == nil {
		return data.(*slotcache.Group)
	}
	group := &slotcache.Group{}
	root.Write(stateKey, group)
	return group
}

func readCycle(state fwk.CycleState) (*cycle, *fwk.Status) {
	data, err := state.Read(stateKey)
	if err != nil {
		return nil, fwk.AsStatus(fmt.Errorf("read %s's cycle state: %w", Name, err))
	}
	return data.(*cycle), nil
}

// meet takes note of how things are, and not of how preemption imagines them.
func (c *cycle) meet(r waitreason.Reason) {
	if !c.Imagines() {
		c.wait.Meet(r)
	}
}

// status makes a status of a shortfall. Each node gets its own: the framework
// writes into it.
func (c *cycle) status(shortfall *ledger.Shortfall) *fwk.Status {
	known, ok := c.texts.Load(shortfall)
	if !ok {
		known, _ = c.texts.LoadOrStore(shortfall, shortfall.String())
	}
	text := known.(string)
	if shortfall.Resolvable() {
		return fwk.NewStatus(fwk.Unschedulable, text)
	}
	return unresolvable(text)
}

func unresolvable(reason string) *fwk.Status {
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, reason)
}
