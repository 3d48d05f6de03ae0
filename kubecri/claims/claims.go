package claims

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/checkpoint"
	"github.com/kubeslot/kubeslot/kubecri/informers"
	"github.com/kubeslot/kubeslot/kubecri/metrics"
	"github.com/kubeslot/kubeslot/kubecri/tracing"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	clientset "github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	akriinformers "github.com/kubeslot/kubeslot/types/client/informers/externalversions/akri/v0"
	kubeslotinformers "github.com/kubeslot/kubeslot/types/client/informers/externalversions/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
	"github.com/kubeslot/kubeslot/wake"
)

const (
	// apiTimeout bounds what one attempt waits for the API server.
	apiTimeout = 10 * time.Second
	// workers is how many claims are written at a time, and for one container.
	workers = 8
	// believableWait bounds what the creation of a container waits for Believable: it is tried
	// again. A runtime gives an NRI plugin two seconds.
	believableWait = 1500 * time.Millisecond
	// retryMin and retryMax bound the wait before a failed write is tried again.
	// The maximum is small: it is how long slots stay taken after an API outage.
	retryMin, retryMax = 20 * time.Millisecond, 5 * time.Second
)

// Config configures Claims. Everything but Metrics, Tracer and Clock is required.
type Config struct {
	Node           string
	Client         clientset.Interface
	Configurations akriinformers.ConfigurationInformer
	// Claims and Pods are those of this node; Nodes is this node.
	Claims kubeslotinformers.SlotClaimInformer
	Pods   coreinformers.PodInformer
	Nodes  coreinformers.NodeInformer
	// Namespaces is asked where a Configuration selects namespaces by labels, unless Kubelet is set.
	Namespaces NamespaceLabels
	// Runtime is asked directly, not through the proxy.
	Runtime Runtime
	// Kubelet, if set, knows which of its ids hold slots (device-plugin mode). Otherwise pods hold them,
	// as the scheduler has assigned them.
	Kubelet *Kubelet
	// Believable, if set, waits until a slot that the API server has no claim of is free: a backup
	// may have been restored that does not know others' claims.
	Believable func(context.Context) error
	// HeldChanged, if set, is called when Held has something new to say. It must not block, nor call
	// Claims.
	HeldChanged func()
	// Leases are those of kube-node-lease, and Stopper is the runtime; both nil where the node
	// promises nothing (fence.go). They need a Checkpoint: a promise outlives the process.
	Leases  coordinationclient.LeaseInterface
	Stopper Stopper
	// Events tells a pod that its slot was lost.
	Events record.EventRecorder
	// Grace is how long a claim without a container is left alone when it is not
	// known to have had one. Restarting takes less, creating a container too.
	Grace time.Duration
	// Resync is how often containers and claims are compared with the runtime.
	Resync time.Duration
	// Inspect, if set, is shown all containers of the runtime, and their sandboxes by id,
	// whenever they have been listed. It returns the ids of those that were created
	// without their devices: they use no slots.
	Inspect func(ctx context.Context, containers []*runtimeapi.Container, sandboxes map[string]*runtimeapi.PodSandbox) map[string]bool
	// Checkpoint is the path of the file that keeps the claims and their devices for
	// the next process; "" for none. Its directory exists. Device, then required, returns the
	// device behind an Instance as the node sees it now; false when it does not, or not yet. It
	// reads memory alone.
	Checkpoint string
	Device     func(instance string) (discovery.Device, bool)
	Metrics    *metrics.Metrics
	Tracer     *tracing.Tracer
	Clock      clock.WithTicker
}

