package config

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubeschedulerv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
)

// ConfigurationResourcesArgs configures the plugin ConfigurationResources.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type ConfigurationResourcesArgs struct {
	metav1.TypeMeta `json:",inline"`

	// Strategy says which Instance a slot is taken from: Spread (default), the
	// one with the most free slots, or Pack, the one with the fewest. Nodes are
	// preferred likewise.
	Strategy ledger.Strategy `json:"strategy,omitempty"`

	// ClaimMode says who creates the SlotClaims of a pod, and when: Node (default),
	// the node's kubecri before it creates a container, or Scheduler, this scheduler
	// before it binds the pod. The latter is for clusters where others give out slots
	// too; it costs one write for each slot of a pod and needs the rights of
	// deploy/scheduler-claims.
	ClaimMode ClaimMode `json:"claimMode,omitempty"`

	// NodeScore weighs what makes a node better for a pod.
	NodeScore NodeScore `json:"nodeScore,omitempty"`

	// NominationTimeout is how long slots are kept for a pod that preempted
	// others, from their eviction until it is bound. Default 5m; at least 1s.
	NominationTimeout metav1.Duration `json:"nominationTimeout,omitempty"`
}

// ClaimMode is Node or Scheduler.
type ClaimMode string

const (
	// ClaimByNode leaves claims to the node.
	ClaimByNode ClaimMode = "Node"
	// ClaimByScheduler claims before the bind.
	ClaimByScheduler ClaimMode = "Scheduler"
)

// NodeScore holds weights from 0 to 100, of which at least one is not 0.
type NodeScore struct {
	// FreeSlots prefers nodes with more of the requested slots free (Spread), or
	// with fewer (Pack). Default 1.
	FreeSlots *int32 `json:"freeSlots,omitempty"`
	// LocalDevices prefers nodes with devices of their own, over those that use
	// shared devices, which other nodes could use. Default 1.
	LocalDevices *int32 `json:"localDevices,omitempty"`
}

const maxWeight = 100

// SetDefaults fills in what was left out.
func (a *ConfigurationResourcesArgs) SetDefaults() {
	if a.Strategy == "" {
		a.Strategy = ledger.Spread
	}
	if a.ClaimMode == "" {
		a.ClaimMode = ClaimByNode
	}
	if a.NominationTimeout.Duration == 0 {
		a.NominationTimeout.Duration = 5 * time.Minute
	}
	one := int32(1)
	if a.NodeScore.FreeSlots == nil {
		a.NodeScore.FreeSlots = &one
	}
	if a.NodeScore.LocalDevices == nil {
		a.NodeScore.LocalDevices = &one
	}
}

// Validate checks defaulted arguments.
func (a *ConfigurationResourcesArgs) Validate() error {
	var errs field.ErrorList
	if a.Strategy != ledger.Spread && a.Strategy != ledger.Pack {
		errs = append(errs, field.NotSupported(field.NewPath("strategy"), a.Strategy, []ledger.Strategy{ledger.Spread, ledger.Pack}))
	}
	if a.ClaimMode != ClaimByNode && a.ClaimMode != ClaimByScheduler {
		errs = append(errs, field.NotSupported(field.NewPath("claimMode"), a.ClaimMode, []ClaimMode{ClaimByNode, ClaimByScheduler}))
	}
	if a.NominationTimeout.Duration < time.Second {
		errs = append(errs, field.Invalid(field.NewPath("nominationTimeout"), a.NominationTimeout.Duration.String(), "must be at least 1s"))
	}
	path := field.NewPath("nodeScore")
	for name, weight := range map[string]int32{"freeSlots": *a.NodeScore.FreeSlots, "localDevices": *a.NodeScore.LocalDevices} {
		if weight < 0 || weight > maxWeight {
			errs = append(errs, field.Invalid(path.Child(name), weight, fmt.Sprintf("must be from 0 to %d", maxWeight)))
		}
	}
	if *a.NodeScore.FreeSlots == 0 && *a.NodeScore.LocalDevices == 0 {
		errs = append(errs, field.Invalid(path, "0, 0", "one weight must not be 0; to turn scoring off, disable the plugin at the score extension point"))
	}
	return errs.ToAggregate()
}

// AddToScheme registers the arguments with a scheduler configuration scheme.
// One Go type stands for all versions, since there is but one.
func AddToScheme(scheme *runtime.Scheme) {
	scheme.AddKnownTypes(kubeschedulerv1.SchemeGroupVersion, &ConfigurationResourcesArgs{})
	scheme.AddKnownTypes(config.SchemeGroupVersion, &ConfigurationResourcesArgs{})
	scheme.AddTypeDefaultingFunc(&ConfigurationResourcesArgs{}, func(obj any) {
		obj.(*ConfigurationResourcesArgs).SetDefaults()
	})
}
