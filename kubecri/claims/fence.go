package claims

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// A claim with releaseUnreachableAfter is a promise to the controller, which releases the slot when
// the node has not renewed its Lease for so long: by then the node has stopped the slot's containers.
// It does so after three quarters of that time without an answer from the API server, and creates
// none again before it has reached it. The last quarter is for stopping them.

const (
	// fenceStopGrace is how long a container that is stopped has to end by itself.
	fenceStopGrace = 5 * time.Second
	// fenceStartGrace is how long a process that has just started tries to reach the API server: it
	// does not know when the former one last did.
	fenceStartGrace = 5 * time.Second
	// fenceIdle is how often it is looked whether there is such a claim, where none is known of.
	fenceIdle = time.Minute
	// fenceRetry is between two tries to renew the Lease when one has failed.
	fenceRetry = 5 * time.Second
)

// patienceOf is after how long without the API server containers with the claim are stopped.
func patienceOf(promised time.Duration) time.Duration { return promised * 3 / 4 }

// errNoLease: the node may write no Lease, as with the kubelet's identity. Then it promises nothing.
var errNoLease = errors.New("kubecri may not write its Lease")

// Stopper is the part of the runtime that stops containers.
type Stopper interface {
	StopContainer(ctx context.Context, in *runtimeapi.StopContainerRequest, opts ...grpc.CallOption) (*runtimeapi.StopContainerResponse, error)
}

// fence knows when the API server was last reached, and which claims are known to stand. Safe for
// concurrent use.
type fence struct {
	node    string
	owner   func() (metav1.OwnerReference, error)
	leases  coordinationclient.LeaseInterface // of the namespace kube-node-lease
	clock   clock.PassiveClock
	started time.Time

	renewing sync.Mutex // one at a time

	mu sync.Mutex
	// heard is when the last renewal began that was answered; zero before the first.
	heard time.Time
	// standing are the slots whose claims this process has seen at the API server since it was last
	// silent for too long.
	standing map[slot.Name]bool
}

// silent is for how long the API server has not been reached, at least.
func (f *fence) silent() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.heard.IsZero() {
		return f.clock.Since(f.started)
	}
	return f.clock.Since(f.heard)
}

// up reports whether containers with the claim are to be stopped, and after what time they will be.
func (f *fence) up(promised time.Duration) (up bool, left time.Duration) {
	f.mu.Lock()
	heard := f.heard
	f.mu.Unlock()
	left = patienceOf(promised) - f.clock.Since(heard)
	if heard.IsZero() {
		left = fenceStartGrace - f.clock.Since(f.started)
	}
	return left <= 0, left
}

// stands reports whether the slot's claim cannot have been released by the controller.
func (f *fence) stands(name slot.Name, claim *v1alpha1.SlotClaim) bool {
	promised := claim.Spec.ReleaseUnreachableAfter
	if promised == nil {
		return true
	}
	if up, _ := f.up(promised.Duration); up {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.standing[name] && !f.heard.IsZero()
}

// note says whether the slot's claim was seen at the API server.
func (f *fence) note(name slot.Name, stands bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if stands {
		f.standing[name] = true
	} else {
		delete(f.standing, name)
	}
}

// promise returns what a claim of the Configuration's slot is to promise. The Lease has been renewed
// lately then. nil is for no promise.
func (f *fence) promise(ctx context.Context, c *akriv0.Configuration) (*metav1.Duration, error) {
	if c == nil || c.Spec.ReleaseUnreachableAfter == nil || f.leases == nil {
		return nil, nil
	}
	promised := c.Spec.ReleaseUnreachableAfter
	f.mu.Lock()
	heard := f.heard
	f.mu.Unlock()
	if heard.IsZero() || f.clock.Since(heard) >= promised.Duration/4 {
		switch err := f.renew(ctx); {
		case errors.Is(err, errNoLease):
			klog.FromContext(ctx).Error(err, "The Configuration's releaseUnreachableAfter does not apply to this node: its slots are released by the node alone", "configuration", klog.KObj(c))
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("Configuration %s/%s has releaseUnreachableAfter, for which the node's Lease is renewed first: %w", c.Namespace, c.Name, err)
		}
	}
	return promised, nil
}

// renew writes the Lease. Its times are of use to people alone: the controller goes by when it
// changes.
func (f *fence) renew(ctx context.Context) error {
	f.renewing.Lock()
	defer f.renewing.Unlock()
	began := f.clock.Now()
	switch err := f.write(ctx, v1alpha1.NodeLease(f.node), metav1.NewMicroTime(began)); {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w: %w", errNoLease, err)
	case err != nil:
		return fmt.Errorf("renew Lease %s/%s: %w", corev1.NamespaceNodeLease, v1alpha1.NodeLease(f.node), err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heard = began
	return nil
}

func (f *fence) write(ctx context.Context, name string, now metav1.MicroTime) error {
	there, err := f.leases.Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		there.Spec.RenewTime = &now
		_, err = f.leases.Update(ctx, there, metav1.UpdateOptions{FieldManager: "kubecri"})
		return err
	}
	if !apierrors.IsNotFound(err) {
		return err
	}
	owner, err := f.owner()
	if err != nil {
		return err
	}
	_, err = f.leases.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{owner}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To(f.node), AcquireTime: &now, RenewTime: &now},
	}, metav1.CreateOptions{FieldManager: "kubecri"})
	return err
}

