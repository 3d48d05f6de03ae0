package admit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/kubecri/inject"
	"github.com/kubeslot/kubeslot/kubecri/soplugins"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// gives reports whether a resource of node.status is one that the device plugins
// of this node give out.
type gives func(types.ResourceName) bool

// plugged returns what a container asks of device plugins: in the annotation, where
// its author may ask for anything, and in its spec, where it is known, for what the
// plugins of this node give out. Sorted; of an annotation that cannot be read,
// nothing.
func plugged(annotations map[string]string, spec *corev1.Pod, container string, gives gives) []types.ResourceName {
	asked := map[types.ResourceName]bool{}
	if info, err := assignment.DecodePod(annotations); err == nil && info != nil {
		if c := info.GetContainerInPod(container); c != nil {
			for _, name := range soplugins.Asked(c) {
				asked[name] = true
			}
		}
	}
	if spec != nil {
		for name, n := range specRequests(spec, container) {
			if n > 0 && gives(name) {
				asked[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(asked))
}

// ofPod returns the assignment with what is not in it: the pod's namespace and UID, and where the
// pod's spec is known each container's spec.resources.requests, which plugins of KubeDevice expect.
func ofPod(info *types.PodInfo, pod claims.Pod, spec *corev1.Pod) *types.PodInfo {
	info = info.Clone()
	info.Namespace, info.UID = pod.Namespace, pod.UID
	if spec == nil {
		return info
	}
	for _, containers := range []map[string]types.ContainerInfo{info.InitContainers, info.RunningContainers} {
		for name, c := range containers {
			c.KubeRequests = specRequests(spec, name)
			containers[name] = c
		}
	}
	return info
}

// use lets the container have the devices of plugins that it was assigned, unless another pod's has them.
// It waits until the plugins have said what the node has, or were tried.
func (a *Admitter) use(ctx context.Context, c Container, e entitlement) (*user, error) {
	if e.assigned == nil || a.Plugins == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.DeviceTimeout)
	defer cancel()
	a.Plugins.Tried(ctx)
	node, _ := a.Plugins.NodeInfo()
	return a.inUse.begin(ctx, c, e.assigned.GetContainerInPod(c.Name), node)
}

// pluginEdits asks the device plugins for their part in the entitlement.
func (a *Admitter) pluginEdits(ctx context.Context, c Container, e entitlement) ([]inject.Edits, error) {
	if e.assigned == nil {
		return nil, nil
	}
	edits, err := a.Plugins.Allocate(ctx, e.assigned, c.Name)
	if errors.Is(err, soplugins.ErrNoPlugin) {
		return nil, claims.Refusef("%v", err)
	}
	if given := pluginDevices(e, c.Name); err == nil && len(given) > 0 {
		edits = append(edits, soplugins.Mark(given))
	}
	return edits, err
}

// AllNamespaces in VariableNamespaces is every namespace.
const AllNamespaces = "*"

// withhold keeps the container from asking the runtime for devices that it was not
// assigned. given are the edits of device plugins.
func (a *Admitter) withhold(c Container, given []inject.Edits) []inject.Edits {
	if slices.Contains(a.VariableNamespaces, c.Pod.Namespace) || slices.Contains(a.VariableNamespaces, AllNamespaces) {
		return nil
	}
	return a.Plugins.Withhold(c.Requested, given)
}

// pluginDevices are the node's resources that the container was assigned, but for slots.
func pluginDevices(e entitlement, container string) []string {
	if e.assigned == nil {
		return nil
	}
	c := e.assigned.GetContainerInPod(container)
	if c == nil {
		return nil
	}
	var all []string
	for _, name := range soplugins.Assigned(c) {
		all = append(all, string(name))
	}
	return all
}

// names lists resources for a message, slots by their full names.
func names(slots map[string]int64, plugged []types.ResourceName) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(slots)) {
		all = append(all, fmt.Sprintf("%s%.256s", assignment.ResourcePrefix, name))
	}
	for _, name := range plugged {
		all = append(all, fmt.Sprintf("%.256s", name))
	}
	return claims.Some(all)
}
