package configurationresources

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/binding"
	"github.com/kubeslot/kubeslot/kube-scheduler/claims"
	"github.com/kubeslot/kubeslot/kube-scheduler/config"
	"github.com/kubeslot/kubeslot/kube-scheduler/informer"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	"github.com/kubeslot/kubeslot/types/client/informers/externalversions"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// book owns the ledger: it feeds it from the API, serializes its writers, and
// wakes the pods that wait for what it gains.
type book struct {
	logger    klog.Logger
	activator fwk.PodActivator
	config    *restclient.Config
	client    versioned.Interface
	sources   []cache.InformerSynced
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
	// roster is of the nodes as the scheduler's last snapshot had them.
	roster *roster
	// profiles are the scheduler names whose pods this process schedules, with their
	// arguments.
	profiles map[string]*config.ConfigurationResourcesArgs
	// waiting are unbound pods by the resource names that they ask for, then UID.
	waiting map[string]map[string]*v1.Pod
	// waits says of the pods in waiting how long and why they wait, by UID.
	waits map[string]*podWait
	// tries counts scheduling cycles; tried has the count of each waiting pod's last
	// one, assumed that of a pod whose slots are assumed, see untold. Both by UID.
	tries          uint64
	tried, assumed map[string]uint64
	// refused are the UIDs of waiting pods for which, in their last cycle, a node had
	// slots that it does not advertise. The framework's hints read it without mu.
	refused sync.Map
	// starting: the ledger has not seen yet all that existed at start. Once it has,
	// all waiting pods are tried.
	starting bool
	// attended are nominated pods that are tried again by attend, by UID.
	attended map[string]bool
	// rounds wake the pods that wait for a resource, atOnce of them or as many as slots
	// are free, and then more.
	rounds map[string]*round
	atOnce int
	// deadlines are those of nominations, by the nominated pod's UID.
	deadlines map[string]*deadline
	// contested are slots that several pods hold, until that is settled: by the
	// leader at once, else when standby has passed; evict deletes the losers.
	contested []slot.Name
	leads     bool
	standby   *time.Timer
	patience  time.Duration
	evict     func([]*ledger.DoubleAllocation)
	// nominated are waiting pods that another plugin's preemption has nominated,
	// by UID.
	nominated map[string]*v1.Pod
}

// startPatience bounds how long the first pods wait for the ledger. 25,000 devices
// take 2 s. Without the wait, each waiting pod would be refused, with a write to its
// status and an event, and tried again.
const startPatience = 10 * time.Second

// startBook makes the book and starts its informers; they stop with ctx. It does
// not wait for them: without the CRDs, pods that ask for no slots must schedule.
func startBook(ctx context.Context, handle fwk.Handle) (*book, error) {
	rest := restclient.CopyConfig(handle.KubeConfig())
	rest.ContentType, rest.AcceptContentTypes = "application/json", "application/json" // CRDs have no protobuf
	client, err := versioned.NewForConfig(rest)
	if err != nil {
		return nil, fmt.Errorf("make a client for akri.sh and kubeslot.io: %w", err)
	}
	b := &book{
		logger:    klog.FromContext(ctx).WithName(Name),
		activator: handle,
		config:    rest,
		client:    client,
		ledger:    ledger.New(),
		leftOut:   map[string]string{},
		claimed:   claimed{released: map[types.UID]bool{}},
		starting:  true,
		profiles:  map[string]*config.ConfigurationResourcesArgs{},
		waiting:   map[string]map[string]*v1.Pod{},
		waits:     map[string]*podWait{},
		tried:     map[string]uint64{},
		assumed:   map[string]uint64{},
		patience:  standbyPatience,
		attended:  map[string]bool{},
		rounds:    map[string]*round{},
		atOnce:    firstWoken,
		deadlines: map[string]*deadline{},
		nominated: map[string]*v1.Pod{},
		decided:   make(chan struct{}),
	}
	decide := sync.OnceFunc(func() { close(b.decided) })
	time.AfterFunc(startPatience, decide)
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
	registerMetrics()
	binding.RegisterMetrics()
	claims.RegisterMetrics()
	inService.book.Store(b)
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
	}()
	return b, nil
}

// synced reports whether the ledger has seen all that existed at start.
func (b *book) synced() bool {
	for _, synced := range b.sources {
		if !synced() {
			return false
		}
	}
	return true
}

// awaitStart waits until the ledger is in step, and reports whether it is. It does
// not wait once it is clear that this may take long.
func (b *book) awaitStart(ctx context.Context) bool {
	if b.synced() {
		return true
	}
	select {
	case <-b.decided:
	case <-ctx.Done():
	}
	return b.synced()
}

// announceSync wakes the pods that were refused because the ledger was not full yet.
func (b *book) announceSync(ctx context.Context) {
	if !cache.WaitForCacheSync(ctx.Done(), b.sources...) {
		return
	}
	b.logger.Info("Ledger is in step with the API")
	b.mu.Lock()
	defer b.mu.Unlock()
	b.starting = false
	b.followNominations()
	pods := map[string]*v1.Pod{}
	for _, waiting := range b.waiting {
		for uid, pod := range waiting {
			pods[uid] = pod
		}
	}
	b.activator.Activate(b.logger, pods)
}
