package claims

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/kubecri/metrics"
	"github.com/kubeslot/kubeslot/kubecri/tracing"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	clientset "github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	informers "github.com/kubeslot/kubeslot/types/client/informers/externalversions/akri/v0"
	"github.com/kubeslot/kubeslot/types/slot"
)

const (
	// apiTimeout bounds what one attempt waits for the API server.
	apiTimeout = 10 * time.Second
	// workers is how many Instances are written at a time.
	workers = 4
	// retryMin and retryMax bound the wait before a failed write is tried again.
	// The maximum is small: it is how long slots stay taken after an API outage.
	retryMin, retryMax = 20 * time.Millisecond, 5 * time.Second
)

// Config configures Claims. Everything but Metrics, Tracer and Clock is required.
type Config struct {
	Node           string
	Client         clientset.Interface
	Instances      informers.InstanceInformer
	Configurations informers.ConfigurationInformer
	// Pods are those of this node.
	Pods coreinformers.PodInformer
	// Runtime is asked directly, not through the proxy.
	Runtime Runtime
	// Events tells a pod that its slot was lost.
	Events record.EventRecorder
	// Grace is how long a claim without a container is left alone when it is not
	// known to have had one. Restarting takes less, creating a container too.
	Grace time.Duration
	// Resync is how often the book is compared with the runtime.
	Resync  time.Duration
	Metrics *metrics.Metrics
	Tracer  *tracing.Tracer
	Clock   clock.WithTicker
}

// Claims is the owner of the node's claims. Safe for concurrent use.
type Claims struct {
	config Config
	store  *store
	book   *book
	queue  workqueue.TypedRateLimitingInterface[string] // of Instance names
	// kick asks for a resync now; ready is closed after the first one.
	kick  chan struct{}
	ready chan struct{}
	// locks has one writer of an Instance's claims at a time. Names share them.
	locks  [64]chan struct{}
	memory *memory
}

// New makes Claims and registers with the informers, which the caller runs.
func New(config Config) (*Claims, error) {
	switch {
	case config.Node == "":
		return nil, errors.New("claims: no node name")
	case config.Client == nil, config.Instances == nil, config.Configurations == nil, config.Pods == nil, config.Runtime == nil, config.Events == nil:
		return nil, errors.New("claims: client, informers, runtime and event recorder are required")
	case config.Grace < 0, config.Resync <= 0:
		return nil, fmt.Errorf("claims: grace %s must not be negative, resync %s must be positive", config.Grace, config.Resync)
	}
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	c := &Claims{
		config: config,
		store: &store{client: config.Client, indexer: config.Instances.Informer().GetIndexer(),
			configurations: config.Configurations.Lister(), written: map[types.NamespacedName]*akriv0.Instance{}},
		book: newBook(),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryMin, retryMax),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "claims", Clock: config.Clock}),
		kick:   make(chan struct{}, 1),
		ready:  make(chan struct{}),
		memory: newMemory(),
	}
	for i := range c.locks {
		c.locks[i] = make(chan struct{}, 1)
	}
	informer := config.Instances.Informer()
	if err := informer.AddIndexers(indexers(config.Node)); err != nil {
		return nil, fmt.Errorf("claims: %w", err)
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { c.seen(obj) },
		UpdateFunc: func(_, obj any) { c.seen(obj) },
		DeleteFunc: func(obj any) { c.deleted(obj) },
	})
	if err != nil {
		return nil, fmt.Errorf("claims: %w", err)
	}
	if err := c.followPods(config.Pods.Informer()); err != nil {
		return nil, fmt.Errorf("claims: %w", err)
	}
	config.Metrics.Watch(c.book.inUse, c.book.pending)
	return c, nil
}

// Run keeps claims and containers in agreement until ctx is done.
func (c *Claims) Run(ctx context.Context) {
	logger := klog.FromContext(ctx).WithName("claims")
	ctx = klog.NewContext(ctx, logger)
	var running sync.WaitGroup
	defer running.Wait()
	defer c.queue.ShutDown()
	running.Go(func() { c.resyncLoop(ctx) })
	running.Go(func() { c.eventLoop(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), c.config.Instances.Informer().HasSynced, c.config.Configurations.Informer().HasSynced,
		c.config.Pods.Informer().HasSynced) {
		return
	}
	for range workers {
		running.Go(func() {
			for c.work(ctx) {
			}
		})
	}
	<-ctx.Done()
}

// ContainerRemoved says that the runtime has removed a container. It returns at
// once; the container's claims are released as soon as the API server takes it.
func (c *Claims) ContainerRemoved(id string) { c.enqueue(c.book.removeContainer(id)) }

// SandboxStopped says that the runtime has stopped or removed a sandbox: none of
// its containers can start again. It returns at once.
func (c *Claims) SandboxStopped(id string) { c.enqueue(c.book.stopSandbox(id)) }

// Resync asks the runtime soon what containers there are.
func (c *Claims) Resync() {
	select {
	case c.kick <- struct{}{}:
	default: // asked for already
	}
}

// seen is told of every Instance, most of which are of no concern here.
func (c *Claims) seen(obj any) {
	if in, ok := obj.(*akriv0.Instance); ok && (concerns(in, c.config.Node) || c.book.knows(in.Name)) {
		c.queue.Add(in.Name)
	}
}

func (c *Claims) deleted(obj any) {
	if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	if in, ok := obj.(*akriv0.Instance); ok {
		c.store.forget(in)
		c.memory.setOrphans(key(in), nil)
		c.queue.Add(in.Name)
	}
}

func (c *Claims) enqueue(names []slot.Name) {
	for _, name := range names {
		c.queue.Add(name.Instance)
	}
}

// lock makes the caller the only writer of the Instance's claims in this process.
func (c *Claims) lock(ctx context.Context, instance string) (unlock func(), err error) {
	h := fnv.New32a()
	h.Write([]byte(instance))
	l := c.locks[h.Sum32()%uint32(len(c.locks))]
	select {
	case l <- struct{}{}:
		return func() { <-l }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for another change to the claims of Instance %s: %w", instance, ctx.Err())
	}
}
