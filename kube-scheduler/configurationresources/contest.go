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
	p.book.mu.RLock()
	leads := p.book.leads
	p.book.mu.RUnlock()
	if leads {
		return
	}
	p.book.mu.Lock()
	defer p.book.mu.Unlock()
	p.book.leads = true
	p.book.settleContests()
}

// settleContests has the losers of contested slots evicted, if this scheduler leads.
// Claims count in a contest: it waits for the SlotClaims. The caller holds mu.
func (b *book) settleContests() {
	if len(b.contested) > 0 && b.leads && b.synced() {
		b.settle()
	}
}

// settle has the losers of contested slots evicted. The caller holds mu.
func (b *book) settle() {
	var contests []*ledger.DoubleAllocation
	for s := range b.contested {
		if c := b.ledger.DoubleAllocationOf(s); c != nil {
			contests = append(contests, c)
		}
	}
	clear(b.contested)
	if len(contests) > 0 {
		go b.evict(contests)
	}
}

// evictLosers deletes the pods that were assigned a slot which another pod keeps.
func (p *Plugin) evictLosers(contests []*ledger.DoubleAllocation) {
	for _, c := range contests {
		for _, loser := range c.Losers {
			p.evictLoser(c, loser)
		}
	}
}

// evictLoser deletes a pod whose container could not start: kubecri refuses it the
// slot that another pod keeps.
func (p *Plugin) evictLoser(c *ledger.DoubleAllocation, loser ledger.Pod) {
	logger := p.book.logger.WithValues("pod", klog.KRef(loser.Namespace, loser.Name), "podUID", loser.UID,
		"slot", c.Slot.String(), "winner", c.Winner.String())
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 8}
	err := wait.ExponentialBackoff(backoff, func() (bool, error) {
		pod, err := p.victim(ledger.Victim{Pod: loser})
		if err != nil {
			return true, nil // it is gone, or another one
		}
		keeps, err := p.keeps(c.Winner)
		if err != nil {
			logger.Error(err, "Cannot read the pod that keeps a contested slot")
			return false, nil
		}
		if !keeps {
			logger.Info("A contested slot's keeper is going; the other pod stays")
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

// keeps asks the API whether the keeper of a slot is there to stay: a scheduler that
// stood still for a while must not evict others by what it knew before.
func (p *Plugin) keeps(keeper ledger.Pod) (bool, error) {
	pod, err := p.handle.ClientSet().CoreV1().Pods(keeper.Namespace).Get(context.Background(), keeper.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	ended := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
	return string(pod.UID) == keeper.UID && pod.DeletionTimestamp == nil && !ended, nil
}
