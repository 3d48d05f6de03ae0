package configurationresources

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/claims"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// beforeBind is the step before a pod's Binding is sent: it makes sure that the
// slots are the pod's still, and with claimMode Scheduler claims them. kubecri finds the
// claim made then, and does not wait: after a restore it is here that nodes get the time to
// make their claims again.
type beforeBind struct {
	*Plugin
	pod   *v1.Pod
	node  string
	wants []*v1alpha1.SlotClaim // none with claimMode Node
	taken []*v1alpha1.SlotClaim
}

// beforeBind is called in the scheduling cycle: the node is looked up in its snapshot.
func (p *Plugin) beforeBind(pod *v1.Pod, node string, a ledger.Assignment) (*beforeBind, error) {
	s := &beforeBind{Plugin: p, pod: pod, node: node}
	if p.claims == nil {
		return s, nil
	}
	info, err := p.handle.SnapshotSharedLister().NodeInfos().Get(node)
	if err != nil {
		return nil, fmt.Errorf("claim slots on node %s: %w", node, err)
	}
	s.wants = claims.Of(pod, info.Node(), a)
	return s, nil
}

// Do claims all slots or none. A slot that another has taken is in the ledger
// afterwards: the pod, tried again, gets another or waits.
func (s *beforeBind) Do(ctx context.Context) *fwk.Status {
	if len(s.wants) > 0 {
		if err := s.cache.Believable(ctx); err != nil {
			return fwk.AsStatus(fmt.Errorf("the slots of pod %s on node %s are not claimed yet: %w", klog.KObj(s.pod), s.node, err))
		}
	}
	var lost error
	s.cache.Read(func(l *ledger.Ledger) { lost = l.Check(string(s.pod.UID)) })
	if lost != nil {
		return fwk.AsStatus(lost)
	}
	if s.cache.ChoosesSlots(s.node) { // since Reserve
		s.cache.Queue.RetryLater(s.pod.UID)
		return fwk.NewStatus(fwk.Unschedulable, fmt.Sprintf("cannot be bound to node %s with an assignment: the node chooses slots itself by now (label %s=%s); the pod is tried again",
			s.node, v1alpha1.ModeLabel, v1alpha1.ModeDevicePlugin))
	}
	if len(s.wants) == 0 {
		return nil
	}
	taken, err := s.claims.Take(ctx, s.wants)
	if held, ok := errors.AsType[*claims.Held](err); ok {
		s.cache.Queue.RetryLater(s.pod.UID)
		return fwk.NewStatus(fwk.Unschedulable, fmt.Sprintf("cannot be bound to node %s: %v; the pod is tried again", s.node, held))
	}
	s.taken = taken
	if logger := klog.FromContext(ctx).V(2); logger.Enabled() && len(taken) > 0 {
		names := make([]string, 0, len(taken))
		for _, claim := range taken {
			names = append(names, claim.Name)
		}
		logger.Info("Claimed slots", "pod", klog.KObj(s.pod), "node", s.node, "slots", names)
	}
	return fwk.AsStatus(err)
}

// Undo releases the claims of a pod that was not bound. The slots are the pod's in
// the ledger meanwhile. What cannot be released is left to its node.
func (s *beforeBind) Undo(ctx context.Context) {
	if len(s.taken) == 0 {
		return
	}
	if err := s.claims.Release(ctx, s.taken); err != nil {
		klog.FromContext(ctx).Error(err, "Slots stay claimed for a pod that was not bound; they are released later",
			"pod", klog.KObj(s.pod), "node", s.node)
	}
}

// Bind binds a pod that got slots, with its assignment in the Binding's
// annotations: one write, so that a pod is never bound without it. Other pods
// are left to the next bind plugin.
func (p *Plugin) Bind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	return p.binder.Bind(ctx, state, pod, node)
}
