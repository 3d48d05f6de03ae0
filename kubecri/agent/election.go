package agent

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	coordinationinformers "k8s.io/client-go/informers/coordination/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/kubeslot/kubeslot/kubecri/agent/deviceslices"
	"github.com/kubeslot/kubeslot/kubecri/agent/reports"
	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

const (
	// leaseDuration is how long a holder that is not heard of keeps its Lease, which
	// holders renew after renewAfter: two renewals may fail.
	leaseDuration = 90 * time.Second
	renewAfter    = 30 * time.Second

	// checkAfter is how often a holder looks whether its handler works, and renews a Lease of which
	// that failed. writeTimeout bounds one attempt.
	checkAfter, writeTimeout = 5 * time.Second, 5 * time.Second

	// hesitation is how long nodes wait at most, at random, before they take a Lease,
	// so that not all try it.
	hesitation = time.Second

	// handover is how long others must have had all Leases before a node that has none
	// takes those of its devices away that others report: their handlers have reported by
	// then.
	handover = 30 * time.Second

	// releaseTimeout bounds what an ending process waits for.
	releaseTimeout = 200 * time.Millisecond
)

// election has some of the nodes that a Configuration's spec.discovery selects
// discover: those that hold one of `replicas` Leases. All watch the Leases, and
// holders alone write. That two hold one Lease for a moment does no harm, so a holder
// discovers until it sees another's name, also when the API server is away.
type election struct {
	*Agent
	configuration *v0.Configuration
	client        coordinationclient.LeaseInterface
	leases        cache.SharedIndexInformer
	changed       chan struct{}
	first         int32            // which Lease to try first: not all the same
	seen          map[string]sight // by the Lease's name
}

// sight is a Lease's resourceVersion, and since when it is that: clocks of other
// nodes do not count.
type sight struct {
	version string
	since   time.Time
}

// compete runs the Configuration's handler whenever this node holds a Lease.
func (a *Agent) compete(ctx context.Context, s *session, c *v0.Configuration) {
	e := &election{Agent: a, configuration: c, client: a.config.KubeClient.CoordinationV1().Leases(c.Namespace),
		changed: make(chan struct{}, 1), first: rand.Int32N(100), seen: map[string]sight{}}
	e.leases = coordinationinformers.NewFilteredLeaseInformer(a.config.KubeClient, c.Namespace, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.LabelSelector = labels.Set{deviceslices.DiscoveryLabel: c.Name}.String()
	})
	_, _ = e.leases.AddEventHandler(onChange(func(any) { wake(e.changed) })) // fails once it has ended
	a.discoveries.Go(func() { e.leases.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), e.leases.HasSynced) {
		return
	}
	backoff := retries()
	var full time.Time // since when others hold all Leases; zero when they do not
	// A node without the handler leaves the Leases to others.
	for a.awaitSource(ctx, s, c) {
		lease, next := e.vacant()
		if lease == nil {
			now := a.config.Clock.Now()
			if full.IsZero() {
				full = now
			}
			if left := handover - now.Sub(full); left > 0 {
				next = min(next, left)
			} else if a.reportsAlone(s) {
				e.discoverWithoutLease(ctx, s)
				continue
			} else {
				a.withdraw(ctx, s)
			}
			a.forgetProblems(s)
			a.sleep(ctx, next, e.changed)
			continue
		}
		full = time.Time{}
		if !e.mine(lease) {
			a.sleep(ctx, rand.N(hesitation))
			if again, _ := e.vacant(); again == nil || again.Name != lease.Name || again.ResourceVersion != lease.ResourceVersion {
				continue // somebody was faster
			}
		}
		held, err := e.take(ctx, lease)
		switch {
		case err == nil:
			backoff = retries()
			a.forgetProblems(s)
			if able := e.hold(ctx, s, held); !able {
				a.sleep(ctx, a.config.Restart.Cap) // others first
			}
			continue
		case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err), ctx.Err() != nil:
		default:
			a.recordProblem(ctx, s, "", "NoLease", fmt.Errorf("take Lease %s/%s to discover: %w", c.Namespace, lease.Name, err))
		}
		a.sleep(ctx, backoff.Step())
	}
}

// reportsAlone reports whether this node has a device that no other node reports which is
// selected.
func (a *Agent) reportsAlone(s *session) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for hash := range s.standing.Devices {
		if !s.reach.reportedElsewhere(a.config.NodeName, hash) {
			return true
		}
	}
	return false
}

// discoverWithoutLease discovers on while those that hold the Leases do not report what
// this node has: they may not reach it, or be no discoverers at all. A device that is gone
// is then withdrawn because this node's handler says so, and not because a holder is silent.
func (e *election) discoverWithoutLease(ctx context.Context, s *session) {
	klog.FromContext(ctx).Info("This node discovers without a Lease: the nodes that hold the Leases do not report what it sees")
	discovering, stop := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { e.discover(discovering, s, e.configuration) })
	defer done.Wait()
	defer stop()
	for ctx.Err() == nil && e.reportsAlone(s) {
		lease, next := e.vacant()
		if lease != nil {
			return
		}
		e.sleep(ctx, next, e.changed)
	}
}

