package configurationresources

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/config"
)

// deadline ends a nomination to a node: what is kept for its pod is let go then, and
// not kept again for as long as the pod's status shows that nomination.
type deadline struct {
	node  string
	at    time.Time
	timer clock.Timer
}

// nominate keeps slots for a pod that preempted others until it is bound, gone,
// or the timeout passes. The caller holds mu.
func (b *slotCache) nominate(pod ledger.Pod, node string, a ledger.Assignment, timeout time.Duration) *deadline {
	b.forgetNomination(pod.UID)
	b.tellPreempted(pod, node, a)
	b.record(b.ledger.Nominate(pod, node, a))
	b.taken(a)
	b.queue.Reserved(types.UID(pod.UID))
	d := &deadline{node: node, at: b.clock.Now().Add(timeout)}
	d.timer = b.clock.AfterFunc(timeout, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.deadlines[pod.UID] != d {
			return // settled, while this waited for the lock
		}
		b.logger.Info("Slots are kept no longer for a pod that preempted others and was not bound in time",
			"pod", klog.KRef(pod.Namespace, pod.Name), "podUID", pod.UID, "node", node, "timeout", timeout)
		b.denominate(pod.UID)
		b.deadlines[pod.UID] = d // passed
	})
	b.deadlines[pod.UID] = d
	return d
}

// denominate lets go of what is kept for the pod, and forgets that it was
// nominated. The caller holds mu.
func (b *slotCache) denominate(uid string) {
	b.forgetNomination(uid)
	b.record(b.ledger.ClearNomination(uid))
}

// forgetNomination forgets that the pod was nominated, and its deadline. What is kept for
// it in the ledger stays. The caller holds mu.
func (b *slotCache) forgetNomination(uid string) {
	delete(b.nominated, uid)
	if d := b.deadlines[uid]; d != nil {
		d.timer.Stop()
		delete(b.deadlines, uid)
	}
}

// nominatedInVain ends a nomination whose victims did not go, unless it has ended. It
// reports whether it has ended it. The caller holds mu.
func (b *slotCache) nominatedInVain(pod *v1.Pod, d *deadline) bool {
	uid := string(pod.UID)
	if b.deadlines[uid] != d || b.ledger.Nominated(uid) == "" {
		return false
	}
	b.forgetNomination(uid)
	b.gaveBack(pod, b.ledger.ClearNomination(uid))
	return true
}

// followNomination keeps slots also for pods that another plugin's preemption
// has nominated: it frees the slots on one node, and pods on other nodes that
// share the device could take them. The caller holds mu.
func (b *slotCache) followNomination(pod *v1.Pod, req *ledger.Request) {
	uid, now := string(pod.UID), b.clock.Now()
	node, d := pod.Status.NominatedNodeName, b.deadlines[uid]
	if node == "" {
		// A nomination of ours that is not over may not have reached the API yet.
		if b.nominated[uid] != nil || d != nil && !now.Before(d.at) {
			b.denominate(uid)
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
			b.queue.RetryLater(pod.UID)
		}
	} else if before == nil || before.Status.NominatedNodeName != node {
		b.queue.RetryLater(pod.UID) // they may have gone already
	}
}

// victimGone has those tried that another plugin has nominated to the node, and for which
// it has nothing that could be kept: what a victim had may have gone to another pod. The
// caller holds mu.
func (b *slotCache) victimGone(node string) {
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
func (b *slotCache) argsOf(pod *v1.Pod) *config.ConfigurationResourcesArgs {
	if args := b.profiles[pod.Spec.SchedulerName]; args != nil {
		return args
	}
	args := &config.ConfigurationResourcesArgs{}
	args.SetDefaults()
	return args
}

// followNominations tries again for those that are nominated to the node, and whose
// victims, or whose slots, were not known yet. The caller holds mu.
func (b *slotCache) followNominations(node string) {
	for uid, pod := range b.nominated {
		if pod.Status.NominatedNodeName != node || b.ledger.Nominated(uid) != "" {
			continue
		}
		if req, err := requestOf(pod); err == nil && req != nil {
			b.followNomination(pod, req)
		}
	}
}

// nominatedNodes are the nodes that another plugin has nominated pods to. The caller
// holds mu.
func (b *slotCache) nominatedNodes() sets.Set[string] {
	nodes := sets.New[string]()
	for _, pod := range b.nominated {
		nodes.Insert(pod.Status.NominatedNodeName)
	}
	return nodes
}

// nominatedNode is the node for which slots are kept for the pod, "" for none.
func (b *slotCache) nominatedNode(uid string) string {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.ledger.Nominated(uid)
}
