package slotcache

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/types/slot"
)

// tellReleased logs, at verbosity 2, the slots that a pod is about to give back. The caller holds mu.
func (b *Cache) tellReleased(pod *v1.Pod, what string) {
	logger := b.logger.V(2)
	if !logger.Enabled() {
		return
	}
	slots := b.ledger.Holds(string(pod.UID))
	if len(slots) == 0 {
		return
	}
	if pod.Spec.NodeName != "" {
		logger = klog.LoggerWithValues(logger, "node", pod.Spec.NodeName)
	}
	logger.Info(what, "pod", klog.KObj(pod), "podUID", pod.UID, "slots", slotNames(slots))
}

// tellPreempted logs the pods that have to go for another one, this plugin's victims and
// DefaultPreemption's, while they hold the slots. It is the leader that counts and logs them. The
// caller holds mu.
func (b *Cache) tellPreempted(preemptor ledger.Pod, node string, a ledger.Assignment) {
	if !b.leads {
		return
	}
	victims := map[ledger.Pod][]slot.Name{}
	for _, s := range a.Slots() {
		for _, holder := range b.ledger.Holders(s) {
			if holder.UID != preemptor.UID {
				victims[holder] = append(victims[holder], s)
			}
		}
	}
	for victim, slots := range victims {
		preempted.Inc()
		b.logger.Info("Preempting a pod for its slots", "pod", klog.KRef(victim.Namespace, victim.Name), "podUID",
			victim.UID,
			"slots", slotNames(slots), "preemptor", klog.KRef(preemptor.Namespace, preemptor.Name), "node", node)
	}
}

// slotNames are the slots as logs have them.
func slotNames(slots []slot.Name) []string {
	names := make([]string, 0, len(slots))
	for _, s := range slots {
		names = append(names, s.String())
	}
	slices.Sort(names)
	return names
}
