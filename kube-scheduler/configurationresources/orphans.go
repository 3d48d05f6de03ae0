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

// sweepInterval is how long a claim for a waiting pod, of a scheduler that was
// killed before it could bind the pod, keeps a slot from others at most.
const sweepInterval = 10 * time.Second

// sweepOrphans begins to look for orphaned claims, once this scheduler leads: at
// PreFilter, as lead does.
func (p *Plugin) sweepOrphans() {
	if p.claims == nil {
		return
	}
	p.sweeping.Do(func() { go wait.UntilWithContext(p.ctx, p.releaseOrphans, sweepInterval) })
}

// releaseOrphans releases the claims that were made for pods which wait unbound.
func (p *Plugin) releaseOrphans(ctx context.Context) {
	if !p.cache.synced() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sweepInterval)
	defer cancel()
	orphans, pods := p.cache.orphans()
	for _, orphan := range orphans {
		pod := pods[orphan.Holder]
		if p.boundByNow(ctx, pod) {
			continue
		}
		logger := p.cache.logger.WithValues("slot", orphan.Name.String(), "node", orphan.Node, "pod", klog.KObj(pod))
		if err := p.claims.ReleaseOrphan(ctx, orphan.Name, orphan.UID); err != nil {
			logger.Error(err, "Cannot release a claim that was made for a pod which was not bound; trying again", "after", sweepInterval)
			continue
		}
		logger.Info("Released a claim that was made for a pod which was not bound")
	}
}

// boundByNow asks the API server: the scheduler that made the claim may have bound
// the pod the moment before it ended. It is true also without an answer.
func (p *Plugin) boundByNow(ctx context.Context, pod *v1.Pod) bool {
	live, err := p.handle.ClientSet().CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false
	}
	return err != nil || live.UID == pod.UID && live.Spec.NodeName != ""
}

// orphans are claims for pods that wait without slots, and those pods by UID. Pods
// of other schedulers are theirs: they may be about to bind them.
func (b *slotCache) orphans() ([]ledger.OrphanedClaim, map[string]*v1.Pod) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	waits := map[string]*v1.Pod{}
	b.queue.Each(func(pod *v1.Pod, _ *podWait, _ []string) {
		if b.profiles[pod.Spec.SchedulerName] != nil {
			waits[string(pod.UID)] = pod
		}
	})
	return b.ledger.OrphanedClaims(func(uid string) bool { return waits[uid] != nil }), waits
}
