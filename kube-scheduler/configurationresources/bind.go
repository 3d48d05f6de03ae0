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

// beforeBind is the step before a pod's Binding is sent: it makes sure that the node still leaves
// the slots to the scheduler, or still does not, that they are the pod's still, and with claimMode
// Scheduler claims them. kubecri finds the claim made then, and does not wait: after a restore it
// is here that nodes get the time to make their claims again.
type beforeBind struct {
	*Plugin
	pod   *v1.Pod
	node  string
	bare  bool                  // the node chose slots itself at Reserve: the pod is bound without an assignment
	wants []*v1alpha1.SlotClaim // none with claimMode Node
	taken []*v1alpha1.SlotClaim
}

// toClaim has the step claim the slots, with claimMode Scheduler. It is called in the scheduling cycle: the node
// is looked up in its snapshot.
func (s *beforeBind) toClaim(a ledger.Assignment) error {
	if s.claims == nil {
		return nil
	}
	info, err := s.handle.SnapshotSharedLister().NodeInfos().Get(s.node)
	if err != nil {
		return fmt.Errorf("claim slots on node %s: %w", s.node, err)
	}
	s.wants = claims.Of(s.pod, info.Node(), a)
	return nil
}

// Do claims all slots or none. A slot that another has taken the watch shows soon: the pod,
// tried again, gets another or waits.
func (s *beforeBind) Do(ctx context.Context) *fwk.Status {
	if len(s.wants) > 0 {
		if err := s.cache.Believable(ctx); err != nil {
			return fwk.AsStatus(fmt.Errorf("the slots of pod %s on node %s are not claimed yet: %w", klog.KObj(s.pod), s.node, err))
		}
	}
	if s.cache.ChoosesSlots(s.node) != s.bare { // since Reserve
		s.cache.Queue.RetryLater(s.pod.UID)
		how := "with"
		if s.bare {
			how = "without"
		}
		return fwk.NewStatus(fwk.Unschedulable, fmt.Sprintf("cannot be bound to node %s %s an assignment: the "+
			"node has begun, or ceased, to choose slots itself (label %s=%s); the pod is tried again",
			s.node, how, v1alpha1.ModeLabel, v1alpha1.ModeDevicePlugin))
	}
	var lost error
	if !s.bare {
		s.cache.Read(func(l *ledger.Ledger) { lost = l.Check(string(s.pod.UID)) })
	}
	if lost != nil || len(s.wants) == 0 {
		return fwk.AsStatus(lost)
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
