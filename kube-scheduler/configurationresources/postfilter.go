package configurationresources

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubeslot/kubeslot/kube-scheduler/kubecripods"
	"github.com/kubeslot/kubeslot/kube-scheduler/waitreason"
)

// PostFilter preempts pods of lower priority, on whichever node, that hold slots
// of devices which the pod could use from a node where nothing but slots is
// missing. It runs after DefaultPreemption, which evicts on one node only. It evicts no pod for a
// node whose kubecri is away, or whose kubelet would refuse the pod, and reserves no slots there.
func (p *Plugin) PostFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	from := p.cache.Queue.Asked(pod.UID)
	c, status := readCycle(state)
	if status != nil {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	var ended *fwk.PostFilterResult // of a nomination; nil leaves the API's as it is
	if node, ready := p.cache.NominatedNode(pod.UID); node != "" {
		if statuses.Get(node).Code() != fwk.UnschedulableAndUnresolvable {
			p.cache.Queue.Reserved(pod.UID)
			// Its victims are on their way out, or Filter gave up before it came to the node.
			if ready && c.Request.Budget.Spent() {
				p.cache.Queue.RetryLater(pod.UID)
			}
			return framework.NewPostFilterResultWithNominatedNode(node), nil
		}
		p.cache.EndNomination(pod) // as upstream's DefaultPreemption: their end would not help there
		ended = framework.NewPostFilterResultWithNominatedNode("")
	}
	if pod.Spec.PreemptionPolicy != nil && *pod.Spec.PreemptionPolicy == v1.PreemptNever {
		return ended, fwk.NewStatus(fwk.Unschedulable, "not eligible for slot preemption: preemptionPolicy is Never")
	}
	nodes, err := statuses.NodesForStatusCode(p.handle.SnapshotSharedLister().NodeInfos(), fwk.Unschedulable)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	var short []string
	unready := map[waitreason.Reason][]string{} // nodes that have no use for free slots yet
	for _, n := range nodes {
		name := n.Node().Name
		switch {
		case statuses.Get(name).Plugin() != Name || p.cache.ChoosesSlots(name):
		case c.Unadvertised(n) != nil:
			unready[waitreason.NotAdvertised] = append(unready[waitreason.NotAdvertised], name)
		case kubecripods.Away(n):
			unready[waitreason.KubecriAway] = append(unready[waitreason.KubecriAway], name)
		default:
			short = append(short, name)
		}
	}
	best, nomination, err := p.preemption.Preempt(ctx, c.Request, short, from, p.args.Strategy, p.args.NominationTimeout.Duration)
	if err != nil {
		for reason, nodes := range unready {
			if p.preemption.Possible(c.Request, nodes) {
				c.meet(reason) // it is tried again when such a node is ready
			}
		}
		return ended, fwk.NewStatus(fwk.Unschedulable, err.Error())
	}
	if len(best.Victims) > 0 {
		go p.preemption.Evict(context.WithoutCancel(ctx), pod, best, nomination)
	}
	return framework.NewPostFilterResultWithNominatedNode(best.Node), nil
}
