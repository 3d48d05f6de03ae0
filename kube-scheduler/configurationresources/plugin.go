// Package configurationresources is the scheduler plugin that gives pods device
// slots. A pod asks for any device of a kind (akri.sh/<configuration>) or for
// one device (akri.sh/<instance>); the plugin finds nodes that reach enough free
// slots, picks them, and writes them into the pod with its binding.
//
// The extension points, each in the file of its name:
//
//   - prefilter.go reads the requests, leaves to DRA what is its (deviceclass.go), refuses those that no node can
//     meet (namespaces.go, deviceclass.go, allocator.go), and narrows the nodes to those that reach such devices
//   - filter.go asks the slot cache whether a node has the slots, and whether its kubelet knows
//     of them
//   - postfilter.go has package preemption make pods on other nodes give up slots of shared
//     devices, which DefaultPreemption cannot
//   - grouppostfilter.go does so for a PodGroup
//   - score.go prefers nodes with more of the slots free: PreScore computes all scores
//   - reserve.go takes the slots, so that no other pod is offered them, and gives them back
//   - bind.go claims them, with claimMode Scheduler, and sends the Binding with the
//     assignment in its annotations, which the API server merges into the pod in the same
//     write that sets its node
//   - hints.go says which events of the framework help a waiting pod; package requeue answers
//     those of the ledger
//
// The plugin has no state but what it writes into a scheduling cycle: what it knows of slots is
// in the slot cache, which all profiles share.
package configurationresources

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	coreinformers "k8s.io/client-go/informers/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	restclient "k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	upstreampreemption "k8s.io/kubernetes/pkg/scheduler/framework/preemption"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/kube-scheduler/allocator"
	"github.com/kubeslot/kubeslot/kube-scheduler/binding"
	"github.com/kubeslot/kubeslot/kube-scheduler/claims"
	"github.com/kubeslot/kubeslot/kube-scheduler/config"
	"github.com/kubeslot/kubeslot/kube-scheduler/informer"
	"github.com/kubeslot/kubeslot/kube-scheduler/preemption"
	"github.com/kubeslot/kubeslot/kube-scheduler/recovery"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotcache"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotrequest"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	"github.com/kubeslot/kubeslot/types/client/restored"
)

// Name of the plugin in a KubeSchedulerConfiguration.
const Name = "ConfigurationResources"

// Plugin implements the extension points; one exists for each profile, and all
// of them share one slot cache.
type Plugin struct {
	handle fwk.Handle
	args   config.ConfigurationResourcesArgs
	cache  *slotcache.Cache
	pods   corelisters.PodLister
	// namespaces have the labels by which spec.allowedNamespaces selects them.
	namespaces corelisters.NamespaceLister
	binder     *binding.Binder
	preemption *preemption.Evaluator
	groups     *upstreampreemption.PodGroupEvaluator // nil where there are none
	claims     *claims.Writer                        // nil with claimMode Node
}

var (
	_ fwk.PreFilterPlugin          = (*Plugin)(nil)
	_ fwk.PreFilterExtensions      = (*Plugin)(nil)
	_ fwk.FilterPlugin             = (*Plugin)(nil)
	_ fwk.PostFilterPlugin         = (*Plugin)(nil)
	_ fwk.PodGroupPostFilterPlugin = (*Plugin)(nil)
	_ fwk.PreScorePlugin           = (*Plugin)(nil)
	_ fwk.ScorePlugin              = (*Plugin)(nil)
	_ fwk.ReservePlugin            = (*Plugin)(nil)
	_ fwk.BindPlugin               = (*Plugin)(nil)
	_ fwk.EnqueueExtensions        = (*Plugin)(nil)
	_ fwk.SignPlugin               = (*Plugin)(nil)
)

// Factory makes the plugin of each profile. Those that it makes share one slot cache, since
// they give out the same slots, and one writer of claims.
type Factory struct {
	// Options are read when the first profile is made, so that flags may set them until then.
	Options *binding.Options
	// ObjectionTime is for how long after its start a scheduler with claimMode Scheduler writes no
	// claims: restored.ObjectionTime, and 0 where no node runs.
	ObjectionTime time.Duration

	mu     sync.Mutex
	api    *restclient.Config // for all clients: it has the guard of restored backups
	cache  *slotcache.Cache
	claims *claims.Writer // nil until a profile has claimMode Scheduler
}

