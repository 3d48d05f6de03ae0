// Package preemption chooses which pods have to go so that another gets slots, on whichever
// node they are, and deletes them: candidates, victims, budgets.
//
// It has no state of its own. What is kept for the pod that preempts is in the slot cache.
package preemption

import (
	"context"
	"slices"
	"time"

	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotcache"
)

// MaxPreemptions bounds the preemptions that the best one is chosen from, each on
// another node, as DefaultPreemption's minCandidateNodesAbsolute does. Nodes where none is
// possible do not count, there as here: the pod would wait though the next node has one.
const MaxPreemptions = 100

// Evaluator chooses and evicts victims for the pods of one profile. Safe for concurrent use.
type Evaluator struct {
	PluginName string // that rejects victims which wait for their permit
	Handle     fwk.Handle
	Cache      *slotcache.Cache
	Pods       corelisters.PodLister
	PDBs       policylisters.PodDisruptionBudgetLister
}

// Preempt chooses the best preemption on the nodes, and keeps its slots for the pod until the
// timeout. The slot cache's lock is free at times: what was found is confirmed in the end. If
// that fails, the pod is tried again. Nothing is chosen once ctx is done, and nothing is kept of a
// preemption that is Free.
func (e *Evaluator) Preempt(ctx context.Context, req *ledger.Request, nodes []string, strategy ledger.Strategy, timeout time.Duration) (*ledger.Preemption, *slotcache.Nomination) {
	var (
		distinct []string // nodes that differ in what a preemption finds
		holders  *ledger.PotentialVictims
		best     *ledger.Preemption
	)
	e.Cache.Read(func(l *ledger.Ledger) { distinct, holders = l.Distinct(nodes, req), l.PotentialVictims(req) })
	choices, budgets := 0, e.budgets()
	for _, node := range distinct {
		if ctx.Err() != nil {
			return nil, nil
		}
		var candidates []ledger.Victim
		e.Cache.Read(func(*ledger.Ledger) { candidates = holders.On(node) })
		candidates = e.protect(slices.DeleteFunc(candidates, func(v ledger.Victim) bool { return v.Priority >= req.Priority }), budgets)
		var found *ledger.Preemption
		e.Cache.Read(func(l *ledger.Ledger) { found = l.Preempt(strategy, node, req, candidates) })
		if found == nil {
			continue
		}
		if choices++; best == nil || ledger.Better(found, best) < 0 {
			best = found
		}
		if choices == MaxPreemptions {
			break
		}
	}
	if best == nil || best.Free {
		return best, nil
	}
	return e.Cache.Nominate(req, best, strategy, timeout)
}
