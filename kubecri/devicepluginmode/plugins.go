package devicepluginmode

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/kubecri/informers"
	"github.com/kubeslot/kubeslot/kubecri/ownwrites"
	"github.com/kubeslot/kubeslot/types/assignment"
	kubeslotinformers "github.com/kubeslot/kubeslot/types/client/informers/externalversions/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/wake"
)

// reasonScope is of the Event about a Configuration that cannot be served here.
const reasonScope = "UniqueScopeNotSupported"

// Config is what Plugins need. All but CDI, NoInstances and ListedChanged is required.
type Config struct {
	// Config is of the node's claims, without Kubelet, Namespaces, Device and Resync. Whoever made the
	// informers starts them, after New.
	claims.Config
	// Slices are those of this node.
	Slices kubeslotinformers.DeviceSliceInformer
	// Devices returns the devices that the node sees, by Instance, and what is closed when
	// they may have changed.
	Devices func() (map[string]discovery.Device, <-chan struct{})
	// Device returns one of them, or why it cannot be used. It may wait until ctx is done.
	Device func(ctx context.Context, instance string) (discovery.Device, error)
	// CDI returns the name by which the runtime knows a device, "" for none.
	CDI func(ctx context.Context, instance string, device discovery.Device) string
	// PodResources says, with the runtime, what is in use.
	PodResources podresourcesapi.PodResourcesListerClient
	// Directory is the kubelet's for device plugins.
	Directory string
	// NoInstances leaves out the plugins of Instances: a node of thousands of devices
	// would have as many resources in its status.
	NoInstances bool
	// ListedChanged is called after the kubelet got other amounts than before. It must not block.
	ListedChanged func()
}

// Plugins are the node's device plugins. Safe for concurrent use.
type Plugins struct {
	Config
	claims *claims.Claims
	asks   *asks
	// met are claims that were in the way, until the watches show them.
	met        *ownwrites.Writes[*v1alpha1.SlotClaim]
	retryEvery time.Duration
	resyncs    wake.Signal // asks for another inventory
	running    sync.WaitGroup
	logger     klog.Logger // of calls of the kubelet; set by Run
	attention  wake.Signal // asks for attend
	// attending is held by attend; unregistered: its last attempt has failed.
	attending    sync.Mutex
	unregistered bool
	// allocating lets one at a time do so.
	allocating *semaphore.Weighted

	mu        sync.Mutex
	inventory inventory
	servers   map[key]*server
	listed    listing
	watches   map[string]*claimWatch // changed by the sync loop alone
	seen      map[string]discovery.Device
}

// New makes Plugins and registers with the informers, which the caller runs.
func New(config Config) (*Plugins, error) {
	if config.Directory == "" || config.Slices == nil || config.Devices == nil || config.Device == nil ||
		config.PodResources == nil {
		return nil, errors.New("devicepluginmode: directory, informers, devices and pod-resources are required")
	}
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	p := &Plugins{Config: config, asks: newAsks(), met: ownwrites.New[*v1alpha1.SlotClaim](config.Clock),
		retryEvery: retryEvery,
		resyncs:    wake.New(), attention: wake.New(), allocating: semaphore.NewWeighted(1),
		watches: map[string]*claimWatch{}, servers: map[key]*server{}}
	of := config.Config
	of.Kubelet = &claims.Kubelet{Ask: p.ask, Keeps: p.asks.keeps, Gives: p.asks.gives}
	of.Device, of.Resync = p.seenDevice, refreshEvery
	of.HeldChanged = func() {
		p.resyncs.Send()
		if p.HeldChanged != nil {
			p.HeldChanged()
		}
	}
	var err error
	if p.claims, err = claims.New(of); err != nil {
		return nil, fmt.Errorf("devicepluginmode: %w", err)
	}
	for _, informer := range []cache.SharedIndexInformer{config.Configurations.Informer(), config.Slices.Informer(), config.Claims.Informer()} {
		informers.Handle(informer, informers.OnChange(p.resyncs.Send))
	}
	p.followPods()
	return p, nil
}