// New makes the plugin of a profile. It is a runtime.PluginFactory.
func (f *Factory) New(ctx context.Context, obj runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	args, ok := obj.(*config.ConfigurationResourcesArgs)
	if !ok {
		return nil, fmt.Errorf("plugin %s: want arguments of kind ConfigurationResourcesArgs, got %T", Name, obj)
	}
	args.SetDefaults()
	if err := args.Validate(); err != nil {
		return nil, fmt.Errorf("plugin %s of profile %s: %w", Name, handle.ProfileName(), err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	signer, err := f.Options.Signer()
	if err != nil {
		return nil, err
	}
	logger, core := klog.FromContext(ctx).WithName(Name), handle.SharedInformerFactory().Core().V1()
	if f.cache == nil {
		binding.RegisterMetrics()
		claims.RegisterMetrics()
		if err := trimCaches(core); err != nil {
			return nil, fmt.Errorf("start plugin %s: %w", Name, err)
		}
		f.api = restclient.CopyConfig(handle.KubeConfig())
		f.api.ContentType, f.api.AcceptContentTypes = "application/json", "application/json" // CRDs have no protobuf
		guard := restored.New(f.api)
		client, err := versioned.NewForConfig(f.api)
		if err != nil {
			return nil, fmt.Errorf("start plugin %s: make a client for akri.sh and kubeslot.io: %w", Name, err)
		}
		if f.cache, err = slotcache.Start(ctx, logger, handle, client, guard); err != nil {
			return nil, fmt.Errorf("start plugin %s: %w", Name, err)
		}
		if handle.SharedDRAManager() != nil { // with the feature off nothing is handed over
			writer := &allocator.Writer{Client: client, Handovers: f.cache.Handovers}
			go writer.Run(klog.NewContext(ctx, logger))
		}
		evictor := &recovery.Evictor{Logger: logger, Client: handle.ClientSet(), Recorder: handle.EventRecorder(),
			DoubleAllocations: f.cache.DoubleAllocations}
		go evictor.Run(ctx)
	}
	p := &Plugin{
		handle: handle, args: *args, cache: f.cache, pods: core.Pods().Lister(), namespaces: core.Namespaces().Lister(),
		binder: &binding.Binder{Handle: handle, Signer: signer, Clock: clock.RealClock{},
			NRIPlugin: binding.NRIPluginOf(core.Nodes().Lister())},
		preemption: &preemption.Evaluator{PluginName: Name, Handle: handle, Cache: f.cache, Pods: core.Pods().Lister(),
			PDBs: handle.SharedInformerFactory().Policy().V1().PodDisruptionBudgets().Lister()},
		groups: groupPreemption(handle),
	}
	f.cache.AddProfile(handle.ProfileName(), &p.args)
	if args.ClaimMode != config.ClaimByScheduler {
		return p, nil
	}
	if f.claims == nil {
		f.cache.AwaitObjectionsFor(f.ObjectionTime)
		client, err := claims.NewClient(f.api)
		if err != nil {
			return nil, fmt.Errorf("start plugin %s: make a client for claims: %w", Name, err)
		}
		f.claims = &claims.Writer{Client: client, Clock: clock.RealClock{}}
	}
	p.claims = f.claims
	return p, nil
}

// trimCaches has the framework's informers keep less, which makes up for what the slot cache keeps. Upstream's
// scheduler keeps the managed fields of nodes.
func trimCaches(core coreinformers.Interface) error {
	return errors.Join(core.Pods().Informer().SetTransform(informer.Trim),
		core.Nodes().Informer().SetTransform(informer.Trim))
}

// Lead tells the plugins that the scheduler leads, which the framework does not: it is to be
// called once, when the scheduler begins to schedule, be there pods or not. What a scheduler
// before it has left is cleaned up then.
func (f *Factory) Lead() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cache != nil { // some profile has the plugin on
		f.cache.Lead()
	}
}

// Name implements fwk.Plugin.
func (*Plugin) Name() string { return Name }

// SignPod keeps pods that ask for slots out of opportunistic batching, which
// would reuse one pod's filter results for the next after slots were taken.
func (*Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if slotrequest.Any(pod) {
		return nil, fwk.NewStatus(fwk.Unschedulable, "requests device slots")
	}
	return nil, nil
}
