// Package advertise writes what devices a node has: its slots as extended resources in
// node.status, and what its device plugins report in the node's KubeDevice/DeviceInfo
// annotation.
//
// The amounts are for people and for the kubelet's admission. The scheduler decides
// which pod gets a slot, from DeviceSlices.
package advertise

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/kubecri/metrics"
	"github.com/kubeslot/kubeslot/kubecri/nodecondition"
	"github.com/kubeslot/kubeslot/types"
	akriinformers "github.com/kubeslot/kubeslot/types/client/informers/externalversions/akri/v0"
	kubeslotinformers "github.com/kubeslot/kubeslot/types/client/informers/externalversions/kubeslot/v1alpha1"
)

const (
	// DefaultInterval is how often the node is looked at without any change.
	DefaultInterval = time.Minute

	// debounce gathers changes that come together, such as the slices of many
	// Configurations, and is well below the second that a new device may take.
	debounce = 100 * time.Millisecond

	// DefaultLowerAfter is how long an amount stands after it is no longer needed.
	// A pod that was bound before is known by then: it is there in milliseconds
	// while our watch is up, and a watch that broke is tried again within the 30 s
	// that client-go waits at most between two attempts.
	DefaultLowerAfter = 30 * time.Second

	minRetry = 100 * time.Millisecond
	maxRetry = 10 * time.Second
)

// Devices says what the device plugins know of the node, as far as they have said so,
// at once. KubeCap and KubeAlloc are set in node.status. While settled is false, what
// the node says already is kept beside it. What is returned is the caller's.
type Devices func() (info *types.NodeInfo, settled bool)

// Reached says how many devices of a Configuration with spec.discovery the node
// reaches; false while that is not known.
type Reached func(configuration string) (devices int, known bool)

// Config is what an Advertiser needs. All but Interval, LowerAfter, Metrics,
// Conditions, Devices, Reached and Clock is required.
type Config struct {
	NodeName string
	// Client patches the node's status.
	Client kubernetes.Interface
	// Nodes and Pods need to hold no more than this node and its pods (field
	// selectors metadata.name and spec.nodeName), Slices no more than this node's,
	// Configurations those of all namespaces. Whoever made the informers starts
	// them, after New.
	Nodes          coreinformers.NodeInformer
	Pods           coreinformers.PodInformer
	Slices         kubeslotinformers.DeviceSliceInformer
	Configurations akriinformers.ConfigurationInformer
	// Reached is asked at each look at the node. Without it no Configuration with
	// spec.discovery is advertised.
	Reached Reached
	// Devices is asked at each look at the node.
	Devices Devices
	// Interval is DefaultInterval when 0.
	Interval time.Duration
	// LowerAfter is DefaultLowerAfter when 0.
	LowerAfter time.Duration
	Metrics    *metrics.Metrics
	// Conditions, if set, says on the node that it has more than it may advertise.
	Conditions *nodecondition.Reporter
	Clock      clock.WithTicker
}

func (c *Config) validate() error {
	var errs []error
	require := func(ok bool, what string) {
		if !ok {
			errs = append(errs, errors.New(what))
		}
	}
	require(c.NodeName != "", "NodeName is missing")
	require(c.Client != nil, "Client is missing")
	require(c.Nodes != nil, "Nodes is missing")
	require(c.Pods != nil, "Pods is missing")
	require(c.Slices != nil, "Slices is missing")
	require(c.Configurations != nil, "Configurations is missing")
	require(c.Interval >= 0, "Interval is negative")
	require(c.LowerAfter >= 0, "LowerAfter is negative")
	return errors.Join(errs...)
}

// Advertiser keeps one node's status and annotation.
type Advertiser struct {
	config Config
	// queue holds the node's name when something has changed.
	queue  workqueue.TypedRateLimitingInterface[string]
	synced []cache.InformerSynced
	// logged are the resources held beyond what exists, as last logged.
	logged []held
	// foreign are resources that device plugins have and others advertise, as last
	// logged.
	foreign []types.ResourceName
	// withheld are resources beyond what a node may advertise, as last logged.
	withheld []types.ResourceName
	// decreases are those that the last plan left pending.
	decreases pendingDecreases
	// sent is the last patch that was accepted, and sentTo the cached node that
	// it was for: until another is cached, its effect cannot be seen.
	sent   []byte
	sentTo *corev1.Node
}

// New returns an Advertiser, to be started with Run.
func New(config Config) (*Advertiser, error) {
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("advertiser: %w", err)
	}
	if config.Interval == 0 {
		config.Interval = DefaultInterval
	}
	if config.LowerAfter == 0 {
		config.LowerAfter = DefaultLowerAfter
	}
	if config.Devices == nil {
		config.Devices = func() (*types.NodeInfo, bool) { return types.NewNodeInfoWithName(config.NodeName), true }
	}
	if config.Reached == nil {
		config.Reached = func(string) (int, bool) { return 0, false }
	}
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	a := &Advertiser{
		config: config,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](minRetry, maxRetry),
			workqueue.TypedRateLimitingQueueConfig[string]{Clock: config.Clock}),
	}
	if err := a.watch(); err != nil {
		return nil, fmt.Errorf("advertiser: %w", err)
	}
	return a, nil
}

