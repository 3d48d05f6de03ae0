package configurationresources

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
)

// maxPreemptions bounds the preemptions that the best one is chosen from, each on
// another node, as DefaultPreemption's minCandidateNodesAbsolute does. Nodes where none is
// possible do not count, there as here: the pod would wait though the next node has one.
const maxPreemptions = 100

// PostFilter preempts pods of lower priority, on whichever node, that hold slots
// of devices which the pod could use from a node where nothing but slots is
// missing. It runs after DefaultPreemption, which evicts on one node only.
func (p *Plugin) PostFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	p.cache.queue.Finished(pod.UID)
	data, err := state.Read(stateKey)
	if err != nil {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	c := data.(*cycle)
	if node := p.cache.nominatedNode(c.req.UID); node != "" {
		p.cache.queue.Reserved(pod.UID)
		// Its victims are on their way out.
		return framework.NewPostFilterResultWithNominatedNode(node), nil
	}
	if pod.Spec.PreemptionPolicy != nil && *pod.Spec.PreemptionPolicy == v1.PreemptNever {
		return nil, fwk.NewStatus(fwk.Unschedulable, "not eligible for slot preemption: preemptionPolicy is Never")
	}
	nodes, err := statuses.NodesForStatusCode(p.handle.SnapshotSharedLister().NodeInfos(), fwk.Unschedulable)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	var short []string
	for _, n := range nodes {
		name := n.Node().Name
		if statuses.Get(name).Plugin() == Name && !p.cache.choosesSlots(name) && unadvertised(c.amounts, n, ledger.NotInSnapshot) == nil {
			short = append(short, name)
		}
	}
	best, nomination := p.preempt(ctx, c, pod, short)
	if best == nil {
		return nil, fwk.NewStatus(fwk.Unschedulable, "no pods of lower priority hold slots that would help")
	}
	if best.Free {
		// Filter had others expected there, or the slots were given back since. They
		// take what they want first; no event of the ledger follows to wake this pod.
		p.cache.queue.RetryLater(pod.UID)
		return nil, fwk.NewStatus(fwk.Unschedulable, "slots that would do are free by now, so no pod is preempted; the pod is tried again")
	}
	if len(best.Victims) > 0 {
		go p.evict(context.WithoutCancel(ctx), pod, best, nomination)
	}
	return framework.NewPostFilterResultWithNominatedNode(best.Node), nil
}

// preempt chooses the best preemption on the nodes, and keeps its slots for the pod. The
// slot cache's lock is free at times: what was found is confirmed in the end. If that fails, the
// pod is tried again. Nothing is chosen once ctx is done.
func (p *Plugin) preempt(ctx context.Context, c *cycle, pod *v1.Pod, nodes []string) (*ledger.Preemption, *deadline) {
	b := p.cache
	distinct, holders := b.choices(nodes, c.req)
	var best *ledger.Preemption
	choices, budgets := 0, p.budgets()
	for _, node := range distinct {
		if ctx.Err() != nil {
			return nil, nil
		}
		found := b.preemption(p.args.Strategy, node, c.req, p.protect(b.candidates(holders, node, c.req), budgets))
		if found == nil {
			continue
		}
		if choices++; best == nil || ledger.Better(found, best) < 0 {
			best = found
		}
		if choices == maxPreemptions {
			break
		}
	}
	if best == nil || best.Free {
		return best, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, waits := b.queue.Get(pod.UID); !waits {
		return nil, nil // it was deleted meanwhile
	}
	best = b.ledger.Preempt(p.args.Strategy, best.Node, c.req, best.Victims)
	if best == nil {
		p.cache.queue.RetryLater(pod.UID)
	}
	if best == nil || best.Free {
		return best, nil
	}
	return best, b.nominate(c.req.Pod, best.Node, best.Assignment, p.args.NominationTimeout.Duration)
}

// choices returns the nodes that differ in what a preemption for the request finds, and
// the pods that hold what it could be served from.
func (b *slotCache) choices(nodes []string, req *ledger.Request) ([]string, *ledger.PotentialVictims) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.ledger.Distinct(nodes, req), b.ledger.PotentialVictims(req)
}

// candidates returns the pods of lower priority that hold what the request could be
// served from on the node.
func (b *slotCache) candidates(holdings *ledger.PotentialVictims, node string, req *ledger.Request) []ledger.Victim {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return slices.DeleteFunc(holdings.On(node), func(v ledger.Victim) bool { return v.Priority >= req.Priority })
}

func (b *slotCache) preemption(strategy ledger.Strategy, node string, req *ledger.Request, candidates []ledger.Victim) *ledger.Preemption {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.ledger.Preempt(strategy, node, req, candidates)
}
