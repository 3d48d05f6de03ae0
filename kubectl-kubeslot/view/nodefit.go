package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// nodeWaits are what nodes lack for the pod apart from slots, as far as the Node objects
// and the pods on them tell: the same as kube-scheduler's NodeUnschedulable,
// TaintToleration, NodeAffinity and NodeResourcesFit, that a node with slots for it (which
// is not short of any) advertises them, and that its kubecri is there. Of a reason that many nodes have there is
// one wait.
func (v *View) nodeWaits(pod *corev1.Pod, short map[string]*ledger.Shortfall) []Wait {
	type key struct{ reason, resource string }
	groups := map[key]*Wait{}
	add := func(node, reason, resource, why, needs string) {
		k := key{reason, resource}
		if groups[k] == nil {
			groups[k] = &Wait{Reason: reason, Source: FromKubeslot, Resource: resource, Why: why, Needs: needs}
		}
		groups[k].Nodes = append(groups[k].Nodes, node)
	}
	want := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	affinity := nodeaffinity.GetRequiredNodeAffinity(pod)
	for i := range v.objects.Nodes {
		node := &v.objects.Nodes[i]
		if taint := untolerated(node, pod.Spec.Tolerations); taint != nil {
			if node.Spec.Unschedulable && taint.Key == corev1.TaintNodeUnschedulable {
				add(node.Name, "NodeCordoned", "", "it is cordoned", "kubectl uncordon "+node.Name)
			} else {
				add(node.Name, "NodeTainted", "", "it has a taint that the pod does not tolerate: "+taint.ToString(), taintNeeds(taint))
			}
		}
		if fits, err := affinity.Match(node); err != nil {
			add(node.Name, "NodeNotSelected", "", "the pod's node affinity cannot be read: "+err.Error(), "correct the pod's node affinity")
		} else if !fits {
			add(node.Name, "NodeNotSelected", "", "the pod's nodeSelector or node affinity does not select it", "another nodeSelector or affinity in the pod, or other labels on the node")
		}
		if away := v.kubecriAway(node.Name); away != "" {
			add(node.Name, kubecriAway, "", away, awayNeeds)
		}
		if v.objects.PodsOf != "" {
			continue // what the pods of other namespaces use is not known
		}
		v.resourceWaits(node, want, short[node.Name] == nil, add)
	}
	var all []Wait
	for _, w := range groups {
		slices.Sort(w.Nodes)
		all = append(all, *w)
	}
	slices.SortFunc(all, func(a, b Wait) int {
		return cmp.Or(cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Resource, b.Resource))
	})
	return all
}

func (v *View) resourceWaits(node *corev1.Node, want corev1.ResourceList, slots bool, add func(node, reason, resource, why, needs string)) {
	used := v.inUse()[node.Name]
	if most, ok := node.Status.Allocatable[corev1.ResourcePods]; ok {
		if n := used[corev1.ResourcePods]; n.Cmp(most) >= 0 {
			add(node.Name, "TooManyPods", "", fmt.Sprintf("it has all the %s pods that it may have", most.String()), "pods have to end there")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		need, total, in := want[name], node.Status.Allocatable[name], used[name]
		if need.IsZero() {
			continue
		}
		left := total.DeepCopy()
		left.Sub(in)
		if left.Cmp(need) >= 0 {
			continue
		}
		of, ours := strings.CutPrefix(string(name), assignment.ResourcePrefix)
		switch {
		case !ours:
			why := fmt.Sprintf("it asks for %s of %s, and node %s has %s left of %s", need.String(), name, node.Name, atLeastZero(left), total.String())
			needs := fmt.Sprintf("pods that use %s have to end there, or a node with more of it", name)
			if nobodys, correct, nowhere := v.nowhere(want, string(name)); nowhere {
				why, needs = nobodys, correct
			}
			add(node.Name, "InsufficientResource", string(name), why, needs)
		case slots && v.advertises(node, of):
			add(node.Name, "NotAdvertised", of, fmt.Sprintf("node %s advertises %s of %s in its status, of which %s are left, and the kubelet would refuse the pod", node.Name, total.String(), name, atLeastZero(left)),
				"kubecri has to advertise there what it reaches: that takes a moment; if it stays, look at kubecri's log. Pods that another scheduler bound count too")
		}
	}
}

// advertises reports whether the node has to advertise the resource, which is named without prefix, for its kubelet to
// take pods that request it: those of Instances are advertised where the kubelet gives out slots.
func (v *View) advertises(node *corev1.Node, of string) bool {
	return (v.configurations[of] != nil || v1alpha1.ChoosesSlots(node)) && !v.servedByDRA(of)
}

// nowhere reports whether no node has any of the extended resource that a pod's spec wants,
// so that its name may be wrong, and what to say of it. It is false of Kubeslot's own, of
// which there is more to say, of what the annotation alone requests of plugins, and where the
// nodes are not known.
func (v *View) nowhere(want corev1.ResourceList, name string) (why, needs string, nowhere bool) {
	domain, of, extended := strings.Cut(name, "/")
	_, wanted := want[corev1.ResourceName(name)]
	if !extended || !wanted || domain+"/" == assignment.ResourcePrefix || len(v.objects.Nodes) == 0 || v.advertised()[corev1.ResourceName(name)] {
		return "", "", false
	}
	why, needs = "no node has "+name, "a node with "+name+", or correct the name in the pod's resources"
	if v.configurations[of] != nil || v.instances[of] != nil {
		meant := assignment.ResourcePrefix + of
		why += "; did you mean " + meant + "?"
		needs = fmt.Sprintf("correct the name in the pod's resources to %s, or a node with %s", meant, name)
	}
	return why, needs, true
}

// advertisedAnywhere are the resources of which nodes have any.
func (v *View) advertisedAnywhere() map[corev1.ResourceName]bool {
	all := map[corev1.ResourceName]bool{}
	for i := range v.objects.Nodes {
		for name, n := range v.objects.Nodes[i].Status.Allocatable {
			if !n.IsZero() {
				all[name] = true
			}
		}
	}
	return all
}

func atLeastZero(q resource.Quantity) string {
	if q.Sign() < 0 {
		return "0"
	}
	return q.String()
}

// requested is what the pods of each node request, and under "pods" how many there are.
func (v *View) requested() map[string]corev1.ResourceList {
	all := map[string]corev1.ResourceList{}
	for i := range v.objects.Pods {
		pod := &v.objects.Pods[i]
		if pod.Spec.NodeName == "" || ended(pod) {
			continue
		}
		sum := all[pod.Spec.NodeName]
		if sum == nil {
			sum = corev1.ResourceList{}
			all[pod.Spec.NodeName] = sum
		}
		for name, n := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
			total := sum[name]
			total.Add(n)
			sum[name] = total
		}
		count := sum[corev1.ResourcePods]
		count.Add(*resource.NewQuantity(1, resource.DecimalSI))
		sum[corev1.ResourcePods] = count
	}
	return all
}

// untolerated returns a taint that keeps the pod from the node; nil for none. A node
// that is cordoned has one before the taint is there.
func untolerated(node *corev1.Node, tolerations []corev1.Toleration) *corev1.Taint {
	taints := node.Spec.Taints
	if node.Spec.Unschedulable {
		taints = append([]corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}}, taints...)
	}
	taint, found := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), taints, tolerations,
		func(t *corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule }, true)
	if !found {
		return nil
	}
	return &taint
}

func taintNeeds(t *corev1.Taint) string {
	switch t.Key {
	case corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable:
		return "the node has to become Ready"
	}
	return "a toleration of it in the pod, or the taint has to go"
}
