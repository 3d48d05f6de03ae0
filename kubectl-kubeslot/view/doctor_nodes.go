package view

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// examineNodes finds nodes that take no part, and what is left over of nodes. A node that
// is cordoned or has a taint, such as a control plane's, need not take part, and one of Windows cannot.
func (v *View) examineNodes(f *findings, now time.Time) {
	if len(v.objects.Configurations) == 0 && len(v.objects.Slices) == 0 {
		v.leftInNodes(f)
		return
	}
	for i := range v.objects.Slices {
		s := &v.objects.Slices[i]
		if v.nodesByName[s.Spec.NodeName] == nil && settled(s.CreationTimestamp.Time, now) {
			f.add("deviceslice/"+s.Name, "NodeGone", "its node %s does not exist: delete it", s.Spec.NodeName)
		}
		for j := range s.Spec.Devices {
			if err := s.Spec.Devices[j].Check(s.Spec.NodeName); err != nil {
				f.add("deviceslice/"+s.Name, "BadDevice", "it has a device that nobody believes: %v. Look at kubecri on node %s, and who else may write the slice", err, s.Spec.NodeName)
				break
			}
		}
		for _, p := range s.Spec.Problems {
			if p.Configuration == nil {
				f.add("node/"+s.Spec.NodeName, p.Reason, "%s", p.Message)
			}
		}
	}
	for i := range v.objects.Nodes {
		n := &v.objects.Nodes[i]
		away := v.kubecriAway(n.Name)
		if away != "" && (v.reporting[n.Name] || v.kubecris().seen[n.Name] != nil) {
			f.add("node/"+n.Name, kubecriAway, "%s. Pods with devices get no place on the node until it is: see kubectl describe pod, or kubectl get pods -n %s -l app.kubernetes.io/name=kubecri -o wide",
				away, n.Annotations[v1alpha1.KubecriNamespaceAnnotation])
		} else if pod := v.kubecris().labelled[n.Name]; away == "" && !v.reporting[n.Name] && !ofWindows(n) &&
			untolerated(n, nil) == nil && (pod == nil || settled(pod.CreationTimestamp.Time, now)) {
			f.add("node/"+n.Name, "NoKubecri", "it has no DeviceSlice: kubecri does not run there, or cannot reach the API server. Start it, or look at its log: `kubecri check` on the node says what is missing")
		}
		v.examineKubelet(f, n.Name, n.Status.NodeInfo.KubeletVersion)
		for _, c := range n.Status.Conditions {
			if strings.HasPrefix(string(c.Type), conditionPrefix) && c.Type != v1alpha1.StartsWithoutKubecri &&
				c.Status == corev1.ConditionTrue && v.reporting[n.Name] {
				f.add("node/"+n.Name, c.Reason, "%s", nodeCondition(c))
			}
		}
		if _, err := assignment.DecodeNode(n.Annotations); err != nil {
			f.add("node/"+n.Name, "BadAnnotation", "%v: the scheduler gives out no devices of plugins there; kubecri writes it anew when it starts: restart it there", err)
		}
	}
	v.examinePlugins(f, now)
	v.leftInNodes(f)
}

func ofWindows(n *corev1.Node) bool { return n.Labels[corev1.LabelOSStable] == string(corev1.Windows) }

// conditionPrefix is of the conditions that kubecri writes; True means trouble.
const conditionPrefix = "kubeslot.io/"

// leftInNodes finds what kubecri wrote, on nodes where none runs: resources that nobody
// serves, which it removes a while after the Configuration where it does run, its
// annotation, and its mode.
func (v *View) leftInNodes(f *findings) {
	for i := range v.objects.Nodes {
		n := &v.objects.Nodes[i]
		if v.reporting[n.Name] || v.kubecris().labelled[n.Name] != nil {
			continue
		}
		var left []string
		for _, annotation := range []string{assignment.Annotation, v1alpha1.NRIPluginAnnotation, v1alpha1.KubecriNamespaceAnnotation} {
			if n.Annotations[annotation] != "" {
				left = append(left, "the annotation "+annotation)
			}
		}
		if n.Labels[v1alpha1.ModeLabel] != "" {
			left = append(left, "the label "+v1alpha1.ModeLabel)
		}
		for _, c := range n.Status.Conditions {
			if strings.HasPrefix(string(c.Type), conditionPrefix) {
				left = append(left, "the condition "+string(c.Type))
			}
		}
		if len(left) > 0 {
			f.add("node/"+n.Name, "LeftOver", "it has %s of a kubecri that does not run there: run `kubecri cleanup` on the node, or install it again", strings.Join(left, ", "))
		}
		for _, name := range slices.Sorted(maps.Keys(n.Status.Allocatable)) {
			of, ours := strings.CutPrefix(string(name), assignment.ResourcePrefix)
			left := n.Status.Allocatable[name]
			if !ours || left.IsZero() || v.configurations[of] != nil || v.instances[of] != nil {
				continue
			}
			if held := v.inUse()[n.Name][name]; !held.IsZero() { // a node never advertises less than its pods request
				continue
			}
			f.add("node/"+n.Name, "LeftOver", "its status has %s of %s, of which there is no Configuration: it is left over, and kubecri removes it when it runs there", left.String(), name)
		}
	}
}

// Notes are what is no problem now, and may become one: nodes whose runtimes start containers without
// their devices while kubecri is away, or may.
func (v *View) Notes() []string {
	const unknown = "whether the runtime starts containers without their devices while kubecri is away is not known: kubecri sees it when a container is created there"
	nodes := map[string][]string{} // by what they say
	for i := range v.objects.Nodes {
		n := &v.objects.Nodes[i]
		if n.Annotations[v1alpha1.NRIPluginAnnotation] == "" {
			continue
		}
		says := unknown
		for _, c := range n.Status.Conditions {
			if c.Type == v1alpha1.StartsWithoutKubecri {
				says = c.Message
				if c.Status == corev1.ConditionFalse {
					says = ""
				}
			}
		}
		if says != "" {
			nodes[says] = append(nodes[says], n.Name)
		}
	}
	var all []string
	for _, says := range slices.Sorted(maps.Keys(nodes)) {
		slices.Sort(nodes[says])
		all = append(all, ofNodes(nodes[says])+": "+says)
	}
	return all
}
