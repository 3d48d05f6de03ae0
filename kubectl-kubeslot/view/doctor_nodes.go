package view

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/kubeslot/kubeslot/types/assignment"
)

// oldest is the oldest minor version of Kubernetes that Kubeslot works with.
var oldest = version.MajorMinor(1, 33)

// policies are those of deploy/policies, each with what anybody may do without it.
var policies = map[string]string{
	"kubeslot-assignment":      "who may update a pod can give it slots",
	"kubeslot-brokers":         "who may write Configurations can run pods as any ServiceAccount",
	"kubeslot-kubecri-node":    "one node's kubecri can write another's status",
	"kubeslot-kubecri-objects": "one node's kubecri can report devices and claim slots for another",
	"kubeslot-kubecri-leases":  "one node's kubecri can take over discovery from others",
}

// examineNodes finds nodes that take no part, and what is left over of nodes. A node that
// is cordoned or has a taint, such as a control plane's, need not take part.
func (v *View) examineNodes(f *findings, now time.Time) {
	if len(v.objects.Configurations) == 0 && len(v.objects.Slices) == 0 {
		v.leftInNodes(f, nil)
		return
	}
	reporting, nodes := map[string]bool{}, v.nodeSet()
	for i := range v.objects.Slices {
		s := &v.objects.Slices[i]
		reporting[s.Spec.NodeName] = true
		if !nodes[s.Spec.NodeName] && now.Sub(s.CreationTimestamp.Time) > settling {
			f.add("deviceslice/"+s.Name, "NodeGone", "its node %s does not exist: delete it", s.Spec.NodeName)
		}
		for j := range s.Spec.Devices {
			if err := s.Spec.Devices[j].Check(s.Spec.NodeName); err != nil {
				f.add("deviceslice/"+s.Name, "BadDevice", "it has a device that nobody believes: %v", err)
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
		if !reporting[n.Name] && untolerated(n, nil) == nil {
			f.add("node/"+n.Name, "NoKubecri", "it has no DeviceSlice: kubecri does not run there, or cannot reach the API server")
		}
		if kubelet, err := version.ParseGeneric(strings.TrimPrefix(n.Status.NodeInfo.KubeletVersion, "v")); err == nil && kubelet.LessThan(oldest) {
			f.add("node/"+n.Name, "OldVersion", "its kubelet is %s, and Kubeslot works from %s on", n.Status.NodeInfo.KubeletVersion, oldest)
		}
		if _, err := assignment.DecodeNode(n.Annotations); err != nil {
			f.add("node/"+n.Name, "BadAnnotation", "%v: the scheduler gives out no devices of plugins there; kubecri writes it anew when it starts", err)
		}
	}
	v.leftInNodes(f, reporting)
}

// leftInNodes finds resources that nobody serves, on nodes where no kubecri runs: where one
// does, it removes them a while after the Configuration.
func (v *View) leftInNodes(f *findings, reporting map[string]bool) {
	for i := range v.objects.Nodes {
		n := &v.objects.Nodes[i]
		if reporting[n.Name] {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(n.Status.Allocatable)) {
			of, ours := strings.CutPrefix(string(name), assignment.ResourcePrefix)
			left := n.Status.Allocatable[name]
			if !ours || left.IsZero() || v.configurations[of] != nil || v.instances[of] != nil || v.holdsOf(n.Name, of) {
				continue
			}
			f.add("node/"+n.Name, "LeftOver", "its status has %s of %s, of which there is no Configuration: it is left over, and kubecri removes it when it runs there", left.String(), name)
		}
	}
}

// holdsOf reports whether pods on the node ask for the resource: a node never advertises
// less than they do.
func (v *View) holdsOf(node, of string) bool {
	return slices.ContainsFunc(v.objects.Pods, func(pod corev1.Pod) bool {
		return pod.Spec.NodeName == node && !ended(&pod) && slices.ContainsFunc(requests(&pod), func(r request) bool { return r.resource == of })
	})
}

// examineCluster looks at versions and policies, where they were read.
func (v *View) examineCluster(f *findings) {
	c := v.objects.Cluster
	if c == nil {
		return
	}
	if server, err := version.ParseGeneric(strings.TrimPrefix(c.Version, "v")); err == nil && server.LessThan(oldest) {
		f.add("cluster", "OldVersion", "its API server is %s, and Kubeslot works from %s on", c.Version, oldest)
	}
	for _, name := range slices.Sorted(maps.Keys(policies)) {
		if !slices.Contains(c.Policies, name) {
			f.add("validatingadmissionpolicy/"+name, "NoPolicy", "it is not there, or no binding enforces it: %s. Apply deploy/policies", policies[name])
		}
	}
}
