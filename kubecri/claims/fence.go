package claims

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
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
// none again before it has reached it. The last quarter is for stopping them (stop.go).

// fenceStartGrace is how long a process that has just started tries to reach the API server: it
// does not know when the former one last did.
const fenceStartGrace = 5 * time.Second

// patienceOf is after how long without the API server containers with the claim are stopped.
func patienceOf(promised time.Duration) time.Duration { return promised * 3 / 4 }

// errNoLease: the node may write no Lease, as with the kubelet's identity. Then it promises nothing.
var errNoLease = errors.New("kubecri may not write its Lease")

// promise is a claim of this node with releaseUnreachableAfter. It holds until the claim is released
// here, or no container uses the slot: also when somebody else has deleted the claim.
type promise struct {
	claim *v1alpha1.SlotClaim
	// stands is true while the controller cannot have released the claim: this process has made it,
	// and was never silent for too long since.
	stands bool
}

func (p promise) after() time.Duration { return p.claim.Spec.ReleaseUnreachableAfter.Duration }

// fence knows when the API server was last reached, and what the node has promised. Safe for
// concurrent use.
type fence struct {
	node    string
	owner   func() (metav1.OwnerReference, error)
	leases  coordinationclient.LeaseInterface // of the namespace kube-node-lease
	wall    clock.PassiveClock                // for people
	clock   clock.PassiveClock                // for silence: it counts the time that the machine was suspended
	started time.Time
	// renewing is of one renewal.
	renewing *semaphore.Weighted

	mu sync.Mutex
	// heard is when the last renewal began that was answered; zero before the first.
	heard time.Time
	// failing is true when the last renewal was not answered.
	failing  bool
	promises map[slot.Name]promise
}

// newFence has the promises of the checkpoint.
func newFence(config *Config, owner func() (metav1.OwnerReference, error), saved map[slot.Name]*v1alpha1.SlotClaim) *fence {
	f := &fence{node: config.Node, owner: owner, leases: config.Leases, wall: config.Clock, clock: silenceClock(config.Clock),
		renewing: semaphore.NewWeighted(1), promises: map[slot.Name]promise{}}
	f.started = f.clock.Now()
	for name, claim := range saved {
		f.saw(name, claim)
	}
	return f
}

// silent is for how long the API server has not been reached, at least. reached is false while it has
// not been since the start.
func (f *fence) silent() (d time.Duration, reached bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.heard.IsZero() {
		return f.clock.Since(f.started), false
	}
	return f.clock.Since(f.heard), true
}

// left is the time until containers with the claim are to be stopped, and until the controller may
// release it; not positive when that is over. A process that has not reached the API server yet
// supposes that the former one stopped in time to leave it fenceStartGrace twice.
func (f *fence) left(promised time.Duration) (stop, release time.Duration) {
	silent, reached := f.silent()
	if !reached {
		return fenceStartGrace - silent, 2*fenceStartGrace - silent
	}
	return patienceOf(promised) - silent, promised - silent
}

// beforeStop is d, or less: the time until the next containers are to be stopped.
func (f *fence) beforeStop(d time.Duration) time.Duration {
	for _, p := range f.all() {
		if stop, _ := f.left(p.after()); stop > 0 {
			d = min(d, stop)
		}
	}
	return d
}

// up reports whether containers with the claim are to be stopped.
func (f *fence) up(promised time.Duration) bool {
	stop, _ := f.left(promised)
	return stop <= 0
}

// stands reports whether the slot's claim cannot have been released by the controller.
func (f *fence) stands(name slot.Name, claim *v1alpha1.SlotClaim) bool {
	promised := claim.Spec.ReleaseUnreachableAfter
	if promised == nil {
		return true
	}
	if f.up(promised.Duration) {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.promises[name]
	return p.stands && p.claim.UID == claim.UID
}

// made notes the claim, which promises something, that this process has made of the slot.
func (f *fence) made(name slot.Name, claim *v1alpha1.SlotClaim) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.promises[name] = promise{claim, true}
}

// saw notes this node's claim of the slot. It reports whether there is a promise that was not known.
func (f *fence) saw(name slot.Name, claim *v1alpha1.SlotClaim) (news bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p, known := f.promises[name]; known && p.claim.UID == claim.UID && claim.UID != "" {
		return false
	}
	if claim.Spec.ReleaseUnreachableAfter == nil {
		delete(f.promises, name)
		return false
	}
	f.promises[name] = promise{claim, false}
	return true
}

// forget notes that the node has released the slot, or does not use it.
func (f *fence) forget(name slot.Name) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.promises, name)
}

// promised returns what the node has promised of the slot.
func (f *fence) promised(name slot.Name) (p promise, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, ok = f.promises[name]
	return p, ok
}

// hasPromised reports whether the node has promised something of a slot that the container uses.
func (f *fence) hasPromised(u *user) bool {
	for name := range u.slots {
		if _, ok := f.promised(name); ok {
			return true
		}
	}
	return false
}

func (f *fence) all() map[slot.Name]promise {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.promises)
}

func (f *fence) isFailing() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failing
}

// promise returns what a claim of the Configuration's slot is to promise. The Lease has been renewed
// lately then. nil is for no promise.
func (f *fence) promise(ctx context.Context, c *akriv0.Configuration) (*metav1.Duration, error) {
	if c == nil || c.Spec.ReleaseUnreachableAfter == nil || f.leases == nil {
		return nil, nil
	}
	promised := c.Spec.ReleaseUnreachableAfter
	if silent, reached := f.silent(); !reached || silent >= promised.Duration/4 {
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
	if err := f.renewing.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("wait for another renewal of Lease %s/%s: %w", corev1.NamespaceNodeLease,
			v1alpha1.NodeLease(f.node), err)
	}
	defer f.renewing.Release(1)
	began := f.clock.Now()
	err := f.write(ctx, v1alpha1.NodeLease(f.node), metav1.NewMicroTime(f.wall.Now()))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failing = err != nil
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w: %w", errNoLease, err)
	case err != nil:
		return fmt.Errorf("renew Lease %s/%s: %w", corev1.NamespaceNodeLease, v1alpha1.NodeLease(f.node), err)
	}
	for name, p := range f.promises {
		if began.Sub(f.heard) >= patienceOf(p.after()) {
			p.stands = false
			f.promises[name] = p
		}
	}
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
