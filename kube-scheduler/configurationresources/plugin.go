// Package configurationresources is the scheduler plugin that gives pods device
// slots. A pod asks for any device of a kind (akri.sh/<configuration>) or for
// one device (akri.sh/<instance>); the plugin finds nodes that reach enough free
// slots, picks them, and writes them into the pod with its binding.
//
// In turn: PreFilter reads the requests and narrows the nodes to those that
// reach such devices; Filter asks the ledger whether a node has the slots; Score
// prefers nodes with more of them free; PostFilter preempts pods on other nodes
// that hold slots of shared devices, which DefaultPreemption cannot; Reserve
// takes the slots, so that no other pod is offered them; Bind claims them, with
// claimMode Scheduler (claim.go, orphans.go), and sends the Binding with the
// assignment in its annotations, which the API server merges into the pod in the
// same write that sets its node. Unreserve gives the slots back.
//
// Waiting pods are woken by the book (book.go) when the ledger has gained what
// they ask for, and not by the framework's cluster events: so each event that
// could help has reached the ledger before the pod is tried again.
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
// of them share one book.
type Plugin struct {
	handle fwk.Handle
	args   config.ConfigurationResourcesArgs
	book   *book
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
		shared *book
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
			b, err := startBook(ctx, handle)
			if err != nil {
				return nil, fmt.Errorf("start plugin %s: %w", Name, err)
			}
			shared = b
		}
		informers := handle.SharedInformerFactory()
		p := &Plugin{
			handle: handle, args: *args, book: shared, ctx: ctx, signer: signer,
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
// given up the name of a resource of ours. All others the book answers by activating
// the pods that they help.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{
			Event:          fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Update},
			QueueingHintFn: binding.AfterInputChange,
		},
		{
			Event:          fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeAllocatable},
			QueueingHintFn: p.book.afterAdvertisement,
		},
		{
			Event:          fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Delete},
			QueueingHintFn: p.book.afterDeletion,
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
