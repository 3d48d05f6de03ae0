package configurationresources

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
)

// nominate keeps slots for a pod that preempted others until it is bound, gone,
// or the timeout passes. The caller holds mu.
func (b *book) nominate(pod ledger.Pod, node string, a ledger.Assignment, timeout time.Duration) {
	b.denominate(pod.UID)
	b.wake(b.ledger.Nominate(pod, node, a))
	var timer *time.Timer
	timer = time.AfterFunc(timeout, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.deadlines[pod.UID] != timer {
			return // settled, while this waited for the lock
		}
		b.logger.Info("Slots are kept no longer for a pod that preempted others and was not bound in time",
			"pod", klog.KRef(pod.Namespace, pod.Name), "podUID", pod.UID, "node", node, "timeout", timeout)
		b.denominate(pod.UID)
	})
	b.deadlines[pod.UID] = timer
}

// denominate lets go of what is kept for the pod. The caller holds mu.
func (b *book) denominate(uid string) {
	delete(b.nominated, uid)
	if timer := b.deadlines[uid]; timer != nil {
		timer.Stop()
		delete(b.deadlines, uid)
	}
	b.wake(b.ledger.Denominate(uid))
}

// followNomination keeps slots also for pods that another plugin's preemption
// has nominated: it frees the slots on one node, and pods on other nodes that
// share the device could take them. The caller holds mu.
func (b *book) followNomination(pod *v1.Pod, req *ledger.Request) {
	uid := string(pod.UID)
	node := pod.Status.NominatedNodeName
	if node == "" {
		if b.nominated[uid] != nil {
			b.denominate(uid)
		}
		return
	}
	// The framework also nominates pods that have been reserved, if their bind may
	// take long: those have their slots.
	if b.ledger.Nominated(uid) != "" || b.ledger.Holds(uid) != nil {
		return
	}
	b.nominated[uid] = pod
	// Its victims are known as such once they are being deleted.
	if p := b.ledger.Preempt(ledger.Spread, node, req, nil); p != nil {
		b.nominate(req.Pod, node, p.Assignment, followedNominationTimeout)
		b.nominated[uid] = pod
		b.attend(pod)
	}
}

// followedNominationTimeout bounds nominations of other plugins, which have no
// deadline of their own.
const followedNominationTimeout = 5 * time.Minute

// followNominations tries again for those whose victims were not known yet. The
// caller holds mu.
func (b *book) followNominations() {
	for uid, pod := range b.nominated {
		if b.ledger.Nominated(uid) != "" {
			continue
		}
		if req, err := requestOf(pod); err == nil && req != nil {
			b.followNomination(pod, req)
		}
	}
}

// nominatedNode is the node for which slots are kept for the pod, "" for none.
func (b *book) nominatedNode(uid string) string {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.ledger.Nominated(uid)
}
