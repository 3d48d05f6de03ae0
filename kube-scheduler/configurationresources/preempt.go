package configurationresources

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	apipod "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
)

// maxPreemptions bounds the preemptions that the best one is chosen from, each on
// another node, as DefaultPreemption's minCandidateNodesAbsolute does.
const maxPreemptions = 100

// PostFilter preempts pods of lower priority, on whichever node, that hold slots
// of devices which the pod could use from a node where nothing but slots is
// missing. It runs after DefaultPreemption, which evicts on one node only.
func (p *Plugin) PostFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	data, err := state.Read(stateKey)
	if err != nil {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	c := data.(*cycle)
	if node := p.book.nominatedNode(c.req.UID); node != "" {
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
		if name := n.Node().Name; statuses.Get(name).Plugin() == Name && !p.book.choosesSlots(name) {
			short = append(short, name)
		}
	}
	best, nomination := p.preempt(c, pod, short)
	if best == nil {
		return nil, fwk.NewStatus(fwk.Unschedulable, "no pods of lower priority hold slots that would help")
	}
	if best.Free {
		// Filter had others expected there, or the slots were given back since. They
		// take what they want first; no event of the ledger follows to wake this pod.
		p.book.queue.RetryLater(pod.UID)
		return nil, fwk.NewStatus(fwk.Unschedulable, "slots that would do are free by now, so no pod is preempted; the pod is tried again")
	}
	if len(best.Victims) > 0 {
		go p.evict(context.WithoutCancel(ctx), pod, best, nomination)
	}
	return framework.NewPostFilterResultWithNominatedNode(best.Node), nil
}

// preempt chooses the best preemption on the nodes, and keeps its slots for the pod.
// It may take long, with thousands of candidates, and the book's lock is free at
// times: what it has found is confirmed in the end. If that fails, it is tried again.
func (p *Plugin) preempt(c *cycle, pod *v1.Pod, nodes []string) (*ledger.Preemption, *deadline) {
	b := p.book
	var best *ledger.Preemption
	choices := 0
	distinct, holdings := b.choices(nodes, c.req)
	for _, node := range distinct {
		found := b.preemption(p.args.Strategy, node, c.req, p.protect(b.candidates(holdings, node, c.req)))
		if found == nil {
			continue
		}
		if best == nil || ledger.Better(found, best) < 0 {
			best = found
		}
		if choices++; choices == maxPreemptions {
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
		p.book.queue.RetryLater(pod.UID)
	}
	if best == nil || best.Free {
		return best, nil
	}
	return best, b.nominate(c.req.Pod, best.Node, best.Assignment, p.args.NominationTimeout.Duration)
}

// choices returns the nodes that differ in what a preemption for the request finds, and
// the pods that hold what it could be served from.
func (b *book) choices(nodes []string, req *ledger.Request) ([]string, *ledger.PotentialVictims) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.ledger.Distinct(nodes, req), b.ledger.PotentialVictims(req)
}

// candidates returns the pods of lower priority that hold what the request could be
// served from on the node.
func (b *book) candidates(holdings *ledger.PotentialVictims, node string, req *ledger.Request) []ledger.Victim {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return slices.DeleteFunc(holdings.On(node), func(v ledger.Victim) bool { return v.Priority >= req.Priority })
}

func (b *book) preemption(strategy ledger.Strategy, node string, req *ledger.Request, candidates []ledger.Victim) *ledger.Preemption {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.ledger.Preempt(strategy, node, req, candidates)
}

// budget is a PodDisruptionBudget with the number of evictions that it allows yet.
type budget struct {
	*policyv1.PodDisruptionBudget
	selector labels.Selector
	allowed  int32
}

