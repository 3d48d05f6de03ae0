package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	coordinationinformers "k8s.io/client-go/informers/coordination/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/kubeslot/kubeslot/kubecri/agent/deviceslices"
	"github.com/kubeslot/kubeslot/kubecri/agent/reports"
	"github.com/kubeslot/kubeslot/kubecri/informers"
	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/wake"
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

	// A node that has no Lease looks again whether it can have one after lookAfter, and at random up to as
	// long again.
	lookAfter = 5 * time.Minute

	// releaseTimeout bounds what an ending process waits for.
	releaseTimeout = 200 * time.Millisecond
)

// election has some of the nodes that a Configuration's spec.discovery selects discover: those that
// hold one of `replicas` Leases. One node more holds a Lease to be the next. These watch the Leases
// and write them; the others look now and then. That two hold one Lease for a moment does no harm, so
// a holder discovers until it sees another's name, also when the API server is away.
type election struct {
	*Agent
	configuration *v0.Configuration
	replicas      int32
	client        coordinationclient.LeaseInterface
	leases        cache.Store // as this node saw them last
	changed       wake.Signal
	first         int32            // which Lease to try first: not all the same
	sights        map[string]sight // by the Lease's name
	// next is the Lease by which this node is the next to discover, as it was last written, at renewed.
	next    *coordinationv1.Lease
	renewed time.Time
}

// sight is a Lease's resourceVersion, and since when it is that: clocks of other
// nodes do not count.
type sight struct {
	version string
	since   time.Time
}

// compete runs the Configuration's handler whenever this node holds a Lease. A node without the
// handler leaves the Leases to others.
func (a *Agent) compete(ctx context.Context, s *session, c *v0.Configuration) {
	e := &election{Agent: a, configuration: c, replicas: max(c.Spec.Discovery.Replicas, 1),
		client:  a.config.KubeClient.CoordinationV1().Leases(c.Namespace),
		changed: wake.New(), first: rand.Int32N(100), sights: map[string]sight{}}
	for a.awaitSource(ctx, s, c) {
		if !a.withdrawn(s) || e.anyVacant(ctx) {
			e.watch(ctx, func(ctx context.Context) { e.run(ctx, s) })
		}
		sleep(ctx, lookAfter+rand.N(lookAfter))
	}
}

// anyVacant looks whether there may be a Lease for this node.
func (e *election) anyVacant(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	options := metav1.ListOptions{ResourceVersion: "0"} // from the API server's memory
	discoveryOf(e.configuration.Name)(&options)
	listed, err := e.client.List(ctx, options)
	if err != nil {
		return true
	}
	e.leases = cache.NewStore(cache.MetaNamespaceKeyFunc)
	for i := range listed.Items {
		_ = e.leases.Add(&listed.Items[i]) // an object has a name
	}
	lease, _ := e.vacant(0, e.replicas+1)
	return lease != nil
}

// watch calls f while the Leases are watched.
func (e *election) watch(ctx context.Context, f func(context.Context)) {
	informer := coordinationinformers.NewFilteredLeaseInformer(e.config.KubeClient, e.configuration.Namespace, 0,
		cache.Indexers{}, discoveryOf(e.configuration.Name))
	_, _ = informer.AddEventHandler(informers.OnChange(e.changed.Send)) // fails once it has ended
	e.leases = informer.GetStore()
	defer begin(ctx, informer.RunWithContext)()
	if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		f(ctx)
	}
}

