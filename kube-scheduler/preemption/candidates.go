// Package preemption chooses which pods have to go so that another gets slots, on whichever
// node they are, and deletes them: candidates, victims, budgets.
//
// It has no state of its own. What is kept for the pod that preempts is in the slot cache.
package preemption

import (
	"cmp"
	"context"
	"time"

	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotcache"
)

const (
	// MaxPreemptions bounds the preemptions that the best one is chosen from, each on
	// another node, as DefaultPreemption's minCandidateNodesAbsolute does.
	MaxPreemptions = 100
	// DefaultLimit bounds the nodes and pods that are looked at for one try of a pod. Counts
	// alone rule out most nodes where no preemption is possible, and these cost next to
	// nothing; DefaultPreemption looks at each node's pods.
	DefaultLimit = 10_000
)

// LimitError says that not all nodes were looked at on which a preemption may be possible: the
// pod is to be tried again, from Next on.
type LimitError struct{ Next int }

func (*LimitError) Error() string {
	return "no pods of lower priority hold slots that would help on the nodes that were looked at; the pod is tried again, on others"
}

// Evaluator chooses and evicts victims for the pods of one profile. Safe for concurrent use.
type Evaluator struct {
	PluginName string // that rejects victims which wait for their permit
	Handle     fwk.Handle
	Cache      *slotcache.Cache
	Pods       corelisters.PodLister
	PDBs       policylisters.PodDisruptionBudgetLister
	Limit      int // 0 for DefaultLimit
}

// Preempt chooses the best preemption on the nodes, and keeps its slots for the pod until the
// timeout. The slot cache's lock is free at times: what was found is confirmed in the end. If
// that fails, the pod is tried again. Nothing is kept of a preemption that is Free. It is an error
// when ctx is done, and a *LimitError when none was found and nodes are left. It begins at from, 0
// or where that error said, and goes round.
func (e *Evaluator) Preempt(ctx context.Context, req *ledger.Request, nodes []string, from int, strategy ledger.Strategy, timeout time.Duration) (*ledger.Preemption, *slotcache.Nomination, error) {
	var (
		distinct []string // nodes that differ in what a preemption finds
		holders  *ledger.PotentialVictims
		best     *ledger.Preemption
	)
	e.Cache.Read(func(l *ledger.Ledger) { distinct, holders = l.Distinct(nodes, req), l.PotentialVictims(req) })
	choices, looked, budgets := 0, 0, e.budgets()
	for i := range distinct {
		next := (from + i) % len(distinct)
		node := distinct[next]
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		suffice := false
		var candidates []ledger.Victim
		e.Cache.Read(func(*ledger.Ledger) {
			if suffice = holders.Suffice(node); suffice {
				candidates = holders.On(node)
			}
		})
		if !suffice {
			continue
		}
		if looked >= cmp.Or(e.Limit, DefaultLimit) {
			if best == nil {
				return nil, nil, &LimitError{Next: next}
			}
			break
		}
		looked += 1 + len(candidates)
		candidates = e.protect(candidates, budgets)
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
		return best, nil, nil
	}
	best, nomination := e.Cache.Nominate(req, best, strategy, timeout)
	return best, nomination, nil
}
