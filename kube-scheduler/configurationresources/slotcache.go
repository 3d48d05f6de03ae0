package configurationresources

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/binding"
	"github.com/kubeslot/kubeslot/kube-scheduler/claims"
	"github.com/kubeslot/kubeslot/kube-scheduler/config"
	"github.com/kubeslot/kubeslot/kube-scheduler/informer"
	"github.com/kubeslot/kubeslot/kube-scheduler/requeue"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	"github.com/kubeslot/kubeslot/types/client/informers/externalversions"
	"github.com/kubeslot/kubeslot/types/client/restored"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// slotCache owns the ledger: it feeds it from the API, serializes its writers, and has pods
// tried again by what happens.
type slotCache struct {
	logger  klog.Logger
	clock   clock.WithDelayedExecution
	config  *restclient.Config
	client  versioned.Interface
	sources []cache.InformerSynced
	// queue has the unbound pods by the resource names that they ask for.
	queue *requeue.Queue[*podWait]
	// decided is closed when it is clear whether the ledger comes into step: it has,
	// the API's objects cannot be read, or startPatience is over.
	decided chan struct{}

	// kinds are the names of Configurations. The framework's hints read it without mu.
	kinds sync.Map
	// choosing are the names of the nodes that choose slots themselves. Filter reads it
	// without mu.
	choosing sync.Map

	mu     sync.RWMutex
	ledger *ledger.Ledger
	// leftOut is what was last logged of a DeviceSlice's devices that are left out.
	leftOut map[string]string
	claimed claimed
	// snapshot is of the nodes as the scheduler's last snapshot had them.
	snapshot *snapshot
	// profiles are the scheduler names whose pods this process schedules, with their
	// arguments.
	profiles map[string]*config.ConfigurationResourcesArgs
	// refused are the UIDs of waiting pods for which, in their last cycle, a node had
	// slots that it does not advertise. The framework's hints read it without mu.
	refused sync.Map
	// deadlines are those of nominations, by the nominated pod's UID.
	deadlines map[string]*deadline
	// doubleAllocated are slots that several pods hold, until evict deletes the losers. A
	// scheduler that does not lead leaves that to the one that does.
	doubleAllocated sets.Set[slot.Name]
	leads           bool
	evict           func([]*ledger.DoubleAllocation)
	// nominated are waiting pods that another plugin's preemption has nominated,
	// by UID.
	nominated map[string]*v1.Pod
}

// startPatience bounds how long the first pods wait for the ledger. 25,000 devices
// take 2 s. Without the wait, each waiting pod would be refused, with a write to its
// status and an event, and tried again.
const startPatience = 10 * time.Second

func newSlotCache(logger klog.Logger, c clock.WithDelayedExecution, activator fwk.PodActivator) *slotCache {
	b := &slotCache{
		logger:          logger,
		clock:           c,
		ledger:          ledger.New(),
		leftOut:         map[string]string{},
		claimed:         claimed{released: map[types.UID]bool{}},
		profiles:        map[string]*config.ConfigurationResourcesArgs{},
		deadlines:       map[string]*deadline{},
		nominated:       map[string]*v1.Pod{},
		doubleAllocated: sets.Set[slot.Name]{},
		decided:         make(chan struct{}),
	}
	b.queue = requeue.New(requeue.Options[*podWait]{Logger: logger, Activator: activator, Clock: c, Possible: b.possible, MinPreemptorPriority: b.minPreemptorPriority, Finishes: true})
	return b
}

