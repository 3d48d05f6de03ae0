package advertise

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/kubecri/nodewriter"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// maxAnnotations is what the API server allows all annotations of an object to
// take (apimachinery validation, TotalAnnotationSizeLimitB).
const maxAnnotations = 256 << 10

// owned are the resources, besides slots, that are kubecri's.
type owned map[corev1.ResourceName]bool

func (o owned) has(name corev1.ResourceName) bool { return isSlots(name) || o[name] }

// listed are those that the node says are kubecri's.
func listed(node *corev1.Node) owned {
	o := owned{}
	for _, name := range v1alpha1.PluginResources(node) {
		o[name] = true
	}
	return o
}

// list returns the value of v1alpha1.PluginResourcesAnnotation for what is to be in node.status.
func list(capacity types.ResourceList) string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(capacity)) {
		if !isSlots(corev1.ResourceName(name)) {
			names = append(names, string(name))
		}
	}
	return strings.Join(names, ",")
}

// amounts are what the device plugins want in node.status. Capacity and
// allocatable cannot differ there, since the kubelet makes one from the other at
// each of its updates; so the lesser is both.
func amounts(info *types.NodeInfo) types.ResourceList {
	all := types.ResourceList{}
	for name, n := range info.KubeCap {
		all[name] = n
	}
	for name, n := range info.KubeAlloc {
		if capacity, has := info.KubeCap[name]; has {
			n = min(n, capacity)
		}
		all[name] = n
	}
	maps.DeleteFunc(all, func(name types.ResourceName, _ int64) bool { return isSlots(corev1.ResourceName(name)) })
	return all
}

// takeOver removes from the amounts what the node has from somebody else, and
// returns it, sorted. A resource that stands at 0 is nobody's: so the kubelet
// leaves those of a device plugin that has gone.
func takeOver(node *corev1.Node, ours owned, amounts types.ResourceList) (foreign []types.ResourceName) {
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		has := node.Status.Capacity[corev1.ResourceName(name)]
		if !has.IsZero() && !ours[corev1.ResourceName(name)] {
			foreign = append(foreign, name)
			delete(amounts, name)
		}
	}
	return foreign
}

// keepUnsettled adds what the node says of device plugins already, and these do
// not, or not yet.
func keepUnsettled(node *corev1.Node, ours owned, info *types.NodeInfo, capacity, allocatable types.ResourceList) {
	if before, err := assignment.DecodeNode(node.Annotations); err == nil && before != nil {
		addMissing(info.Capacity, before.Capacity)
		addMissing(info.Allocatable, before.Allocatable)
		addMissing(info.Scorer, before.Scorer)
	}
	for name := range ours {
		if _, said := capacity[types.ResourceName(name)]; said {
			continue
		}
		if has, ok := node.Status.Capacity[name]; ok {
			capacity[types.ResourceName(name)] = has.Value()
		}
		if has, ok := node.Status.Allocatable[name]; ok {
			allocatable[types.ResourceName(name)] = has.Value()
		}
	}
}

func addMissing[M ~map[K]V, K comparable, V any](to, from M) {
	for name, value := range from {
		if _, has := to[name]; !has {
			to[name] = value
		}
	}
}

// annotate returns the annotations to write for what device plugins say; nil for
// none. They are none, and an error, when the node could not take them.
func annotate(node *corev1.Node, info *types.NodeInfo, capacity types.ResourceList) (map[string]*string, error) {
	text, err := assignment.EncodeNode(info)
	if err != nil {
		return nil, err
	}
	if len(text) > MaxDeviceInfo {
		return nil, fmt.Errorf("what the device plugins of node %s say would take %d bytes in its annotation %s, of %d that are allowed: have the plugins name fewer resources",
			node.Name, len(text), assignment.Annotation, MaxDeviceInfo)
	}
	change := nodewriter.Say(node.Annotations, map[string]string{
		assignment.Annotation: text, v1alpha1.PluginResourcesAnnotation: list(capacity)})
	size := 0
	for key, value := range node.Annotations {
		if _, replaced := change[key]; !replaced {
			size += len(key) + len(value)
		}
	}
	for key, value := range change {
		if value != nil {
			size += len(key) + len(*value)
		}
	}
	if size > maxAnnotations {
		return nil, fmt.Errorf("with what its device plugins say the annotations of node %s would take %d bytes, of %d that are allowed: have the plugins name fewer resources",
			node.Name, size, maxAnnotations)
	}
	return change, nil
}