// withdraw makes the session's devices no longer be seen by this node.
func (a *Agent) withdraw(ctx context.Context, s *session) {
	a.mu.RLock()
	done := s.standing.Settled && len(s.standing.Devices) == 0 && s.rejected == ""
	a.mu.RUnlock()
	if !done {
		a.update(ctx, s, func(r *reports.Reports, _ time.Time) { r.Clear() })
	}
}

func (e *election) mine(lease *coordinationv1.Lease) bool {
	return lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity == e.config.NodeName
}

// vacant returns a Lease to take, one of this node's own rather than others', or
// after what time the next may be vacant.
func (e *election) vacant() (lease *coordinationv1.Lease, next time.Duration) {
	c, now := e.configuration, e.config.Clock.Now()
	next = leaseDuration
	n := max(c.Spec.Discovery.Replicas, 1)
	for i := range n {
		name := fmt.Sprintf("kubeslot-discovery-%s-%d", c.Name, (i+e.first)%n)
		obj, exists, _ := e.leases.GetStore().GetByKey(c.Namespace + "/" + name) // a cache does not fail
		if !exists {
			lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name}}
			continue
		}
		is := obj.(*coordinationv1.Lease)
		if e.mine(is) {
			return is, 0
		}
		if e.seen[name].version != is.ResourceVersion {
			e.seen[name] = sight{is.ResourceVersion, now}
		}
		left := lasts(is) - now.Sub(e.seen[name].since)
		switch {
		case is.Spec.HolderIdentity == nil, *is.Spec.HolderIdentity == "", left <= 0:
			lease = is
		default:
			next = min(next, left)
		}
	}
	return lease, next
}

// lasts is how long the holder keeps the Lease when it is not heard of: as it says, which may be of
// another version, and at most leaseDuration.
func lasts(lease *coordinationv1.Lease) time.Duration {
	if seconds := lease.Spec.LeaseDurationSeconds; seconds != nil {
		return min(time.Duration(*seconds)*time.Second, leaseDuration)
	}
	return leaseDuration
}

// take makes the Lease this node's, or renews it.
func (e *election) take(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	now, node, seconds := metav1.NewMicroTime(e.config.Clock.Now()), e.config.NodeName, int32(leaseDuration/time.Second)
	next := lease.DeepCopy()
	if !e.mine(lease) {
		next.Spec.AcquireTime, next.Spec.HolderIdentity = &now, &node
	}
	next.Spec.RenewTime, next.Spec.LeaseDurationSeconds = &now, &seconds
	next.Labels = map[string]string{deviceslices.DiscoveryLabel: e.configuration.Name}
	next.OwnerReferences = []metav1.OwnerReference{{APIVersion: v0.SchemeGroupVersion.String(), Kind: "Configuration",
		Name: e.configuration.Name, UID: e.configuration.UID}}
	if next.ResourceVersion == "" {
		return e.client.Create(ctx, next, metav1.CreateOptions{})
	}
	return e.client.Update(ctx, next, metav1.UpdateOptions{})
}

// taken reports whether the watch shows that the Lease has become another's.
func (e *election) taken(lease *coordinationv1.Lease) bool {
	obj, exists, _ := e.leases.GetStore().GetByKey(lease.Namespace + "/" + lease.Name) // a cache does not fail
	if !exists {
		return false
	}
	is := obj.(*coordinationv1.Lease)
	order, err := resourceversion.CompareResourceVersion(is.ResourceVersion, lease.ResourceVersion)
	return err == nil && order > 0 && ptr.Deref(is.Spec.HolderIdentity, "") != "" && !e.mine(is)
}

// hold discovers and renews the Lease until it is lost or ctx ends, or no source works.
// Then the Lease is released. It returns false when another node may do better.
func (e *election) hold(ctx context.Context, s *session, lease *coordinationv1.Lease) (able bool) {
	logger := klog.FromContext(ctx).WithValues("lease", klog.KObj(lease))
	logger.Info("This node discovers for others")
	began := e.config.Clock.Now()
	discovering, stop := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { e.discover(discovering, s, e.configuration) })
	lost, renewed := false, began
	for able = true; !lost; {
		if e.sleep(ctx, checkAfter); ctx.Err() != nil {
			break
		}
		if lost = e.taken(lease); lost {
			break
		}
		now := e.config.Clock.Now()
		e.mu.RLock()
		able = s.reports.Works(began, now)
		e.mu.RUnlock()
		if !able {
			break
		}
		if now.Sub(renewed) < renewAfter {
			continue
		}
		next, err := e.take(ctx, lease)
		if apierrors.IsConflict(err) {
			next, err = e.client.Get(ctx, lease.Name, metav1.GetOptions{})
			lost = err == nil && !e.mine(next)
		}
		switch {
		case err == nil:
			lease, renewed = next, now
		case apierrors.IsNotFound(err):
			lost = true // and made again
		default:
			logger.Error(err, "Cannot renew the Lease, discovering on")
		}
	}
	stop()
	done.Wait()
	if lost {
		logger.Info("This node no longer discovers for others: its Lease is another's")
		return able
	}
	if !able {
		logger.Info("This node releases its Lease, since its discovery handler does not work")
	}
	releasing, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	lease = lease.DeepCopy()
	lease.Spec.HolderIdentity = nil
	if _, err := e.client.Update(releasing, lease, metav1.UpdateOptions{}); err != nil {
		logger.V(2).Info("Cannot release the Lease, which ends by itself", "reason", err)
	}
	return able
}
