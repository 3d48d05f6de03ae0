// Package preemption chooses which pods have to go so that another gets slots, on whichever
// node they are, and deletes them: candidates, victims, budgets.
//
// It has no state of its own. What is reserved for the pod that preempts is in the slot cache.
package preemption

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
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
	// DefaultLimit bounds the nodes and pods that are looked at for one try of a pod, to the end of a node. Counts
	// alone rule out most nodes where no preemption is possible, and these cost next to
	// nothing; DefaultPreemption looks at each node's pods.
	DefaultLimit = 10_000
)

// Why no pod is preempted.
var (
	errNone  = errors.New("no pods of lower priority hold slots that would help")
	errLimit = errors.New("no pods of lower priority hold slots that would help on the nodes that were looked at; the pod is tried again, on others")
	errFree  = errors.New("slots that would do are free by now, so no pod is preempted; the pod is tried again")
)

// Evaluator chooses and evicts victims for the pods of one profile. Safe for concurrent use.
type Evaluator struct {
	PluginName string // that rejects victims which wait for their permit
	Handle     fwk.Handle
	Cache      *slotcache.Cache
	Pods       corelisters.PodLister
	PDBs       policylisters.PodDisruptionBudgetLister
	Limit      int // 0 for DefaultLimit
}

// Preempt chooses the best preemption on the nodes, and reserves its slots for the pod until the
// timeout. The slot cache's lock is free at times: what was found is confirmed in the end. An
// error says why there is no preemption; the pod is tried again unless none is possible. Where Filter has
// spent the request's budget before it came to a node that has the slots free, these are reserved: so the
// framework begins with that node the next time, and not with those that Filter began with. The
// search begins with the node at index from, of those where a preemption may be possible: 0, or where
// the pod's last search was Unfinished. After the last node it continues with the first.
func (e *Evaluator) Preempt(ctx context.Context, req *ledger.Request, nodes []string, from int, strategy ledger.Strategy, timeout time.Duration) (*ledger.Preemption, *slotcache.Nomination, error) {
	var (
		holders *ledger.PotentialVictims
		best    *ledger.Preemption
	)
	gaveUp := req.Budget.Spent() // Filter has
	req = req.WithNewBudget()
	e.Cache.Read(func(l *ledger.Ledger) {
		if len(nodes) > 0 { // else all pods were looked at for nothing
			holders = l.PotentialVictims(req)
			nodes = holders.Nodes(nodes)
		}
	})
	choices, outdated, read := 0, false, budgets{}
	for i := range nodes {
		next := (from + i) % len(nodes)
		node := nodes[next]
		if ctx.Err() != nil {
			e.Cache.Queue.Unfinished(types.UID(req.UID), from)
			return nil, nil, context.Cause(ctx)
		}
		if i+holders.Looked() >= cmp.Or(e.Limit, DefaultLimit) || req.Budget.Spent() {
			if best == nil {
				e.Cache.Queue.Unfinished(types.UID(req.UID), next)
				return nil, nil, errLimit
			}
			break
		}
		var candidates []ledger.Victim
		e.Cache.Read(func(*ledger.Ledger) { candidates = holders.On(node) })
		candidates = e.protect(candidates, read)
		var found *ledger.Preemption
		e.Cache.Read(func(*ledger.Ledger) {
			found = holders.Preempt(strategy, node, candidates)
			outdated = outdated || holders.Outdated()
		})
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
	switch {
	case best == nil && outdated: // and no event may follow
		e.Cache.Queue.RetryLater(types.UID(req.UID))
		return nil, nil, errLimit
	case best == nil:
		return nil, nil, errNone
	}
	best, nomination := e.Cache.Nominate(req, best, gaveUp, strategy, timeout)
	switch {
	case best == nil:
		return nil, nil, errNone
	case nomination == nil:
		return nil, nil, errFree
	}
	return best, nomination, nil
}

// Possible reports whether pods that might be preempted hold what the request needs on one of the
// nodes. It counts, as a preemption does first, and looks at no pod's budget.
func (e *Evaluator) Possible(req *ledger.Request, nodes []string) (possible bool) {
	if len(nodes) == 0 {
		return false
	}
	e.Cache.Read(func(l *ledger.Ledger) {
		holders := l.PotentialVictims(req)
		possible = slices.ContainsFunc(holders.Nodes(nodes),
			func(node string) bool { return len(holders.On(node)) > 0 })
	})
	return possible
}
