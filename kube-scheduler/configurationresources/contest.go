package configurationresources

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
)

// lead makes this scheduler the one that evicts pods which lose a contested
// slot. Pods are scheduled by the leader alone, and so PreFilter is where a
// plugin learns that it leads.
func (p *Plugin) lead() {
	p.book.mu.RLock()
	leads := p.book.evict != nil
	p.book.mu.RUnlock()
	if leads {
		return
	}
	p.book.mu.Lock()
	defer p.book.mu.Unlock()
	p.book.evict = func(contests []*ledger.Contest) {
		for _, c := range contests {
			for _, loser := range c.Losers {
				p.evictLoser(c, loser)
			}
		}
	}
	p.book.settleContests()
}

// settleContests has the losers of contested slots evicted, if this scheduler
// leads. The caller holds mu.
func (b *book) settleContests() {
	if b.evict == nil || len(b.contested) == 0 {
		return
	}
	var contests []*ledger.Contest
	for _, s := range b.contested {
		if c := b.ledger.Contested(s); c != nil {
			contests = append(contests, c)
		}
	}
	b.contested = nil
	go b.evict(contests)
}

// evictLoser deletes a pod that was assigned a slot which another pod keeps. Its
// container could not start: kubecri refuses it the slot.
func (p *Plugin) evictLoser(c *ledger.Contest, loser ledger.Pod) {
	logger := p.book.logger.WithValues("pod", klog.KRef(loser.Namespace, loser.Name), "podUID", loser.UID,
		"slot", c.Slot.String(), "keeper", c.Keeper.String())
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 8}
	err := wait.ExponentialBackoff(backoff, func() (bool, error) {
		pod, err := p.victim(ledger.Victim{Pod: loser})
		if err != nil {
			return true, nil // it is gone, or another one
		}
		if keeper, err := p.victim(ledger.Victim{Pod: c.Keeper}); err != nil || keeper.DeletionTimestamp != nil {
			logger.Info("A contested slot's keeper is going; the other pod stays")
			return true, nil
		}
		err = schedutil.DeletePod(context.Background(), p.handle.ClientSet(), pod)
		if err != nil && !apierrors.IsNotFound(err) {
			logger.Error(err, "Cannot evict a pod whose slot another pod keeps")
			return false, nil
		}
		logger.Info("Evicted a pod whose slot another pod keeps")
		p.handle.EventRecorder().Eventf(pod, nil, v1.EventTypeWarning, "SlotAssignedTwice", "Evicting",
			"Slot %s was assigned to this pod and to pod %s, which keeps it; another scheduler was at work", c.Slot, c.Keeper)
		return true, nil
	})
	if err != nil {
		logger.Error(err, "Gave up evicting a pod whose slot another pod keeps; delete it by hand")
	}
}