// Run serves the kubelet until ctx is done. Its sockets stay then, and so do claims: the
// next life of the process takes both over.
func (p *Plugins) Run(ctx context.Context) {
	logger := klog.FromContext(ctx).WithName("devicepluginmode")
	ctx = klog.NewContext(ctx, logger)
	p.logger = logger
	defer p.running.Wait()
	p.running.Go(func() { p.claims.Run(ctx) })
	select {
	case <-p.claims.Listed():
	case <-ctx.Done():
		return
	}
	p.removeOldSockets(logger)
	p.running.Go(func() { p.followKubelet(ctx, attendEvery) })
	p.running.Go(func() { // until then there is what the checkpoint has
		for _, informer := range p.informers() {
			if !cache.WaitFor(ctx, "", informer.HasSyncedChecker()) {
				return
			}
		}
		p.claims.Resync()
		p.resyncs.Send()
	})
	p.syncLoop(ctx)
}

func (p *Plugins) informers() []cache.SharedIndexInformer {
	return []cache.SharedIndexInformer{p.Configurations.Informer(), p.Slices.Informer(), p.Claims.Informer(),
		p.Pods.Informer(), p.Nodes.Informer()}
}

// synced reports whether the API server has been read.
func (p *Plugins) synced() bool {
	return !slices.ContainsFunc(p.informers(), func(i cache.SharedIndexInformer) bool { return !i.HasSynced() })
}

// seenDevice is the device behind an Instance, as it was seen when the inventory was taken.
func (p *Plugins) seenDevice(instance string) (discovery.Device, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	device, ok := p.seen[instance]
	return device, ok
}

// NodeClaims is the owner of the node's claims, which Run runs.
func (p *Plugins) NodeClaims() *claims.Claims { return p.claims }

// slotsChanged has the plugins of an Instance, or of all of the Configuration's for "",
// and that of the Configuration list their ids anew.
func (p *Plugins) slotsChanged(configuration, instance string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed := []key{{configuration: configuration}, {configuration, instance}}
	if instance == "" {
		changed = slices.Collect(maps.Keys(p.servers))
	}
	for _, k := range changed {
		if s := p.servers[k]; s != nil && k.configuration == configuration {
			s.changed()
		}
	}
}

// syncLoop keeps the plugins those that there are to be.
func (p *Plugins) syncLoop(ctx context.Context) {
	for {
		changed := p.sync(ctx)
		select {
		case <-ctx.Done():
			p.stop()
			return
		case <-changed:
		case <-p.resyncs:
		}
	}
}

// sync takes the inventory, and starts and ends plugins and watches by it.
func (p *Plugins) sync(ctx context.Context) (changed <-chan struct{}) {
	inv, changed := p.takeInventory()
	p.watchThese(ctx, inv)
	p.mu.Lock()
	before := p.inventory
	p.inventory = inv
	wanted := inv.keys(!p.NoInstances)
	var end []*server
	begun := false
	for k := range wanted {
		s := p.servers[k]
		if s == nil && (!p.synced() || p.watches[k.configuration].informer.HasSynced()) {
			s = newServer(p, k)
			p.servers[k] = s
			begun = true
		}
		if s != nil {
			s.changed()
		}
	}
	for k, s := range p.servers {
		if !wanted[k] {
			delete(p.servers, k)
			end = append(end, s)
		}
	}
	p.mu.Unlock()
	p.recordRefused(before, inv)
	for _, s := range end {
		s.end(ctx)
	}
	if begun {
		p.attention.Send()
	}
	return changed
}

// watchThese watches the claims of the inventory's Configurations, and of no others.
func (p *Plugins) watchThese(ctx context.Context, inv inventory) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for configuration := range inv {
		if p.watches[configuration] != nil {
			continue
		}
		watching, stop := context.WithCancel(ctx)
		w := p.watchClaims(configuration, stop)
		p.watches[configuration] = w
		p.running.Go(func() { w.informer.RunWithContext(watching) })
		p.running.Go(func() {
			if cache.WaitFor(watching, "", w.informer.HasSyncedChecker()) {
				p.resyncs.Send()
			}
		})
	}
	for configuration, w := range p.watches {
		if inv[configuration] == nil {
			w.stop()
			delete(p.watches, configuration)
		}
	}
}

// recordRefused writes an Event about each Configuration whose uniqueScope cannot be kept, when it is
// refused first.
func (p *Plugins) recordRefused(before, now inventory) {
	for name, s := range now {
		was := before[name]
		if !s.refused || was != nil && was.refused && was.configuration.UID == s.configuration.UID {
			continue
		}
		p.Events.Eventf(s.configuration, corev1.EventTypeWarning, reasonScope,
			"Node %s gives out slots by device plugins of the kubelet, which does not say which pod they are for, so it cannot keep uniqueScope Pod: it has no %s%s. Use uniqueScope Container or Node, or nodes of another mode.",
			p.Node, assignment.ResourcePrefix, name)
	}
}