// Run works until ctx ends. It writes nothing before it has seen everything.
func (a *Advertiser) Run(ctx context.Context) {
	logger := klog.FromContext(ctx).WithName("advertiser").WithValues("node", a.config.NodeName)
	ctx = klog.NewContext(ctx, logger)
	var worker sync.WaitGroup
	defer worker.Wait()
	defer a.queue.ShutDown()
	if !cache.WaitForCacheSync(ctx.Done(), a.synced...) {
		return // ctx has ended
	}
	worker.Go(func() {
		for a.next(ctx) {
		}
	})
	wait.UntilWithContext(ctx, func(context.Context) { a.queue.Add(a.config.NodeName) }, a.config.Interval)
}

func (a *Advertiser) next(ctx context.Context) bool {
	node, shutdown := a.queue.Get()
	if shutdown {
		return false
	}
	defer a.queue.Done(node)
	if err := a.advertise(ctx); err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Trying again")
		}
		a.queue.AddRateLimited(node)
		return true
	}
	a.queue.Forget(node)
	return true
}

// advertise compares the node with what it has, and patches it if need be.
func (a *Advertiser) advertise(ctx context.Context) error {
	node, err := a.config.Nodes.Lister().Get(a.config.NodeName)
	if apierrors.IsNotFound(err) {
		return nil // its event will come when the kubelet registers it
	}
	if err != nil {
		return fmt.Errorf("read node %s: %w", a.config.NodeName, err)
	}
	pods, err := a.config.Pods.Lister().List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list the pods of node %s: %w", node.Name, err)
	}
	slots, byAge, err := a.slots(node)
	if err != nil {
		return err
	}
	info, settled := a.config.Devices()
	p, err := plan(view{node: node, devices: info, settled: settled, slots: slots, byAge: byAge, pods: pods,
		decreases: a.decreases, now: a.config.Clock.Now(), lowerAfter: a.config.LowerAfter})
	if err != nil {
		return err
	}
	a.decreases = p.decreases
	if p.recheck > 0 {
		a.queue.AddAfter(node.Name, p.recheck)
	}
	a.logChanges(ctx, p.kept, p.foreign)
	a.sayWithheld(ctx, node, p.withheld)
	if p.patch == nil || node == a.sentTo && bytes.Equal(p.patch, a.sent) {
		a.config.Metrics.Advertised(slots)
		return p.notWritten
	}
	_, err = a.config.Client.CoreV1().Nodes().Patch(ctx, node.Name,
		apitypes.MergePatchType, p.patch, metav1.PatchOptions{}, "status")
	a.config.Metrics.Patched(err)
	if err != nil {
		return errors.Join(fmt.Errorf("patch the status of node %s: %w", node.Name, err), p.notWritten)
	}
	a.sent, a.sentTo = p.patch, node
	a.config.Metrics.Advertised(slots)
	klog.FromContext(ctx).Info("Advertised what the node has", "configurations", len(slots))
	return p.notWritten
}

// logChanges logs which resources stand above what exists, and which are not ours, when
// that changes.
func (a *Advertiser) logChanges(ctx context.Context, kept []held, foreign []types.ResourceName) {
	for _, name := range foreign {
		if !slices.Contains(a.foreign, name) {
			klog.FromContext(ctx).Error(nil, "A device plugin's resource is not advertised, because the node has it from somebody else: remove the other, such as a device plugin of the kubelet",
				"resource", name)
		}
	}
	a.foreign = foreign
	for _, h := range kept {
		if !slices.Contains(a.logged, h) {
			klog.FromContext(ctx).Info("Pods hold more of a resource than there is now, so it is not taken from the node yet",
				"resource", h.resource, "exists", h.exists, "held", h.allocated)
		}
	}
	a.logged = kept
}

// sayWithheld says which resources are beyond what a node may advertise, when that changes.
func (a *Advertiser) sayWithheld(ctx context.Context, node *corev1.Node, withheld []types.ResourceName) {
	if c, need := condition(node, withheld); need && a.config.Conditions != nil {
		a.config.Conditions.Set(c)
	}
	if len(withheld) > 0 && !slices.Equal(withheld, a.withheld) {
		klog.FromContext(ctx).Error(nil, "The node has more resources than it may advertise: new pods get none of those that are withheld",
			"withheld", len(withheld), "resources", joined(withheld), "mostSlots", MaxSlotResources, "mostOfPlugins", MaxPluginResources)
	}
	a.withheld = withheld
}
