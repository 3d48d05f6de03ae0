package binding

import (
	"cmp"
	"encoding/json"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	corelisters "k8s.io/client-go/listers/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// requiredPlugins is the annotation by which a runtime's default NRI validator creates no
// container without the plugins that it names (containerd/nri, plugins/default-validator). For
// one container "/container.<name>" follows, for the whole pod "/pod" or nothing; the first of
// these that is there counts.
const requiredPlugins = "required-plugins.noderesource.dev"

// NRIPluginOf returns the name of the NRI plugin that gives containers on a node their devices,
// as the node says it; "" for none.
func NRIPluginOf(nodes corelisters.NodeLister) func(node string) string {
	return func(name string) string {
		node, err := nodes.Get(name)
		if err != nil { // it is gone, and the Binding will fail
			return ""
		}
		return node.Annotations[v1alpha1.NRIPluginAnnotation]
	}
}

// requirePlugin adds to a Binding's annotations that the plugin is required for the containers
// that get devices, beside what the pod's author requires. NRI fails open: without
// it the runtime creates containers without their devices while the plugin is away. Where the
// runtime does not validate, nothing comes of it.
func requirePlugin(annotations map[string]string, pod *v1.Pod, info *types.PodInfo, plugin string) {
	if plugin == "" {
		return
	}
	// By what the author requires: that may take long to read, and many containers share it.
	lists := map[string]string{}
	for _, containers := range []map[string]types.ContainerInfo{info.InitContainers, info.RunningContainers} {
		for name, c := range containers {
			if len(c.AllocateFrom) == 0 && len(c.DevRequests) == 0 {
				continue
			}
			key := requiredPlugins + "/container." + name
			if len(validation.IsQualifiedName(key)) > 0 { // too long a name
				key = requiredPlugins + "/pod"
			}
			before := cmp.Or(annotations[key], pod.Annotations[requiredPlugins+"/container."+name],
				pod.Annotations[requiredPlugins+"/pod"], pod.Annotations[requiredPlugins]) // the first counts
			if lists[before] == "" {
				lists[before] = withPlugin(before, plugin)
			}
			annotations[key] = lists[before]
		}
	}
}

// withPlugin is the list with the plugin. A list that cannot be read is replaced: the runtime reads
// YAML with another library, which may make a list of it that lacks the plugin.
func withPlugin(before, plugin string) string {
	var names []string
	if before != "" && yaml.Unmarshal([]byte(before), &names) != nil {
		names = nil
	}
	if !slices.Contains(names, plugin) {
		names = append(names, plugin)
	}
	list, _ := json.Marshal(names) // of texts
	return string(list)
}
