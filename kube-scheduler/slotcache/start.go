package slotcache

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/config"
	"github.com/kubeslot/kubeslot/kube-scheduler/informer"
	"github.com/kubeslot/kubeslot/kube-scheduler/requeue"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	"github.com/kubeslot/kubeslot/types/client/informers/externalversions"
	"github.com/kubeslot/kubeslot/types/client/restored"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// startPatience bounds how long the first pods wait for the ledger. 25,000 devices
// take 2 s. Without the wait, each waiting pod would be refused, with a write to its
// status and an event, and tried again.
const startPatience = 10 * time.Second

// New makes a Cache that nothing feeds. sources are what has to be in step before pods are
// tried. The Queue is to be run once Begin has returned.
func New(logger klog.Logger, c clock.WithDelayedExecution, activator fwk.PodActivator, sources ...cache.InformerSynced) *Cache {
	b := &Cache{
		logger:      logger,
		clock:       c,
		sources:     sources,
		late:        make(chan struct{}),
		ledger:      ledger.New(),
		leftOut:     map[string]string{},
		profiles:    map[string]*config.ConfigurationResourcesArgs{},
		nominations: map[string]*Nomination{},
		unclaimed:   map[string]*unclaimed{},
	}
	b.Queue = requeue.New(requeue.Options[*Waiting]{
		Logger:               logger,
		Activator:            activator,
		Clock:                c,
		Possible:             b.possible,
		MinPreemptorPriority: b.minPreemptorPriority,
		Finishes:             true,
	})
	c.AfterFunc(startPatience, b.GiveUpWaiting)
	return b
}

// Start makes a Cache and starts its informers; they stop with ctx. It does not wait for them:
// without the CRDs, pods that ask for no slots must schedule. The guard is the client's.
func Start(ctx context.Context, logger klog.Logger, handle fwk.Handle, client versioned.Interface,
	guard *restored.Guard) (*Cache, error) {
	b := New(logger, clock.RealClock{}, handle)
	b.guard = guard
	factory := externalversions.NewSharedInformerFactory(client, 0)
	akri, core := factory.Akri().V0(), handle.SharedInformerFactory().Core().V1()
	failed := func(ctx context.Context, r *cache.Reflector, err error) {
		b.GiveUpWaiting() // without the CRDs, or the right to read, other pods must not wait
		cache.DefaultWatchErrorHandler(ctx, r, err)
	}
	if err := akri.Configurations().Informer().SetWatchErrorHandlerWithContext(failed); err != nil {
		return nil, fmt.Errorf("watch the API: %w", err)
	}
	handlers := map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		akri.Configurations().Informer(): informer.Handler(b.SetConfiguration, b.DeleteConfiguration, nil),
		core.Namespaces().Informer(): informer.Handler(b.SetNamespace, func(*v1.Namespace) {},
			sameLabels[*v1.Namespace]),
		core.Nodes().Informer(): b.NodeHandler(),
		core.Pods().Informer():  informer.Handler(b.SetPod, b.DeletePod, nil),
	}
	if handle.SharedDRAManager() != nil {
		resource := handle.SharedInformerFactory().Resource().V1()
		handlers[resource.ResourceSlices().Informer()] = b.ResourceSliceHandler()
		handlers[resource.ResourceClaims().Informer()] = b.ResourceClaimHandler()
	}
	for of, handler := range handlers {
		registration, err := of.AddEventHandler(handler)
		if err != nil {
			return nil, fmt.Errorf("watch the API: %w", err)
		}
		b.sources = append(b.sources, registration.HasSynced)
	}
	slices, claims := b.SliceFeed(), b.ClaimFeed()
	b.sources = append(b.sources, slices.HasSynced, claims.HasSynced)
	ofSlices, ofClaims := client.KubeslotV1alpha1().DeviceSlices(), client.KubeslotV1alpha1().SlotClaims()
	feeds := []*cache.Reflector{
		slices.Reflector(logger, client, informer.ListWatch(ofSlices.List, ofSlices.Watch, b.GiveUpWaiting), &v1alpha1.DeviceSlice{}),
		claims.Reflector(logger, client, informer.ListWatch(ofClaims.List, ofClaims.Watch, b.GiveUpWaiting), &v1alpha1.SlotClaim{}),
	}
	go b.endWhenRestored(ctx, client, []restored.Cache{
		{Resource: akriv0.SchemeGroupVersion.WithResource("configurations"), Informer: akri.Configurations().Informer()},
		{Resource: v1alpha1.SchemeGroupVersion.WithResource("deviceslices"), Informer: feeds[0]},
		{Resource: v1alpha1.SchemeGroupVersion.WithResource("slotclaims"), Informer: feeds[1]},
		{Resource: v1.SchemeGroupVersion.WithResource("nodes"), Informer: core.Nodes().Informer()},
		{Resource: v1.SchemeGroupVersion.WithResource("pods"), Informer: core.Pods().Informer()},
	})
	RegisterMetrics()
	inService.Report(b)
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
		b.Begin(ctx)
		b.Queue.Run(ctx)
	}()
	return b, nil
}

// Begin waits until the ledger is in step, and has the pods tried that were refused because it
// was not.
func (b *Cache) Begin(ctx context.Context) {
	defer b.GiveUpWaiting()
	if !cache.WaitForCacheSync(ctx.Done(), b.sources...) {
		return
	}
	b.logger.Info("Ledger is in step with the API")
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Queue.RetryWaiting(nil, nil)
	for _, n := range b.withoutSlots() {
		b.followNomination(n.byOther, n.req)
	}
}

// GiveUpWaiting ends AwaitStart for all pods: the API's objects cannot be read, or it takes long.
func (b *Cache) GiveUpWaiting() { b.giveUp.Do(func() { close(b.late) }) }

// AwaitStart waits until the ledger is in step, and reports whether it is. It does
// not wait once it is clear that this may take long.
func (b *Cache) AwaitStart(ctx context.Context) bool {
	if b.Synced() {
		return true
	}
	select {
	case <-b.late:
	case <-ctx.Done():
	}
	return b.Synced()
}