// Claims is the owner of the node's claims. Safe for concurrent use.
type Claims struct {
	config     Config
	store      *store
	containers *containers
	queue      workqueue.TypedRateLimitingInterface[slot.Name]
	relist     wake.Signal         // asks for a resync now
	resyncing  *semaphore.Weighted // of one resync
	known      chan struct{}       // closed when the runtime has been asked
	synced     chan struct{}       // closed when claims, Configurations and the node have been read
	saved      saved               // what the checkpoint said at the start; not changed after New
	asked      atomic.Bool         // for a Configuration, before they were known
	changed    wake.Signal         // asks for the checkpoint to be written
	checkpoint struct {            // one write at a time
		sync.Mutex
		*checkpoint.Writer
		devices map[string]checkpoint.Device // as last written
	}
	fence  *fence
	fenced wake.Signal    // asks for promises to be kept: there is a new one
	stops  sync.WaitGroup // the containers that are being stopped

	parts atomic.Bool // what the runtime has was listed in parts, when last listed

	mu          sync.Mutex
	early       []early // Events, until known is closed
	memory      map[slot.Name]memory
	resyncError error
	// held is what Held said last; nil before it was known.
	held map[string]bool
	// checkpointError is why the checkpoint could not be written when last tried.
	checkpointError error
}

// New makes Claims and registers with the informers, which the caller runs.
func New(config Config) (*Claims, error) {
	switch {
	case config.Node == "":
		return nil, errors.New("claims: no node name")
	case config.Client == nil, config.Claims == nil, config.Configurations == nil, config.Nodes == nil,
		config.Pods == nil, config.Namespaces == nil && config.Kubelet == nil, config.Runtime == nil,
		config.Events == nil:
		return nil, errors.New("claims: client, informers, namespaces, runtime and event recorder are required")
	case config.Checkpoint != "" && config.Device == nil:
		return nil, errors.New("claims: a checkpoint needs to know the devices")
	case (config.Leases == nil) != (config.Stopper == nil):
		return nil, errors.New("claims: Leases and Stopper belong together")
	case config.Leases != nil && config.Checkpoint == "":
		return nil, errors.New("claims: Leases need a Checkpoint")
	case config.Grace < 0, config.Resync <= 0:
		return nil, fmt.Errorf("claims: grace %s must not be negative, resync %s must be positive", config.Grace, config.Resync)
	}
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	c := &Claims{
		config: config,
		store: newStore(config.Node, config.Client.KubeslotV1alpha1().SlotClaims(),
			config.Claims.Informer().GetIndexer(), config.Clock),
		containers: newContainers(),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[slot.Name](retryMin, retryMax),
			workqueue.TypedRateLimitingQueueConfig[slot.Name]{Name: "claims", Clock: config.Clock}),
		relist:    wake.New(),
		resyncing: semaphore.NewWeighted(1),
		known:     make(chan struct{}),
		synced:    make(chan struct{}),
		saved:     loadSaved(config.Checkpoint, config.Node),
		changed:   wake.New(),
		fenced:    wake.New(),
		memory:    map[slot.Name]memory{},
	}
	c.store.ids = config.Kubelet != nil
	c.fence = newFence(&config, c.owner, c.saved.claims)
	c.checkpoint.Writer, c.checkpoint.devices = checkpoint.NewWriter(config.Checkpoint), c.saved.devices
	if c.saved.since.IsZero() {
		c.saved.since = config.Clock.Now().Round(0)
	}
	if err := c.follow(); err != nil {
		return nil, fmt.Errorf("claims: %w", err)
	}
	config.Metrics.Watch(c.containers.inUse, c.containers.pending)
	return c, nil
}