// startSlotCache makes the slot cache and starts its informers; they stop with ctx. It does
// not wait for them: without the CRDs, pods that ask for no slots must schedule.
func startSlotCache(ctx context.Context, handle fwk.Handle) (*slotCache, error) {
	rest := restclient.CopyConfig(handle.KubeConfig())
	rest.ContentType, rest.AcceptContentTypes = "application/json", "application/json" // CRDs have no protobuf
	guard := restored.New(rest)
	client, err := versioned.NewForConfig(rest)
	if err != nil {
		return nil, fmt.Errorf("make a client for akri.sh and kubeslot.io: %w", err)
	}
	b := newSlotCache(klog.FromContext(ctx).WithName(Name), clock.RealClock{}, handle)
	b.config, b.client = rest, client
	decide := sync.OnceFunc(func() { close(b.decided) })
	b.clock.AfterFunc(startPatience, decide)
	factory := externalversions.NewSharedInformerFactory(client, 0)
	akri, core := factory.Akri().V0(), handle.SharedInformerFactory().Core().V1()
	failed := func(ctx context.Context, r *cache.Reflector, err error) {
		decide() // without the CRDs, or the right to read, other pods must not wait
		cache.DefaultWatchErrorHandler(ctx, r, err)
	}
	if err := akri.Configurations().Informer().SetWatchErrorHandlerWithContext(failed); err != nil {
		return nil, fmt.Errorf("watch the API: %w", err)
	}
	for _, source := range []struct {
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{
		{akri.Configurations().Informer(), informer.Handler(b.setConfiguration, b.deleteConfiguration, nil)},
		{core.Namespaces().Informer(), informer.Handler(b.setNamespace, func(*v1.Namespace) {}, sameNamespaceLabels)},
		{core.Nodes().Informer(), informer.Handler(b.setNode, b.deleteNode, sameLabels)},
		{core.Pods().Informer(), informer.Handler(b.setPod, b.deletePod, nil)},
	} {
		registration, err := source.informer.AddEventHandler(source.handler)
		if err != nil {
			return nil, fmt.Errorf("watch the API: %w", err)
		}
		b.sources = append(b.sources, registration.HasSynced)
	}
	deviceSlices, slotClaims := client.KubeslotV1alpha1().DeviceSlices(), client.KubeslotV1alpha1().SlotClaims()
	feeds := []cache.Controller{
		b.sliceFeed().controller(b, source[*v1alpha1.DeviceSliceList]{deviceSlices.List, deviceSlices.Watch}.listWatch(), &v1alpha1.DeviceSlice{}, trimSlice, failed),
		b.claimFeed().controller(b, source[*v1alpha1.SlotClaimList]{slotClaims.List, slotClaims.Watch}.listWatch(), &v1alpha1.SlotClaim{}, trimClaim, failed),
	}
	for _, f := range feeds {
		b.sources = append(b.sources, done(f.HasSyncedChecker().Done()))
	}
	go b.endWhenRestored(ctx, guard, []restored.Cache{
		{Resource: akriv0.SchemeGroupVersion.WithResource("configurations"), Informer: akri.Configurations().Informer()},
		{Resource: v1alpha1.SchemeGroupVersion.WithResource("deviceslices"), Informer: feeds[0]},
		{Resource: v1alpha1.SchemeGroupVersion.WithResource("slotclaims"), Informer: feeds[1]},
		{Resource: v1.SchemeGroupVersion.WithResource("nodes"), Informer: core.Nodes().Informer()},
		{Resource: v1.SchemeGroupVersion.WithResource("pods"), Informer: core.Pods().Informer()},
	})
	registerMetrics()
	binding.RegisterMetrics()
	claims.RegisterMetrics()
	inService.cache.Store(b)
	factory.Start(ctx.Done())
	go func() {
		// What reading the devices leaves as garbage would else lie between the pods and
		// nodes, which stay, and a third of that memory could not be given back. And with
		// their Configurations known, what is wrong with devices is logged.
		cache.WaitForCacheSync(ctx.Done(), core.Pods().Informer().HasSynced, core.Nodes().Informer().HasSynced,
			akri.Configurations().Informer().HasSynced)
		for _, f := range feeds {
			go f.RunWithContext(ctx)
		}
	}()
	go func() {
		b.announceSync(ctx)
		decide()
		b.queue.Run(ctx)
	}()
	return b, nil
}

// endWhenRestored ends the process when the API server was restored from a backup: the
// ledger, and the framework's caches of pods and nodes, hold what is no longer so.
func (b *slotCache) endWhenRestored(ctx context.Context, guard *restored.Guard, caches []restored.Cache) {
	if err := guard.Run(ctx, b.client.Discovery().RESTClient(), caches...); err != nil {
		b.logger.Error(err, "Ending")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}

// synced reports whether the ledger has seen all that existed at start.
func (b *slotCache) synced() bool {
	for _, synced := range b.sources {
		if !synced() {
			return false
		}
	}
	return true
}

// awaitStart waits until the ledger is in step, and reports whether it is. It does
// not wait once it is clear that this may take long.
func (b *slotCache) awaitStart(ctx context.Context) bool {
	if b.synced() {
		return true
	}
	select {
	case <-b.decided:
	case <-ctx.Done():
	}
	return b.synced()
}

// announceSync has the pods tried that were refused because the ledger was not full yet.
func (b *slotCache) announceSync(ctx context.Context) {
	if !cache.WaitForCacheSync(ctx.Done(), b.sources...) {
		return
	}
	b.logger.Info("Ledger is in step with the API")
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue.Start()
	b.evictLosersIfLeading()
	for node := range b.nominatedNodes() {
		b.followNominations(node)
	}
}
