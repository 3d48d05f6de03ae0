package slotcache

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/config"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Nomination is of a pod that is nominated to a node, by this plugin's preemption or, as the pod's
// status says, by another's. The ledger reserves slots for the pod there.
type Nomination struct {
	req  *ledger.Request
	node string
	// until is when the reservation ends, unless the pod is bound or gone before, and timer ends it. Other pods may
	// have displaced it: then it is followed again. Both are unset as long as no slots were reserved, for the
	// victims of another plugin's preemption hold them.
	until time.Time
	timer clock.Timer
	// byOther is the pod if another plugin's preemption has nominated it; nil for one of ours.
	byOther *v1.Pod
}

// expired reports whether the time of the reservation is over: no slots are reserved again while the pod's
// status shows the nomination.
func (n *Nomination) expired(now time.Time) bool { return n.timer != nil && !now.Before(n.until) }

// Nominate reserves the slots of the preemption for the pod, and makes its victims known, until
// the pod is bound, gone, or the timeout passes. What was found without the lock is confirmed
// first: nil if that fails, or if the pod waits no longer. Nothing is reserved then, nor of a preemption
// that is Free unless free slots are to be reserved, too. Where the slots are free the pod is tried again.
func (b *Cache) Nominate(req *ledger.Request, found *ledger.Preemption, free bool, strategy ledger.Strategy,
	timeout time.Duration) (*ledger.Preemption, *Nomination) {
	b.mu.Lock()
	defer b.mu.Unlock()
	uid := types.UID(req.UID)
	if _, waits := b.Queue.Get(uid); !waits {
		return nil, nil // it was deleted meanwhile
	}
	found = b.ledger.Preempt(strategy, found.Node, req.WithNewBudget(), found.Victims)
	var n *Nomination
	if found != nil && (free || !found.Free) {
		n = &Nomination{req: req, node: found.Node}
		b.reserve(n, found.Assignment, timeout)
	}
	if found == nil || found.Free {
		// If free, Filter had others expected there, the slots were given back since, or Filter has not come to
		// them. Others take what they want first; no event of the ledger follows to activate this pod.
		b.Queue.RetryLater(uid)
	}
	return found, n
}

// InVain ends a nomination whose victims did not go, and has the pod tried again, unless the
// nomination has ended.
func (b *Cache) InVain(pod *v1.Pod, n *Nomination) {
	b.mu.Lock()
	defer b.mu.Unlock()
	uid := string(pod.UID)
	if b.nominations[uid] != n || b.ledger.Nominated(uid) == "" {
		return
	}
	b.endNomination(pod)
	b.Queue.RetryLater(pod.UID)
}

// EndNomination gives back what is reserved for the pod: its node cannot run it.
func (b *Cache) EndNomination(pod *v1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endNomination(pod)
}

// endNomination is EndNomination. The caller holds mu.
func (b *Cache) endNomination(pod *v1.Pod) {
	uid := string(pod.UID)
	b.forgetNomination(uid)
	b.gaveBack(pod.UID, b.ledger.ClearNomination(uid))
}

// NominatedNode is the node on which slots are reserved for the pod, "" for none, and whether it may take all
// of them: nothing more comes then that would have it tried.
func (b *Cache) NominatedNode(uid types.UID) (node string, ready bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.ledger.Nominated(string(uid)), b.ledger.Ready(string(uid))
}

// reserve reserves the slots for the nominated pod until it is bound, gone, or the timeout passes. The
// caller holds mu.
func (b *Cache) reserve(n *Nomination, a ledger.Assignment, timeout time.Duration) {
	pod := n.req.Pod
	b.forgetNomination(pod.UID)
	b.tellPreempted(pod, n.node, a)
	b.record(b.ledger.Nominate(pod, n.node, a))
	b.taken(a)
	b.Queue.Reserved(types.UID(pod.UID))
	n.until = b.clock.Now().Add(timeout)
	n.timer = b.clock.AfterFunc(timeout, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.nominations[pod.UID] != n {
			return // settled, while this waited for the lock
		}
		b.logger.Info("Slots are kept no longer for a pod that preempted others and was not bound in time",
			"pod", klog.KRef(pod.Namespace, pod.Name), "podUID", pod.UID, "node", n.node, "timeout", timeout)
		b.clearNomination(pod.UID)
		b.nominations[pod.UID] = n
	})
	b.nominations[pod.UID] = n
}