// Run keeps claims and containers in agreement until ctx is done.
func (c *Claims) Run(ctx context.Context) {
	logger := klog.FromContext(ctx).WithName("claims")
	ctx = klog.NewContext(ctx, logger)
	var running sync.WaitGroup
	defer c.stops.Wait()
	defer running.Wait()
	defer c.queue.ShutDown()
	running.Go(func() { c.resyncLoop(ctx) })
	running.Go(func() { c.eventLoop(ctx) })
	running.Go(func() { c.checkpointLoop(ctx) })
	running.Go(func() { c.fenceLoop(ctx) })
	if !cache.WaitFor(ctx, "", c.config.Claims.Informer().HasSyncedChecker(), c.config.Configurations.Informer().HasSyncedChecker(),
		c.config.Nodes.Informer().HasSyncedChecker()) {
		return
	}
	close(c.synced)
	c.noteHeld()
	if c.asked.Load() {
		c.Resync() // for who asked for a Configuration too early
	}
	if !cache.WaitFor(ctx, "", c.config.Pods.Informer().HasSyncedChecker()) {
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

// Removed says that the runtime has removed a container or a sandbox, or has stopped a sandbox: none of its
// containers can start again. It returns at once; claims are released as soon as the API server takes it.
func (c *Claims) Removed(id string) { c.enqueue(c.containers.remove(id)) }

// Started says that a container has started, or is about to. One that was assigned something and is not known was
// created past us, or while nobody here heard of it: the runtime is asked soon. It returns at once.
func (c *Claims) Started(id string, pod Pod, name string, podAnnotations map[string]string) {
	if c.containers.has(id) {
		return
	}
	assigned, err := assignment.OfContainer(podAnnotations, pod.UID, c.config.Node, name)
	if err == nil && assigned.Info != nil {
		c.Resync()
	}
}

// Resync asks the runtime soon what containers there are.
func (c *Claims) Resync() { c.relist.Send() }

// follow registers with the informers. The claim of a container that runs is made
// again when it vanishes, and when it could not be made before: without a
// Configuration, or while the Node object was away, which takes its claims along.
func (c *Claims) follow() error {
	indexErr := c.config.Claims.Informer().AddIndexers(ByInstance)
	_, claimsErr := c.config.Claims.Informer().AddEventHandler(
		informers.Each(func(claim *v1alpha1.SlotClaim, _ bool) { c.Saw(claim) }))
	ofConfiguration := func(changed *akriv0.Configuration, _ bool) {
		for _, name := range c.containers.slots() {
			if configuration, _ := slot.SplitInstance(name.Instance); configuration == changed.Name {
				c.queue.Add(name)
			}
		}
	}
	_, configurationsErr := c.config.Configurations.Informer().AddEventHandler(informers.Each(ofConfiguration))
	known := types.UID("")
	_, nodesErr := c.config.Nodes.Informer().AddEventHandler(informers.Each(func(node *corev1.Node, _ bool) {
		if node.Name == c.config.Node && node.UID != known {
			known = node.UID
			c.enqueue(c.containers.slots())
		}
	}))
	return errors.Join(indexErr, claimsErr, configurationsErr, nodesErr, c.followPods(c.config.Pods.Informer()))
}

// Saw is called with each claim that the informer has begun or ceased to show, or has changed.
func (c *Claims) Saw(claim *v1alpha1.SlotClaim) {
	name, err := claim.Slot()
	if err != nil || !c.store.ours(claim) {
		return
	}
	c.store.saw(name, claim.UID)
	if now := c.store.get(name); now != nil && c.fence.saw(name, now) {
		c.fenceSoon()
	}
	c.queue.Add(name)
	c.checkpointSoon()
}

func (c *Claims) enqueue(names []slot.Name) {
	for _, name := range names {
		c.queue.Add(name)
	}
}

// configurations returns those of all namespaces.
func (c *Claims) configurations() []*akriv0.Configuration {
	all, err := c.config.Configurations.Lister().List(labels.Everything())
	if err != nil { // a list from memory
		panic(err)
	}
	return all
}

// owner is the Node object, which owns the claims.
func (c *Claims) owner() (metav1.OwnerReference, error) {
	node, err := c.config.Nodes.Lister().Get(c.config.Node)
	if err != nil {
		return metav1.OwnerReference{}, fmt.Errorf("slots cannot be claimed while the API server has no Node object "+
			"of this node, or has not shown it: %w", err)
	}
	return v1alpha1.NodeOwner(node.Name, node.UID), nil
}