// begin runs f until stop is called, which returns once f has.
func begin(ctx context.Context, f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { f(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// run discovers when this node gets a Lease. It returns when there is none for it, not even to be the
// next.
func (e *election) run(ctx context.Context, s *session) {
	backoff := deviceslices.Retries()
	var full time.Time // since when others hold all Leases; zero when they do not
	for e.awaitSource(ctx, s, e.configuration) {
		lease, next := e.vacant(0, e.replicas)
		if lease == nil {
			now := time.Now()
			if full.IsZero() {
				full = now
			}
			left := handover - now.Sub(full)
			if left <= 0 && e.reportsAlone(s) {
				e.discoverWithoutLease(ctx, s)
				continue
			}
			e.forgetProblems(s, anyProblem)
			isNext, again := e.beNext(ctx)
			if left > 0 {
				again = min(again, left)
			} else if e.withdraw(ctx, s); !isNext {
				return
			}
			sleep(ctx, min(next, again), e.changed)
			continue
		}
		full = time.Time{}
		held, err := e.take(ctx, lease)
		switch {
		case errors.Is(err, errTaken):
			continue
		case err == nil:
			backoff = deviceslices.Retries()
			e.forgetProblems(s, anyProblem)
			if able := e.hold(ctx, s, held); !able {
				sleep(ctx, restarts.Cap) // others first
			}
			continue
		case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err), ctx.Err() != nil:
		default:
			err = fmt.Errorf("take Lease %s/%s to discover: %w", lease.Namespace, lease.Name, err)
			e.recordProblem(ctx, s, "", "NoLease", err)
		}
		sleep(ctx, backoff.Step())
	}
}

// beNext takes the Lease of the node that is the next to discover, or renews it. It reports whether this
// node is the next, or may become it, and after what time to ask again.
func (e *election) beNext(ctx context.Context) (is bool, again time.Duration) {
	if e.next != nil && e.taken(e.next) {
		e.next = nil
	}
	if left := renewAfter - time.Since(e.renewed); e.next != nil && left > 0 {
		return true, left
	}
	lease, again := e.vacant(e.replicas, 1)
	if lease == nil {
		e.next = nil
		return false, again
	}
	held, err := e.take(ctx, lease)
	switch {
	case errors.Is(err, errTaken), apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		return true, hesitation // the watch says whose it is
	case err != nil: // it keeps the Lease that it has: nobody else can take it either
		return e.next != nil, checkAfter
	}
	e.next, e.renewed = held, time.Now()
	return true, renewAfter
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
	defer begin(ctx, func(ctx context.Context) { e.discover(ctx, s, e.configuration) })()
	for ctx.Err() == nil && e.reportsAlone(s) {
		lease, next := e.vacant(0, e.replicas)
		if lease != nil {
			return
		}
		sleep(ctx, next, e.changed)
	}
}

// withdrawn reports whether this node reports nothing of the session's, and has said so.
func (a *Agent) withdrawn(s *session) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return s.standing.Settled && len(s.standing.Devices) == 0 && s.rejected == ""
}

// withdraw makes the session's devices no longer be seen by this node.
func (a *Agent) withdraw(ctx context.Context, s *session) {
	if !a.withdrawn(s) {
		a.update(ctx, s, func(r *reports.Reports, _ time.Time) { r.Clear() })
	}
}

// holder is the node that has the Lease; "" for none.
func holder(lease *coordinationv1.Lease) string { return ptr.Deref(lease.Spec.HolderIdentity, "") }

func (e *election) mine(lease *coordinationv1.Lease) bool { return holder(lease) == e.config.NodeName }

// seen is the Lease of the name as this node saw it last; nil for none.
func (e *election) seen(name string) *coordinationv1.Lease {
	obj, exists, _ := e.leases.GetByKey(e.configuration.Namespace + "/" + name) // a cache does not fail
	if !exists {
		return nil
	}
	return obj.(*coordinationv1.Lease)
}

// vacant returns one of n Leases from the given one to take, one of this node's own rather than
// others', or after what time the next may be vacant.
func (e *election) vacant(from, n int32) (lease *coordinationv1.Lease, next time.Duration) {
	c, now := e.configuration, time.Now()
	next = leaseDuration
	for i := range n {
		name := fmt.Sprintf("kubeslot-discovery-%s-%d", c.Name, from+(i+e.first)%n)
		is := e.seen(name)
		if is == nil {
			lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name}}
			continue
		}
		if e.mine(is) {
			return is, 0
		}
		if e.sights[name].version != is.ResourceVersion {
			e.sights[name] = sight{is.ResourceVersion, now}
		}
		left := lasts(is) - now.Sub(e.sights[name].since)
		switch {
		case holder(is) == "", left <= 0:
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

// errTaken is the error of a Lease that another has taken while this node hesitated.
var errTaken = errors.New("another node was faster")

// take makes the Lease this node's, after some hesitation, or renews it.
func (e *election) take(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	if !e.mine(lease) {
		sleep(ctx, rand.N(hesitation))
		if is := e.seen(lease.Name); is != nil && is.ResourceVersion != lease.ResourceVersion {
			return nil, errTaken
		}
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	now, node, seconds := metav1.NewMicroTime(time.Now()), e.config.NodeName, int32(leaseDuration/time.Second)
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
	is := e.seen(lease.Name)
	if is == nil {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(is.ResourceVersion, lease.ResourceVersion)
	return err == nil && order > 0 && holder(is) != "" && !e.mine(is)
}

// hold discovers and renews the Lease until it is lost or ctx ends, or no source works.
// Then the Lease is released. It returns false when another node may do better.
func (e *election) hold(ctx context.Context, s *session, lease *coordinationv1.Lease) (able bool) {
	logger := klog.FromContext(ctx).WithValues("lease", klog.KObj(lease))
	logger.Info("This node discovers for others")
	began := time.Now()
	stop := begin(ctx, func(ctx context.Context) { e.discover(ctx, s, e.configuration) })
	lost, renewed := false, began
	for able = true; !lost; {
		if sleep(ctx, checkAfter); ctx.Err() != nil {
			break
		}
		if lost = e.taken(lease); lost {
			break
		}
		now := time.Now()
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