// clearNomination lets go of what is reserved or kept for the pod, and forgets that it was
// nominated. The caller holds mu.
func (b *Cache) clearNomination(uid string) {
	b.forgetNomination(uid)
	b.record(b.ledger.ClearNomination(uid))
}

// forgetNomination forgets that the pod was nominated, or is unclaimed. What the ledger has for it
// stays. The caller holds mu.
func (b *Cache) forgetNomination(uid string) {
	if n := b.nominations[uid]; n != nil && n.timer != nil {
		n.timer.Stop()
	}
	delete(b.nominations, uid)
	delete(b.unclaimed, uid)
}

// followNomination reserves slots also for pods that another plugin's preemption
// has nominated: it frees the slots on one node, and pods on other nodes that
// share the device could take them. The caller holds mu.
func (b *Cache) followNomination(pod *v1.Pod, req *ledger.Request) {
	uid, now := string(pod.UID), b.clock.Now()
	node, n := pod.Status.NominatedNodeName, b.nominations[uid]
	if node == "" {
		// A nomination of ours that is not over may not have reached the API yet.
		if n != nil && (n.byOther != nil || n.expired(now)) {
			b.clearNomination(uid)
		}
		return
	}
	// The framework also nominates pods that have been reserved, if their bind may
	// take long: those have their slots.
	if b.ledger.Nominated(uid) != "" || b.ledger.Holds(uid) != nil {
		return
	}
	args := b.argsOf(pod)
	timeout := args.NominationTimeout.Duration
	if n != nil && n.node == node && n.timer != nil {
		if timeout = n.until.Sub(now); timeout <= 0 {
			return
		}
	}
	// Its victims are known as such once they are being deleted.
	if p := b.ledger.Preempt(args.Strategy, node, req, nil); p != nil {
		b.reserve(&Nomination{req: req, node: node, byOther: pod}, p.Assignment, timeout)
		if b.ledger.Ready(uid) { // nothing more comes that would have it tried
			b.Queue.RetryLater(pod.UID)
		}
		return
	}
	if n == nil || n.node != node {
		b.forgetNomination(uid)
		n = &Nomination{req: req, node: node}
		b.nominations[uid] = n
	}
	if n.byOther == nil {
		b.Queue.RetryLater(pod.UID) // they may have gone already
	}
	n.byOther = pod
}

// withoutSlots are the nominations by other plugins for which the ledger reserves nothing, and which are not
// over: to nodes that reach a device of the slots, if any are given. A gang preempts pods for those on whichever
// node. The caller holds mu.
func (b *Cache) withoutSlots(of ...slot.Name) (found []*Nomination) {
	for uid, n := range b.nominations {
		reached := func(s slot.Name) bool { return b.ledger.Reaches(n.node, s.Instance) }
		if n.byOther != nil && !n.expired(b.clock.Now()) && b.ledger.Nominated(uid) == "" &&
			(len(of) == 0 || slices.ContainsFunc(of, reached)) {
			found = append(found, n)
		}
	}
	return found
}

// argsOf are the arguments of the pod's profile, or the defaults for a pod of
// another scheduler. The caller holds mu.
func (b *Cache) argsOf(pod *v1.Pod) *config.ConfigurationResourcesArgs {
	if args := b.profiles[pod.Spec.SchedulerName]; args != nil {
		return args
	}
	args := &config.ConfigurationResourcesArgs{}
	args.SetDefaults()
	return args
}
