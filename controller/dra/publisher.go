package dra

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kubeslot/kubeslot/controller/inventory"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

const (
	// interval is the least time between two updates of what is published, and rate how many bytes a second
	// they are on average; but none waits longer than maxPause. A device that many nodes see has all their
	// names, which each node that comes changes.
	interval, rate, maxPause = time.Second, 1 << 20, 10 * time.Second
	// syncDelay is how long the ResourceSlice controller waits until it looks at what somebody else changed,
	// or an earlier process left. Its default of 30 s would keep a Configuration that is handed back to
	// kube-scheduler from it for as long.
	syncDelay = 5 * time.Second
	// lookAgain is when to look again whether the last slices are gone, and retryAfter when to try again
	// to list them.
	lookAgain, retryAfter = 2 * time.Second, 30 * time.Second

	notServed = "the API server does not serve resource.k8s.io/v1: upgrade it to Kubernetes 1.36 or newer, " +
		"or set spec.allocator to Slots"
)

// PublisherConfig is what a Publisher needs; all of it is required.
type PublisherConfig struct {
	// Client reads and writes ResourceSlices.
	Client    kubernetes.Interface
	Inventory *inventory.Inventory
	// HasInstance reports whether a device has its Instance: those beyond spec.maxInstances have none, and are
	// not published.
	HasInstance func(types.NamespacedName) bool
	// Source has the Instances whose devices may be others, and those that come.
	Source source.TypedSyncingSource[reconcile.Request]
	// Changed is called with each Configuration of which Problem returns something else.
	Changed func(types.NamespacedName)
	Clock   clock.Clock
}

// Publisher keeps the driver's ResourceSlices, as a part of the manager that runs while this process leads.
// While there is nothing to publish it watches and writes nothing.
type Publisher struct {
	PublisherConfig
	pools *poolQueue

	controller *resourceslice.Controller // nil while there is nothing to publish
	instances  map[string]*published     // by name
	clean      bool                      // no slice of the driver is left
}

var _ manager.LeaderElectionRunnable = &Publisher{}

// NewPublisher makes a Publisher.
func NewPublisher(c PublisherConfig) *Publisher {
	p := &Publisher{PublisherConfig: c, instances: map[string]*published{}}
	p.pools = newPoolQueue(func(configuration string) {
		if c := p.Inventory.InForce(configuration); c != nil {
			p.Changed(types.NamespacedName{Namespace: c.Namespace, Name: c.Name})
		}
	})
	return p
}

// NeedLeaderElection has one process publish.
func (*Publisher) NeedLeaderElection() bool { return true }

// Start publishes until ctx is done.
func (p *Publisher) Start(ctx context.Context) error {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	context.AfterFunc(ctx, queue.ShutDown)
	if err := p.Source.Start(ctx, queue); err != nil {
		return err
	}
	if err := p.Source.WaitForSync(ctx); err != nil { // the queue has all Instances then
		return err
	}
	changed := sets.New[string]() // pools
	for {
		for queue.Len() > 0 && p.look(queue, changed) {
		}
		again, bytes, err := p.publish(ctx, changed)
		changed = sets.New[string]()
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot publish devices; trying again", "after", again)
		}
		if again > 0 {
			queue.AddAfter(reconcile.Request{}, again) // names no Instance
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.Clock.After(min(max(interval, time.Duration(bytes)*time.Second/rate), maxPause)):
		}
		if !p.look(queue, changed) { // waits
			return nil
		}
	}
}

// look takes an Instance from the queue and notes which pools are others because of it. It returns false when
// the queue is shut down.
func (p *Publisher) look(queue workqueue.TypedInterface[reconcile.Request], changed sets.Set[string]) bool {
	request, shutdown := queue.Get()
	if shutdown {
		return false
	}
	defer queue.Done(request)
	instance := request.Name
	before, now := p.instances[instance], publish(instance, p.Inventory.Device(instance), p.hostname)
	if before == nil && now != nil && !p.HasInstance(request.NamespacedName) { // nor ever, perhaps
		now = nil
	}
	if apiequality.Semantic.DeepEqual(before, now) {
		return true
	}
	if before != nil {
		changed.Insert(before.Pool)
		delete(p.instances, instance)
	}
	if now != nil {
		changed.Insert(now.Pool)
		p.instances[instance] = now
	}
	return true
}

func (p *Publisher) hostname(node string) string {
	return p.Inventory.Nodes([]string{node})[node].Labels[corev1.LabelHostname]
}

// publish hands what changed to the ResourceSlice controller, and returns when to look again without a
// change, 0 for never, and how long what changed is, in bytes.
func (p *Publisher) publish(ctx context.Context, changed sets.Set[string]) (
	again time.Duration, bytes int, err error) {
	members := map[string][]*published{}
	for _, one := range p.instances {
		if changed.Has(one.Pool) {
			members[one.Pool] = append(members[one.Pool], one)
		}
	}
	for pool := range changed {
		if len(members[pool]) == 0 {
			p.pools.set(pool, nil)
			continue
		}
		as := poolOf(members[pool])
		bytes += sizeOf(&as) // before others read it
		p.pools.set(pool, &as)
	}
	again, err = p.startOrStop(ctx)
	return again, bytes, err
}

// startOrStop has a ResourceSlice controller run while there is something to publish, or left of before. It
// returns when to call it again without a change; 0 for never.
func (p *Publisher) startOrStop(ctx context.Context) (again time.Duration, err error) {
	wanted := len(p.instances) > 0
	if wanted && p.controller != nil || !wanted && p.clean {
		return 0, nil
	}
	p.clean = false
	left, err := p.left(ctx)
	notFound := apierrors.IsNotFound(err) // the API server does not have the kind
	switch {
	case notFound && wanted:
		for _, one := range p.instances {
			p.pools.setProblem(one.Pool, notServed)
		}
		return retryAfter, err
	case err != nil && !notFound:
		return retryAfter, err
	case !left && !wanted:
		p.controller.Stop() // nil if there was nothing to do
		p.controller, p.clean = nil, true
		return 0, nil
	case p.controller == nil:
		p.controller, err = p.pools.start(ctx, resourceslice.Options{
			DriverName: v1alpha1.DRADriver, KubeClient: p.Client, SyncDelay: new(syncDelay)})
		if err != nil {
			return retryAfter, err
		}
	}
	return lookAgain, nil
}

// left reports whether there is a slice of the driver without a node's name, as the ResourceSlice controller sees and
// deletes.
func (p *Publisher) left(ctx context.Context) (bool, error) {
	ours := fields.Set{resourceapi.ResourceSliceSelectorDriver: v1alpha1.DRADriver,
		resourceapi.ResourceSliceSelectorNodeName: ""}
	options := metav1.ListOptions{FieldSelector: ours.AsSelector().String(), Limit: 1}
	list, err := p.Client.ResourceV1().ResourceSlices().List(ctx, options)
	if err != nil {
		return false, fmt.Errorf("list the ResourceSlices of driver %s: %w", v1alpha1.DRADriver, err)
	}
	return len(list.Items) > 0, nil
}

// Problem says which of a Configuration's devices are not published, or not as they should be, and why; ""
// for none.
func (p *Publisher) Problem(configuration string) string {
	n, pool, problem := p.pools.problem(configuration)
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("ResourceSlices of %d pools are not as they should be; the first, of pool %s: %s",
		n, pool, problem)
}
