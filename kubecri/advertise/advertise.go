// Package advertise writes what devices a node has: its slots as extended resources in
// node.status, and what its device plugins report in the node's KubeDevice/DeviceInfo
// annotation and in labels.
//
// The amounts are for people and for the kubelet's admission. The scheduler decides
// which pod gets a slot, from DeviceSlices.
package advertise

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/kubecri/metrics"
	"github.com/kubeslot/kubeslot/kubecri/nodewriter"
	"github.com/kubeslot/kubeslot/types"
	akriinformers "github.com/kubeslot/kubeslot/types/client/informers/externalversions/akri/v0"
	kubeslotinformers "github.com/kubeslot/kubeslot/types/client/informers/externalversions/kubeslot/v1alpha1"
)

const (
	// debounce gathers changes that come together, such as the slices of many
	// Configurations, and is well below the second that a new device may take.
	debounce = 100 * time.Millisecond

	// lowerAfter is how long an amount stands after it is no longer needed.
	// A pod that was bound before is known by then: it is there in milliseconds
	// while our watch is up, and a watch that broke is tried again within the 30 s
	// that client-go waits at most between two attempts.
	lowerAfter = 30 * time.Second
)

// Devices says what the device plugins know of the node, as far as they have said so,
// at once. KubeCap and KubeAlloc are set in node.status. While settled is false, what
// the node says already is kept beside it. What is returned is the caller's.
type Devices func() (info *types.NodeInfo, settled bool)

// Reached says how many devices of a Configuration with spec.discovery the node
// reaches; false while that is not known.
type Reached func(configuration string) (devices int, known bool)

// Labels says which labels the device plugins want on the Node. While settled is false, those that
// are there already are kept beside them. What is returned is the caller's.
type Labels func() (labels map[string]string, settled bool)

// Config is what an Advertiser needs. All but Metrics, Devices, Labels, Reached and Clock is
// required.
type Config struct {
	// Node writes what is advertised, and the condition that the node has more than it may advertise.
	Node *nodewriter.Writer
	// Pods and Slices need to hold no more than this node's (field selectors spec.nodeName),
	// Configurations those of all namespaces. Whoever made the informers starts
	// them, after New.
	Pods           coreinformers.PodInformer
	Slices         kubeslotinformers.DeviceSliceInformer
	Configurations akriinformers.ConfigurationInformer
	// Reached is asked at each look at the node. Without it no Configuration with
	// spec.discovery is advertised.
	Reached Reached
	// Devices is asked at each look at the node.
	Devices Devices
	// Labels is asked at each look at the node.
	Labels  Labels
	Metrics *metrics.Metrics
	Clock   clock.PassiveClock
}

// Advertiser keeps one node's status and annotation.
type Advertiser struct {
	config     Config
	lowerAfter time.Duration
	// logged are the resources held beyond what exists, as last logged.
	logged []held
	// foreign are resources that device plugins have and others advertise, as last
	// logged.
	foreign []types.ResourceName
	// foreignLabels are labels that device plugins want and the Node has from others, as last logged.
	foreignLabels []string
	// withheld are resources beyond what a node may advertise, as last logged.
	withheld []types.ResourceName
	// decreases are those that the last plan left pending.
	decreases pendingDecreases
}

// New returns an Advertiser, which is a part of the Node's writer.
func New(config Config) (*Advertiser, error) {
	if config.Node == nil || config.Pods == nil || config.Slices == nil || config.Configurations == nil {
		return nil, errors.New("advertiser: the Node's writer and the informers are required")
	}
	if config.Reached == nil {
		config.Reached = func(string) (int, bool) { return 0, false }
	}
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	a := &Advertiser{config: config, lowerAfter: lowerAfter}
	config.Node.Add("resources", a.plan, a.watch()...)
	if config.Labels != nil {
		config.Node.Add("labels", a.planLabels) // a part of its own: a label that is refused keeps no resource back
	}
	return a, nil
}

// plan is a nodewriter.Plan: it compares the node with what it has.
func (a *Advertiser) plan(ctx context.Context, node *corev1.Node) (nodewriter.Patch, time.Duration, error) {
	pods, _ := a.config.Pods.Lister().List(labels.Everything()) // from memory, as all of these
	configurations, _ := a.config.Configurations.Lister().List(labels.Everything())
	reported, _ := a.config.Slices.Lister().List(labels.Everything())
	slots := countSlots(configurations, reported, node, a.config.Reached)
	info, settled := types.NewNodeInfoWithName(node.Name), true
	if a.config.Devices != nil {
		info, settled = a.config.Devices()
	}
	p := plan(view{node: node, devices: info, settled: settled, slots: slots, byAge: namesByAge(configurations),
		pods: pods, decreases: a.decreases, now: a.config.Clock.Now(), lowerAfter: a.lowerAfter})
	a.decreases = p.decreases
	a.logChanges(ctx, p.kept, p.foreign)
	a.sayWithheld(ctx, node, p.withheld)
	if p.patch.IsZero() {
		a.config.Metrics.Advertised(slots)
	}
	return p.patch, p.recheck, p.notWritten
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
	if c, need := condition(node, withheld); need {
		a.config.Node.Set(c)
	}
	if len(withheld) > 0 && !slices.Equal(withheld, a.withheld) {
		klog.FromContext(ctx).Error(nil, "The node has more resources than it may advertise: new pods get none of those that are withheld",
			"withheld", len(withheld), "resources", joined(withheld), "mostSlots", MaxSlotResources, "mostOfPlugins", MaxPluginResources)
	}
	a.withheld = withheld
}
