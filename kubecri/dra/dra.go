package dra

import (
	"context"
	"errors"
	"fmt"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/cdi"
	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/kubecri/crilist"
	akriinformers "github.com/kubeslot/kubeslot/types/client/informers/externalversions/akri/v0"
	informers "github.com/kubeslot/kubeslot/types/client/informers/externalversions/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

const (
	// callTimeout bounds a call of the kubelet, which waits 45 s.
	callTimeout = 30 * time.Second
	// patience is how long a ResourceClaim is tried to be prepared: the kubelet tries again only 60 to 90 s later. What
	// it takes often comes by itself: a slot that another node is about to release, an API server that restarts.
	patience = 15 * time.Second
	// retryInterval is between two tries.
	retryInterval = 500 * time.Millisecond
)

// Config is what a Driver needs. All but CDI and Clock is required.
type Config struct {
	Node string
	// Kube reads ResourceClaims, and namespaces where a Configuration selects them by labels.
	Kube kubernetes.Interface
	// Claims is the owner of the node's SlotClaims.
	Claims *claims.Claims
	// Configurations are those of all namespaces; Slices and Pods those of this node. Whoever made the informers starts
	// them, after New.
	Configurations akriinformers.ConfigurationInformer
	Slices         informers.DeviceSliceInformer
	Pods           coreinformers.PodInformer
	// Device returns the device behind an Instance, or why it cannot be used. It may wait a while.
	Device func(ctx context.Context, instance string) (discovery.Device, error)
	// Seen knows which devices the node sees.
	Seen cdi.Devices
	// CDI writes the specs; nil where kubecri writes none.
	CDI *cdi.Injector
	// Runtime says which containers run.
	Runtime crilist.Runtime
	// KubeletDirectory is the kubelet's root directory, which has plugins and plugins_registry.
	KubeletDirectory string
	// Resync is how often what the kubelet does not ask for any more is looked for.
	Resync time.Duration
	Clock  clock.WithTicker
}

// Driver is the DRA driver of a node. Safe for concurrent use.
type Driver struct {
	Config
	busy claims.Locks[types.UID] // by a ResourceClaim: one is at it at a time

	patience time.Duration
}

var _ kubeletplugin.DRAPlugin = (*Driver)(nil)

// New makes a Driver. What a former process has prepared uses its slots before Claims are run.
func New(config Config) (*Driver, error) {
	switch {
	case config.Node == "", config.KubeletDirectory == "":
		return nil, errors.New("dra: the node's name and the kubelet's directory are required")
	case config.Kube == nil, config.Claims == nil, config.Configurations == nil, config.Slices == nil,
		config.Pods == nil, config.Device == nil, config.Seen == nil, config.Runtime == nil:
		return nil, errors.New("dra: client, claims, informers, devices and runtime are required")
	case config.Resync <= 0:
		return nil, fmt.Errorf("dra: resync %s must be positive", config.Resync)
	}
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	d := &Driver{Config: config, patience: patience}
	if d.CDI != nil {
		d.CDI.DescribeClaims(d.describeAgain)
	}
	recorded, _ := d.allRecorded() // describeAgain says of which spec it cannot be read
	for _, p := range recorded {
		d.Claims.Use(p.ResourceClaimReference, p.slots())
	}
	return d, nil
}

// alone calls do as the only one who is at the ResourceClaim.
func (d *Driver) alone(ctx context.Context, claim types.UID, do func(context.Context) error) error {
	unlock, err := d.busy.Lock(ctx, claim)
	if err != nil {
		return fmt.Errorf("wait for another call for ResourceClaim %s: %w", claim, err)
	}
	defer unlock()
	return do(ctx)
}

// PrepareResourceClaims implements kubeletplugin.DRAPlugin.
func (d *Driver) PrepareResourceClaims(ctx context.Context, all []*resourceapi.ResourceClaim,
) (map[types.UID]kubeletplugin.PrepareResult, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range all {
		devices, err := d.prepare(ctx, claim)
		if err != nil {
			err = fmt.Errorf("ResourceClaim %s/%s cannot be prepared on node %s: %w", claim.Namespace, claim.Name,
				d.Node, err)
			klog.FromContext(ctx).Info("Warning: a ResourceClaim is not prepared, and its pods wait", "resourceClaim",
				klog.KObj(claim), "reason", err)
		}
		results[claim.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: err}
	}
	return results, nil
}

// UnprepareResourceClaims implements kubeletplugin.DRAPlugin.
func (d *Driver) UnprepareResourceClaims(ctx context.Context,
	all []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	results := map[types.UID]error{}
	for _, claim := range all {
		err := d.alone(ctx, claim.UID, func(ctx context.Context) error {
			return d.unprepare(ctx, v1alpha1.ResourceClaimReference{Namespace: claim.Namespace, Name: claim.Name,
				UID: claim.UID})
		})
		if err != nil {
			err = fmt.Errorf("ResourceClaim %s/%s cannot be unprepared on node %s: %w", claim.Namespace, claim.Name,
				d.Node, err)
			klog.FromContext(ctx).Error(err, "The slots of a ResourceClaim are not released yet")
		}
		results[claim.UID] = err
	}
	return results, nil
}

// HandleError implements kubeletplugin.DRAPlugin. Nothing of it ends kubecri, which does much else: the
// kubelet calls again.
func (d *Driver) HandleError(ctx context.Context, err error, msg string) {
	utilruntime.HandleErrorWithContext(ctx, err, msg)
}
