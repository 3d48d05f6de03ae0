package configurationresources

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
)

// lead records that this scheduler leads. Only the leader schedules, and PreFilter is
// where a plugin learns of it. A standby never evicts.
func (p *Plugin) lead() {
	p.cache.mu.RLock()
	leads := p.cache.leads
	p.cache.mu.RUnlock()
	if leads {
		return
	}
	p.cache.mu.Lock()
	defer p.cache.mu.Unlock()
	p.cache.leads = true
	p.cache.evictLosersIfLeading()
}

// evictLosersIfLeading has the losers of doubleAllocated slots evicted, if this scheduler leads.
// Claims count in that: it waits for the SlotClaims. The caller holds mu.
func (b *slotCache) evictLosersIfLeading() {
	if len(b.doubleAllocated) > 0 && b.leads && b.synced() {
		b.settle()
	}
}

// settle has the losers of doubleAllocated slots evicted. The caller holds mu.
func (b *slotCache) settle() {
	var allocations []*ledger.DoubleAllocation
	for s := range b.doubleAllocated {
		if c := b.ledger.DoubleAllocationOf(s); c != nil {
			allocations = append(allocations, c)
		}
	}
	clear(b.doubleAllocated)
	if len(allocations) > 0 {
		go b.evict(allocations)
	}
}

// evictLosers deletes the pods that were assigned a slot which another pod keeps.
func (p *Plugin) evictLosers(allocations []*ledger.DoubleAllocation) {
	for _, c := range allocations {
		for _, loser := range c.Losers {
			p.evictLoser(c, loser)
		}
	}
}

// evictLoser deletes a pod whose container could not start: kubecri refuses it the
// slot that another pod keeps.
func (p *Plugin) evictLoser(c *ledger.DoubleAllocation, loser ledger.Pod) {
	logger := p.cache.logger.WithValues("pod", klog.KRef(loser.Namespace, loser.Name), "podUID", loser.UID,
		"slot", c.Slot.String(), "winner", c.Winner.String())
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 8}
	err := wait.ExponentialBackoff(backoff, func() (bool, error) {
		pod, err := p.victim(ledger.Victim{Pod: loser})
		if err != nil {
			return true, nil // it is gone, or another one
		}
		stays, err := p.stays(c.Winner)
		if err != nil {
			logger.Error(err, "Cannot read the pod that keeps a doubleAllocated slot")
			return false, nil
		}
		if !stays {
			logger.Info("The winner of a double allocation is going; the other pod stays")
			return true, nil
		}
		deleted, err := p.delete(context.Background(), pod)
		if err != nil {
			logger.Error(err, "Cannot evict a pod whose slot another pod keeps")
			return false, nil
		}
		if deleted {
			logger.Info("Evicted a pod whose slot another pod keeps")
			p.handle.EventRecorder().Eventf(pod, nil, v1.EventTypeWarning, "SlotAssignedTwice", "Evicting",
				"Slot %s was assigned to this pod and to pod %s, which keeps it; another scheduler was at work", c.Slot, c.Winner)
		}
		return true, nil
	})
	if err != nil {
		logger.Error(err, "Gave up evicting a pod whose slot another pod keeps; delete it by hand")
	}
}

// stays asks the API whether the winner is there to stay: a scheduler that
// stood still for a while must not evict others by what it knew before.
func (p *Plugin) stays(winner ledger.Pod) (bool, error) {
	pod, err := p.handle.ClientSet().CoreV1().Pods(winner.Namespace).Get(context.Background(), winner.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	ended := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
	return string(pod.UID) == winner.UID && pod.DeletionTimestamp == nil && !ended, nil
}
