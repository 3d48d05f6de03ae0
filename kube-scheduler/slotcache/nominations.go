package slotcache

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/config"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotrequest"
)

// Nominate keeps the slots of the preemption for the pod, and makes its victims known, until
// the pod is bound, gone, or the timeout passes. What was found without the lock is confirmed
// first: nil if that fails, and the pod is tried again, or if the pod waits no longer. Nothing is
// kept of a preemption that is Free.
func (b *Cache) Nominate(req *ledger.Request, found *ledger.Preemption, strategy ledger.Strategy, timeout time.Duration) (*ledger.Preemption, *Nomination) {
	b.mu.Lock()
	defer b.mu.Unlock()
	uid := types.UID(req.UID)
	if _, waits := b.Queue.Get(uid); !waits {
		return nil, nil // it was deleted meanwhile
	}
	found = b.ledger.Preempt(strategy, found.Node, req, found.Victims)
	if found == nil {
		b.Queue.RetryLater(uid)
	}
	if found == nil || found.Free {
		return found, nil
	}
	return found, b.nominate(req.Pod, found.Node, found.Assignment, timeout)
}

// InVain ends a nomination whose victims did not go, and has the pod tried again, unless the
// nomination has ended.
func (b *Cache) InVain(pod *v1.Pod, d *Nomination) {
	b.mu.Lock()
	defer b.mu.Unlock()
	uid := string(pod.UID)
	if b.deadlines[uid] != d || b.ledger.Nominated(uid) == "" {
		return
	}
	b.forgetNomination(uid)
	b.gaveBack(pod, b.ledger.ClearNomination(uid))
	b.Queue.RetryLater(pod.UID)
}

// NominatedNode is the node for which slots are kept for the pod, "" for none.
func (b *Cache) NominatedNode(uid types.UID) string {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.ledger.Nominated(string(uid))
}

// nominate keeps slots for a pod that preempted others until it is bound, gone,
// or the timeout passes. The caller holds mu.
func (b *Cache) nominate(pod ledger.Pod, node string, a ledger.Assignment, timeout time.Duration) *Nomination {
	b.forgetNomination(pod.UID)
	b.tellPreempted(pod, node, a)
	b.record(b.ledger.Nominate(pod, node, a))
	b.taken(a)
	b.Queue.Reserved(types.UID(pod.UID))
	d := &Nomination{node: node, at: b.clock.Now().Add(timeout)}
	d.timer = b.clock.AfterFunc(timeout, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.deadlines[pod.UID] != d {
			return // settled, while this waited for the lock
		}
		b.logger.Info("Slots are kept no longer for a pod that preempted others and was not bound in time",
			"pod", klog.KRef(pod.Namespace, pod.Name), "podUID", pod.UID, "node", node, "timeout", timeout)
		b.clearNomination(pod.UID)
		b.deadlines[pod.UID] = d // passed
	})
	b.deadlines[pod.UID] = d
	return d
}

// clearNomination lets go of what is kept for the pod, and forgets that it was
// nominated. The caller holds mu.
func (b *Cache) clearNomination(uid string) {
	b.forgetNomination(uid)
	b.record(b.ledger.ClearNomination(uid))
}

// forgetNomination forgets that the pod was nominated, and its deadline. What is kept for
// it in the ledger stays. The caller holds mu.
func (b *Cache) forgetNomination(uid string) {
	delete(b.nominated, uid)
	if d := b.deadlines[uid]; d != nil {
		d.timer.Stop()
		delete(b.deadlines, uid)
	}
}

// followNomination keeps slots also for pods that another plugin's preemption
// has nominated: it frees the slots on one node, and pods on other nodes that
// share the device could take them. The caller holds mu.
func (b *Cache) followNomination(pod *v1.Pod, req *ledger.Request) {
	uid, now := string(pod.UID), b.clock.Now()
	node, d := pod.Status.NominatedNodeName, b.deadlines[uid]
	if node == "" {
		// A nomination of ours that is not over may not have reached the API yet.
		if b.nominated[uid] != nil || d != nil && !now.Before(d.at) {
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
	if d != nil && d.node == node {
		if timeout = d.at.Sub(now); timeout <= 0 {
			return
		}
	}
	before := b.nominated[uid]
	b.nominated[uid] = pod
	// Its victims are known as such once they are being deleted.
	if p := b.ledger.Preempt(args.Strategy, node, req, nil); p != nil {
		b.nominate(req.Pod, node, p.Assignment, timeout)
		b.nominated[uid] = pod
		if b.ledger.Ready(uid) { // nothing more comes that would have it tried
			b.Queue.RetryLater(pod.UID)
		}
	} else if before == nil || before.Status.NominatedNodeName != node {
		b.Queue.RetryLater(pod.UID) // they may have gone already
	}
}

// victimGone has those tried that another plugin has nominated to the node, and for which
// it has nothing that could be kept: what a victim had may have gone to another pod. The
// caller holds mu.
func (b *Cache) victimGone(node string) {
	var uids []string
	for uid, pod := range b.nominated {
		if pod.Status.NominatedNodeName == node && b.ledger.Nominated(uid) == "" {
			uids = append(uids, uid)
		}
	}
	b.retryNow(uids)
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

// followNominations tries again for those that are nominated to the node, and whose
// victims, or whose slots, were not known yet. The caller holds mu.
func (b *Cache) followNominations(node string) {
	for uid, pod := range b.nominated {
		if pod.Status.NominatedNodeName != node || b.ledger.Nominated(uid) != "" {
			continue
		}
		if req, err := slotrequest.Of(pod); err == nil && req != nil {
			b.followNomination(pod, req)
		}
	}
}

// nominatedNodes are the nodes that another plugin has nominated pods to. The caller
// holds mu.
func (b *Cache) nominatedNodes() sets.Set[string] {
	nodes := sets.New[string]()
	for _, pod := range b.nominated {
		nodes.Insert(pod.Status.NominatedNodeName)
	}
	return nodes
}
