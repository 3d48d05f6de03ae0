// Package configurationresources is the scheduler plugin that gives pods device
// slots. A pod asks for any device of a kind (akri.sh/<configuration>) or for
// one device (akri.sh/<instance>); the plugin finds nodes that reach enough free
// slots, picks them, and writes them into the pod with its binding.
//
// The extension points, each in the file of its name:
//
//   - prefilter.go reads the requests (request.go) and narrows the nodes to those that reach
//     such devices
//   - filter.go asks the ledger whether a node has the slots, and whether its kubelet knows
//     of them (advertised.go, nodemode.go)
//   - postfilter.go preempts pods on other nodes that hold slots of shared devices, which
//     DefaultPreemption cannot (budgets.go, evict.go)
//   - score.go prefers nodes with more of the slots free
//   - reserve.go takes the slots, so that no other pod is offered them, and gives them back
//   - bind.go claims them, with claimMode Scheduler, and sends the Binding with the
//     assignment in its annotations, which the API server merges into the pod in the same
//     write that sets its node
//
// All profiles share one slot cache (slotcache.go), which feeds the ledger from the API and
// serializes its writers under one lock:
//
//   - slotcache_feed.go, slotcache_objects.go, slotcache_claims.go, slotcache_pods.go: what
//     the API shows
//   - slotcache_snapshot.go: the nodes of a scheduling cycle
//   - slotcache_events.go: what the ledger's events are to package requeue, which has waiting
//     pods tried again; slotcache_log.go: what the log says of them
//   - nominations.go: for whom slots are kept, and how long
//   - doubleallocation.go, orphans.go: what a scheduler that ended has left
//   - waits.go, metrics.go: why pods wait
package configurationresources

import (
	"context"
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/kubeslot/kubeslot/kube-scheduler/binding"
	"github.com/kubeslot/kubeslot/kube-scheduler/claims"
	"github.com/kubeslot/kubeslot/kube-scheduler/config"
	"github.com/kubeslot/kubeslot/types/assignment/signing"
)

// Name of the plugin in a KubeSchedulerConfiguration.
const Name = "ConfigurationResources"

// Plugin implements the extension points; one exists for each profile, and all
// of them share one slot cache.
type Plugin struct {
	handle fwk.Handle
	args   config.ConfigurationResourcesArgs
	cache  *slotCache
	pods   corelisters.PodLister
	pdbs   policylisters.PodDisruptionBudgetLister
	// namespaces have the labels by which spec.allowedNamespaces selects them.
	namespaces corelisters.NamespaceLister
	signer     *signing.Signer // nil: assignments are not signed
	// claims is set with claimMode Scheduler.
	claims *claims.Writer
	// sweeping starts the search for orphaned claims, which ends with ctx.
	sweeping sync.Once
	ctx      context.Context
}

var (
	_ fwk.PreFilterPlugin     = (*Plugin)(nil)
	_ fwk.PreFilterExtensions = (*Plugin)(nil)
	_ fwk.FilterPlugin        = (*Plugin)(nil)
	_ fwk.PostFilterPlugin    = (*Plugin)(nil)
	_ fwk.PreScorePlugin      = (*Plugin)(nil)
	_ fwk.ScorePlugin         = (*Plugin)(nil)
	_ fwk.ReservePlugin       = (*Plugin)(nil)
	_ fwk.BindPlugin          = (*Plugin)(nil)
	_ fwk.EnqueueExtensions   = (*Plugin)(nil)
	_ fwk.SignPlugin          = (*Plugin)(nil)
)

// NewFactory returns the plugin's factory. Profiles that are made with the same
// factory share one ledger, since they give out the same slots. The options are read
// when the first profile is made, so that flags may set them until then.
func NewFactory(o *binding.Options) frameworkruntime.PluginFactory {
	var (
		mu     sync.Mutex
		shared *slotCache
	)
	return func(ctx context.Context, obj runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		args, ok := obj.(*config.ConfigurationResourcesArgs)
		if !ok {
			return nil, fmt.Errorf("plugin %s: want arguments of kind ConfigurationResourcesArgs, got %T", Name, obj)
		}
		args.SetDefaults()
		if err := args.Validate(); err != nil {
			return nil, fmt.Errorf("plugin %s of profile %s: %w", Name, handle.ProfileName(), err)
		}
		mu.Lock()
		defer mu.Unlock()
		signer, err := o.Signer()
		if err != nil {
			return nil, err
		}
		if shared == nil {
			b, err := startSlotCache(ctx, handle)
			if err != nil {
				return nil, fmt.Errorf("start plugin %s: %w", Name, err)
			}
			shared = b
		}
		informers := handle.SharedInformerFactory()
		p := &Plugin{
			handle: handle, args: *args, cache: shared, ctx: ctx, signer: signer,
			pods: informers.Core().V1().Pods().Lister(),
			pdbs: informers.Policy().V1().PodDisruptionBudgets().Lister(), namespaces: informers.Core().V1().Namespaces().Lister(),
		}
		if args.ClaimMode == config.ClaimByScheduler {
			client, err := claims.NewClient(shared.config)
			if err != nil {
				return nil, fmt.Errorf("start plugin %s: make a client for claims: %w", Name, err)
			}
			p.claims = &claims.Writer{Client: client, Seen: shared.claimSeen, Gone: shared.claimGone}
		}
		shared.mu.Lock()
		defer shared.mu.Unlock()
		shared.profiles[handle.ProfileName()] = &p.args
		shared.evict = p.evictLosers // any profile's will do
		return p, nil
	}
}

// Name implements fwk.Plugin.
func (*Plugin) Name() string { return Name }

// EventsToRegister registers the events that matter apart from the ledger: the
// author corrected the annotation for which the pod was refused, a node advertises
// more, a pod no longer counts against what a node advertises, or a DeviceClass has
// given up the name of a resource of ours. All others the slot cache answers by activating
// the pods that they help.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{
			Event:          fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Update},
			QueueingHintFn: binding.AfterInputChange,
		},
		{
			Event:          fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeAllocatable},
			QueueingHintFn: p.cache.afterAdvertisement,
		},
		{
			Event:          fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Delete},
			QueueingHintFn: p.cache.afterDeletion,
		},
		{
			// With the DRA feature off, the framework watches none.
			Event:          fwk.ClusterEvent{Resource: fwk.DeviceClass, ActionType: fwk.Update | fwk.Delete},
			QueueingHintFn: afterDeviceClassChange,
		},
	}, nil
}

// SignPod keeps pods that ask for slots out of opportunistic batching, which
// would reuse one pod's filter results for the next after slots were taken.
func (*Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if requestsSlots(pod) {
		return nil, fwk.NewStatus(fwk.Unschedulable, "requests device slots")
	}
	return nil, nil
}
