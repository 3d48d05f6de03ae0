package dra

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
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
	// syncDelay is how long the ResourceSlice controller waits until it looks at what somebody else changed,
	// or an earlier process left. Its default of 30 s would keep a Configuration that is handed back to
	// kube-scheduler from it for as long.
	syncDelay = 5 * time.Second
	// retryAfter is when to try again to list ResourceSlices.
	retryAfter = 30 * time.Second

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
	// Changed is called with the name of each Configuration of which Problem returns something else.
	Changed func(configuration string)
	Clock   clock.WithTicker
}

// Publisher keeps the driver's ResourceSlices, as a part of the manager that runs while this process leads.
// Until there is something to publish it watches and writes nothing.
type Publisher struct {
	PublisherConfig
	queue *poolQueue

	instances map[string]*published // by name
	looked    bool                  // for slices that an earlier process has left

	mu         sync.Mutex
	controller *resourceslice.Controller        // nil until there is something to publish
	pools      map[string]map[string]*published // by pool and Instance
}

var _ manager.LeaderElectionRunnable = &Publisher{}

// NewPublisher makes a Publisher.
func NewPublisher(c PublisherConfig) *Publisher {
	p := &Publisher{PublisherConfig: c, instances: map[string]*published{},
		pools: map[string]map[string]*published{}}
	p.queue = newPoolQueue(p)
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
	for {
		for queue.Len() > 0 && p.look(queue) {
		}
		if err := p.start(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot publish devices; trying again", "after", retryAfter)
			queue.AddAfter(reconcile.Request{}, retryAfter) // names no Instance
		}
		if !p.look(queue) { // waits
			return nil
		}
	}
}

// look takes an Instance from the queue and has the pools published that are others because of it. It returns false
// when the queue is shut down.
func (p *Publisher) look(queue workqueue.TypedInterface[reconcile.Request]) bool {
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
	p.mu.Lock()
	defer p.mu.Unlock()
	if before != nil {
		delete(p.instances, instance)
		if delete(p.pools[before.Pool], instance); len(p.pools[before.Pool]) == 0 {
			delete(p.pools, before.Pool)
		}
		p.queue.changed(before.Pool)
	}
	if now != nil {
		p.instances[instance] = now
		if p.pools[now.Pool] == nil {
			p.pools[now.Pool] = map[string]*published{}
		}
		p.pools[now.Pool][instance] = now
		p.queue.changed(now.Pool)
	}
	return true
}

func (p *Publisher) hostname(node string) string {
	return p.Inventory.Nodes([]string{node})[node].Labels[corev1.LabelHostname]
}

// start starts a ResourceSlice controller, once there is something to publish, or was before.
func (p *Publisher) start(ctx context.Context) error {
	if p.controller != nil || p.looked && len(p.instances) == 0 {
		return nil
	}
	left, err := p.left(ctx)
	if err != nil && (len(p.instances) > 0 || !apierrors.IsNotFound(err)) {
		return err
	}
	if p.looked = true; !left && len(p.instances) == 0 {
		return nil
	}
	p.mu.Lock() // Get waits until there is the controller
	defer p.mu.Unlock()
	p.queue.done = ctx.Done()
	p.controller, err = resourceslice.StartController(ctx, resourceslice.Options{DriverName: v1alpha1.DRADriver,
		KubeClient: p.Client, SyncDelay: new(syncDelay), Queue: p.queue, ErrorHandler: p.queue.failed})
	return err
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
	n, pool, problem := p.queue.problems.first(configuration)
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("ResourceSlices of %d pools are not as they should be; the first, of pool %s: %s",
		n, pool, problem)
}
