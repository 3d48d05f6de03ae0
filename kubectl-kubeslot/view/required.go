package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// pluginGone is the reason of a pod that requires an NRI plugin which kubecri of its node is no more.
const pluginGone = "PluginGone"

// requiredPlugin begins the annotation by which the scheduler has a runtime's validator require kubecri
// for a container (kube-scheduler/binding).
const requiredPlugin = "required-plugins.noderesource.dev/"

// pluginGoneWait is of a bound pod that requires kubecri as an NRI plugin of a name that its node does not
// name: the node has gone to another mode, or the plugin has another name. While the runtime validates, it
// makes none of its containers again. nil for any other pod. What plugins of others the pod's author
// requires is not known here, so that a name counts only if it is kubecri's usual one, or another node's.
func (v *View) pluginGoneWait(pod *corev1.Pod) *Wait {
	node := v.nodesByName[pod.Spec.NodeName]
	if node == nil || !v.assigned[pod] {
		return nil
	}
	has := node.Annotations[v1alpha1.NRIPluginAnnotation]
	for key, list := range pod.Annotations {
		var names []string
		if !strings.HasPrefix(key, requiredPlugin) || yaml.Unmarshal([]byte(list), &names) != nil || slices.Contains(names, has) {
			continue
		}
		for _, name := range names {
			if !v.isKubecriPlugin(name) {
				continue
			}
			is := "no NRI plugin"
			if has != "" {
				is = fmt.Sprintf("the NRI plugin %q", has)
			}
			return &Wait{Reason: pluginGone, Source: FromKubeslot, Nodes: []string{node.Name},
				Why:   fmt.Sprintf("it requires the NRI plugin %q, and kubecri is %s on node %s: where the runtime's default validator is on, no container of it starts again", name, is, node.Name),
				Needs: "delete the pod: its next one is assigned anew; or turn the runtime's default validator off on the node"}
		}
	}
	return nil
}

func (v *View) isKubecriPlugin(name string) bool {
	return strings.Contains(name, "kubecri") || slices.ContainsFunc(v.objects.Nodes, func(n corev1.Node) bool {
		return name != "" && n.Annotations[v1alpha1.NRIPluginAnnotation] == name
	})
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
