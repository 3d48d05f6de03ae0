package instances

import (
	"fmt"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/controller/inventory"
	"github.com/kubeslot/kubeslot/controller/limits"
	"github.com/kubeslot/kubeslot/controller/naming"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// step is the next write for an Instance. The zero step is none.
type step struct {
	verb   verb
	want   *akriv0.Instance // create, patch
	reason string           // why it is not as it should be, or left as it is
}

type verb string

const (
	create verb = "create"
	patch  verb = "patch"
	remove verb = "delete"
	// wait leaves the Instance as it is, to be looked at again later.
	wait verb = "wait"
)

// decide returns the step that brings an Instance nearer to what it should be; the
// next is decided when this one is done. existing is nil when there is none.
// lacksSlices says which nodes have a Node object and no DeviceSlice. room is within the
// Configuration's spec.maxInstances.
func decide(key types.NamespacedName, d inventory.Device, existing *akriv0.Instance, room *limits.Room, lacksSlices func(node string) bool) step {
	if existing == nil {
		if d.Reported == nil || d.Configuration == nil || d.Configuration.Namespace != key.Namespace {
			return step{}
		}
		if !room.Take("", 1) {
			room.Withhold(1)
			return step{}
		}
		return step{create, view(key, d, nil), "the device was found"}
	}
	if existing.DeletionTimestamp != nil { // made anew once it is gone, if need be
		want := existing.DeepCopy()
		want.Finalizers = finalizersOfGC(existing.Finalizers)
		if len(want.Finalizers) == len(existing.Finalizers) {
			return step{}
		}
		return step{patch, want, "it is being deleted, and somebody's finalizers are in the way"}
	}
	switch c := d.Configuration; {
	case c == nil:
		return step{remove, nil, "its Configuration does not exist, or is being deleted"}
	case c.Namespace != key.Namespace:
		return step{remove, nil, fmt.Sprintf("Configuration %s/%s has the name", c.Namespace, c.Name)}
	case existing.Spec.ConfigurationName != c.Name:
		return step{remove, nil, "it names another Configuration, which cannot be changed"}
	case OfFormer(existing, c):
		return step{remove, nil, "it is of a Configuration of the name that was deleted"}
	}
	if i := NotUpgraded(existing, lacksSlices); i >= 0 {
		return step{wait, nil, fmt.Sprintf("it is from before DeviceSlices, and node %s of its nodes has none yet: upgrade kubecri there, or delete the Instance", existing.Spec.Nodes[i])}
	}
	if d.Reported == nil && len(d.Claims) == 0 {
		return step{remove, nil, "no node sees the device"}
	}
	want := view(key, d, existing)
	if apiequality.Semantic.DeepEqual(existing, want) {
		return step{}
	}
	return step{patch, want, "it differs from what is reported and claimed"}
}

// OfFormer reports whether the Instance is of a Configuration that was deleted, and made again under its name. Such an
// Instance is deleted, as the garbage collector would if it came first, so that brokers start again.
func OfFormer(existing *akriv0.Instance, c *akriv0.Configuration) bool {
	owner := metav1.GetControllerOf(existing)
	return owner != nil && owner.UID != c.UID && naming.SameObject(*owner, naming.OwnedBy("Configuration", c))
}

// NotUpgraded returns the index, in spec.nodes, of the first node that wrote to the Instance itself
// and may still do so, as Akri's agents and kubecris before DeviceSlices do; -1 when
// there is none. An Instance that the controller has written has a nodeCount or no
// nodes.
func NotUpgraded(existing *akriv0.Instance, lacksSlices func(node string) bool) int {
	if existing.Status.NodeCount != 0 {
		return -1
	}
	return slices.IndexFunc(existing.Spec.Nodes, lacksSlices)
}
