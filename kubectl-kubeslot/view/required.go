package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// pluginGone is the reason of a pod that requires an NRI plugin which kubecri of its node is no more.
const pluginGone = "PluginGone"

// RequiredPlugins begins the annotations by which the scheduler has a runtime's validator require kubecri
// for a container (kube-scheduler/binding).
const RequiredPlugins = "required-plugins.noderesource.dev/"

// pluginGoneWait is of a bound pod that requires kubecri as an NRI plugin of a name that its node does not
// name: the node has gone to another mode, or the plugin has another name. While the runtime validates, it
// makes none of its containers again. nil for any other pod. What plugins of others the pod's author
// requires is not known here, so that a name counts only if it is kubecri's usual one, or another node's.
func (v *View) pluginGoneWait(pod *corev1.Pod) *Wait {
	node := v.nodesByName[pod.Spec.NodeName]
	if node == nil || v.held[pod] == nil {
		return nil
	}
	has := node.Annotations[v1alpha1.NRIPluginAnnotation]
	for key, list := range pod.Annotations {
		if !strings.HasPrefix(key, RequiredPlugins) {
			continue
		}
		names := v.requiredIn(list)
		at := slices.IndexFunc(names, v.isKubecriPlugin)
		if at < 0 || slices.Contains(names, has) {
			continue
		}
		is := "no NRI plugin"
		if has != "" {
			is = fmt.Sprintf("the NRI plugin %q", has)
		}
		return &Wait{Reason: pluginGone, Source: FromKubeslot, Nodes: []string{node.Name},
			Why: fmt.Sprintf("it requires the NRI plugin %q, and kubecri is %s on node %s: where the runtime's "+
				"default validator is on, no container of it starts again", names[at], is, node.Name),
			Needs: "delete the pod: its next one is assigned anew; " +
				"or turn the runtime's default validator off on the node"}
	}
	return nil
}

// requiredIn are the names in such an annotation, read once for all pods that have it; nil of one that cannot be read.
func (v *View) requiredIn(list string) []string {
	return once(&v.required, list, func(list string) (names []string) {
		if yaml.Unmarshal([]byte(list), &names) != nil {
			return nil
		}
		return names
	})
}

func (v *View) isKubecriPlugin(name string) bool {
	return strings.Contains(name, "kubecri") || v.plugins().Has(name)
}

func (v *View) namePlugins() sets.Set[string] {
	names := sets.New[string]()
	for i := range v.objects.Nodes {
		names.Insert(v.objects.Nodes[i].Annotations[v1alpha1.NRIPluginAnnotation])
	}
	return names.Delete("") // of nodes that name none
}

// examinePlugins finds such pods. kubecri names its plugin when it starts, and a node that comes back may
// be a while without it.
func (v *View) examinePlugins(f *findings, now time.Time) {
	for i := range v.objects.Pods {
		pod := &v.objects.Pods[i]
		if ended(pod) || !v.reporting[pod.Spec.NodeName] || !settled(scheduled(pod), now) {
			continue
		}
		if w := v.pluginGoneWait(pod); w != nil {
			f.add(podObject(pod), w.Reason, "%s; %s", w.Why, w.Needs)
		}
	}
}
