package deviceplugins

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// nodeInfoOf reads what a node has: its annotation, which may be missing, and its
// status. An error means that nobody can say what the node has.
func nodeInfoOf(node *v1.Node) (*types.NodeInfo, error) {
	info, err := assignment.DecodeNode(node.Annotations)
	if err != nil {
		return nil, err
	}
	if info == nil {
		info = &types.NodeInfo{}
	}
	for what, list := range map[string]types.ResourceList{"capacity": info.Capacity, "allocatable": info.Allocatable} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			if list[name] < 0 {
				return nil, fmt.Errorf("node annotation %s: %s of %q is %d: an amount cannot be negative", assignment.Annotation, what, name, list[name])
			}
		}
	}
	info.Name = node.Name
	info.KubeCap, info.KubeAlloc = amounts(node.Status.Capacity), amounts(node.Status.Allocatable)
	return info, nil
}

// amounts are whole units, rounded up.
func amounts(from v1.ResourceList) types.ResourceList {
	to := make(types.ResourceList, len(from))
	for name, q := range from {
		to[types.ResourceName(name)] = q.Value()
	}
	return to
}

// sameDevices reports whether nothing has changed that nodeInfoOf reads.
func sameDevices(a, b *v1.Node) bool {
	return a.Annotations[assignment.Annotation] == b.Annotations[assignment.Annotation] &&
		apiequality.Semantic.DeepEqual(a.Status.Capacity, b.Status.Capacity) &&
		apiequality.Semantic.DeepEqual(a.Status.Allocatable, b.Status.Allocatable)
}