// promised are the node's claims that promise something. Before the API server has been read they
// are those of the checkpoint.
func (c *Claims) promised() map[slot.Name]time.Duration {
	all := map[slot.Name]time.Duration{}
	add := func(name slot.Name, claim *v1alpha1.SlotClaim) {
		if d := claim.Spec.ReleaseUnreachableAfter; d != nil {
			all[name] = d.Duration
		}
	}
	if !c.isSynced() {
		for name, claim := range c.saved.claims {
			add(name, claim)
		}
	}
	for _, claim := range c.store.all() {
		if name, err := claim.Slot(); err == nil {
			add(name, claim)
		}
	}
	return all
}

// fenceLoop renews the Lease while the node has promised something, and stops containers when it
// cannot.
func (c *Claims) fenceLoop(ctx context.Context) {
	if c.fence.leases == nil {
		return
	}
	for {
		after := c.keepPromises(ctx)
		select {
		case <-ctx.Done():
			return
		case <-c.fenced:
		case <-c.config.Clock.After(after):
		}
	}
}

// keepPromises does so once, and returns after what time to do so again.
func (c *Claims) keepPromises(ctx context.Context) time.Duration {
	promised := c.promised()
	if len(promised) == 0 {
		return fenceIdle
	}
	shortest := time.Duration(0)
	for _, d := range promised {
		if shortest == 0 || d < shortest {
			shortest = d
		}
	}
	next := shortest / 8
	renewing, cancel := context.WithTimeout(ctx, min(next, apiTimeout))
	err := c.fence.renew(renewing)
	cancel()
	if err == nil {
		return next
	}
	if ctx.Err() != nil {
		return next
	}
	next = min(next, fenceRetry)
	klog.FromContext(ctx).Error(err, "Cannot say that this node is there: containers whose slots would be released are stopped before that", "silent", c.fence.silent().Round(time.Second))
	for name, d := range promised {
		up, left := c.fence.up(d)
		if !up {
			next = min(next, left)
			continue
		}
		c.fence.note(name, false)
		c.stopUsers(ctx, name, d)
	}
	return next
}

// stopUsers stops the containers that use the slot. The kubelet creates them again, which is refused
// until the API server has been reached.
func (c *Claims) stopUsers(ctx context.Context, name slot.Name, promised time.Duration) {
	for _, u := range c.containers.running(name) {
		stopping, cancel := context.WithTimeout(ctx, fenceStopGrace+runtimeTimeout)
		_, err := c.config.Stopper.StopContainer(stopping, &runtimeapi.StopContainerRequest{ContainerId: u.id, Timeout: int64(fenceStopGrace / time.Second)})
		cancel()
		logger := klog.FromContext(ctx).WithValues("slot", name.String(), "pod", klog.KRef(u.pod.Namespace, u.pod.Name), "container", u.name)
		if err != nil {
			logger.Error(err, "Cannot stop a container whose slot may be given to another", "silent", c.fence.silent().Round(time.Second), "releaseUnreachableAfter", promised)
			continue
		}
		c.containers.ended(u.id)
		logger.Info("Stopped a container: the node does not reach the API server, and its slot may be given to another", "silent", c.fence.silent().Round(time.Second), "releaseUnreachableAfter", promised)
	}
}