// protect marks the candidates whose eviction would violate a budget, and fills
// in when they started. A budget protects none while it allows disruptions: those that
// it allows are of the least important.
func (p *Plugin) protect(candidates []ledger.Victim) []ledger.Victim {
	if len(candidates) == 0 {
		return nil
	}
	list, err := p.pdbs.List(labels.Everything())
	if err != nil {
		list = nil // an informer's lister does not fail
	}
	var budgets []*budget
	for _, b := range list {
		if selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector); err == nil {
			budgets = append(budgets, &budget{b, selector, b.Status.DisruptionsAllowed})
		}
	}
	pods := map[string]*v1.Pod{}
	for i := range candidates {
		v := &candidates[i]
		if pod, err := p.victim(*v); err == nil {
			pods[v.UID] = pod
			v.Started = schedutil.GetPodStartTime(pod).UnixNano()
		}
	}
	slices.SortFunc(candidates, func(a, b ledger.Victim) int { return ledger.MoreImportant(b, a) })
	for i := range candidates {
		v := &candidates[i]
		for _, b := range budgets {
			if pod := pods[v.UID]; pod == nil || !b.covers(pod) {
				continue
			}
			if b.allowed--; b.allowed < 0 {
				v.Protected = true
			}
		}
	}
	return candidates
}

// covers follows policy/v1: a budget with an empty selector covers all pods of
// its namespace; one already disrupted is not counted again.
func (b *budget) covers(pod *v1.Pod) bool {
	if b.Namespace != pod.Namespace || !b.selector.Matches(labels.Set(pod.Labels)) {
		return false
	}
	_, disrupted := b.Status.DisruptedPods[pod.Name]
	return !disrupted
}

func (p *Plugin) victim(v ledger.Victim) (*v1.Pod, error) {
	pod, err := p.pods.Pods(v.Namespace).Get(v.Name)
	if err == nil && string(pod.UID) != v.UID {
		err = fmt.Errorf("pod %s is another one now", v.Pod)
	}
	return pod, err
}

// evict deletes the victims. If one cannot be deleted, the slots are kept no
// longer and the preemptor is told and tried again.
func (p *Plugin) evict(ctx context.Context, preemptor *v1.Pod, chosen *ledger.Preemption, nomination *deadline) {
	logger := klog.FromContext(ctx)
	var errs []error
	for _, v := range chosen.Victims {
		pod, err := p.victim(v)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err == nil {
			err = p.evictOne(ctx, preemptor, pod, chosen.Node)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("evict pod %s: %w", v.Pod, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		logger.Error(err, "Preemption for slots failed", "pod", klog.KObj(preemptor), "node", chosen.Node)
		p.handle.EventRecorder().Eventf(preemptor, nil, v1.EventTypeWarning, "PreemptionFailed", "Preempting",
			"%d of %d pods could not be made to give up their slots, and it is tried again; the first: %.200s", len(errs), len(chosen.Victims), errs[0])
		p.book.mu.Lock()
		defer p.book.mu.Unlock()
		if p.book.nominatedInVain(preemptor, nomination) {
			p.book.queue.RetryLater(preemptor.UID)
		}
	}
}

func (p *Plugin) evictOne(ctx context.Context, preemptor, victim *v1.Pod, node string) error {
	if waiting := p.handle.GetWaitingPod(victim.UID); waiting != nil {
		waiting.Reject(Name, "preempted")
		return nil
	}
	status := victim.Status.DeepCopy()
	if apipod.UpdatePodCondition(status, &v1.PodCondition{
		Type:               v1.DisruptionTarget,
		ObservedGeneration: apipod.CalculatePodConditionObservedGeneration(status, victim.Generation, v1.DisruptionTarget),
		Status:             v1.ConditionTrue,
		Reason:             v1.PodReasonPreemptionByScheduler,
		Message:            fmt.Sprintf("%s: preempting to accommodate a higher priority pod that needs its device slots", preemptor.Spec.SchedulerName),
	}) {
		if err := schedutil.PatchPodStatus(ctx, p.handle.ClientSet(), victim.Name, victim.Namespace, &victim.Status, status); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("patch its status: %w", err)
		}
	}
	if deleted, err := p.delete(ctx, victim); err != nil || !deleted {
		return err
	}
	p.handle.EventRecorder().Eventf(victim, preemptor, v1.EventTypeNormal, "Preempted", "Preempting",
		"Preempted by pod %s on node %s, which needs its device slots", klog.KObj(preemptor), node)
	return nil
}

// delete deletes this pod, and not another that has its name by now. It reports
// whether the pod was still there.
func (p *Plugin) delete(ctx context.Context, pod *v1.Pod) (bool, error) {
	err := p.handle.ClientSet().CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, *metav1.NewPreconditionDeleteOptions(string(pod.UID)))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return false, nil
	}
	return err == nil, err
}
