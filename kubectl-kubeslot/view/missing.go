package view

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// withoutDevice is the reason of a container that runs without a device that it was assigned.
const withoutDevice = "RunsWithoutDevice"

// kubecriAway is the reason of a node whose kubecri is to run in a pod, and does not.
const kubecriAway = "KubecriAway"

// awayNeeds is what such a node needs.
const awayNeeds = "kubecri has to be Ready there again"

// without is the container that runs without the slot that it was assigned, which no node has
// claimed; "" when there is none, for a user who may not list claims, and where kubecri has left the node
// for good: then nobody claims anything. kubecri claims a slot
// before the container exists. It lets go of it when the container has ended, a second before the
// kubelet says so.
func (v *View) without(g grant) string {
	if v.objects.Claims == nil || !v.reporting[g.pod.Spec.NodeName] {
		return ""
	}
	return g.running()
}

// running is the container that runs and has the slot; "" when none does.
func (g *grant) running() string {
	for _, container := range g.containers {
		if running(g.pod, container) {
			return container
		}
	}
	return ""
}

// user is the container that has the slot: the one that runs, or the last that has run, as while it waits to
// be started again; "" when none has.
func (g *grant) user() string {
	user := g.running()
	if user == "" {
		for s := range statuses(g.pod) {
			ended := s.State.Terminated != nil || s.LastTerminationState.Terminated != nil
			if ended && slices.Contains(g.containers, s.Name) {
				user = s.Name
			}
		}
	}
	return user
}

// missingWaits are the slots that the pod's containers run without.
func (v *View) missingWaits(pod *corev1.Pod, slots []Slot) []Wait {
	var all []Wait
	for _, s := range slots {
		if s.State == Missing {
			all = append(all, v.missingWait(pod, s.Name, s.Container))
		}
	}
	return all
}

func (v *View) missingWait(pod *corev1.Pod, slot, container string) Wait {
	w := Wait{Reason: withoutDevice, Source: FromKubeslot, Container: container, Nodes: []string{pod.Spec.NodeName}}
	w.Why = fmt.Sprintf("its node has not claimed its slot %s: kubecri did not see it start, or somebody deleted the claim", slot)
	w.Needs = "when kubecri sees the container (`kubecri check` on the node says why it does not), it"
	if away := v.kubecriAway(pod.Spec.NodeName); away != "" {
		w.Why = fmt.Sprintf("it runs without the device of its slot %s: %s", slot, away)
		w.Needs = "when kubecri is Ready there again, it"
	}
	if pod.Spec.RestartPolicy == corev1.RestartPolicyNever {
		w.Needs += " stops the container; the pod has to be created again"
	} else {
		w.Needs += " has the container made again, with its device"
	}
	return w
}

// examineMissing finds containers that run without their devices, as soon as they do. Of a pod that is
// being deleted the kubelet says late which containers have ended.
func (v *View) examineMissing(f *findings, now time.Time) {
	for _, name := range slices.Sorted(maps.Keys(v.granted)) {
		g := v.granted[name][0]
		container, ends := v.without(g), g.pod.DeletionTimestamp
		if v.claims[name] == nil && container != "" && (ends == nil || now.Sub(ends.Time) > settling) {
			w := v.missingWait(g.pod, name, container)
			f.add(podObject(g.pod), w.Reason, "container %s: %s; %s", w.Container, w.Why, w.Needs)
		}
	}
}

// unreleased says of how many of the slots the pods are gone, while kubecri, which would release them, is
// away from the node; "" when there are none.
func (v *View) unreleased(slots []Slot) string {
	count, away := 0, ""
	for _, s := range slots {
		if s.State != Held || s.PodUID == "" || v.pods[s.PodUID] != nil || v.objects.PodsOf != "" {
			continue
		}
		if why := v.kubecriAway(s.Node); why != "" {
			count, away = count+1, why
		}
	}
	if count == 0 {
		return ""
	}
	return fmt.Sprintf("%s released when kubecri is Ready again: %s", counted(count, "slot of a deleted pod is", "slots of deleted pods are"), away)
}

// kubecriAway says that kubecri of the node is to run in a pod, and that no such pod is Ready there;
// "" when one is, and for a user who may not list pods of its namespace.
func (v *View) kubecriAway(node string) string {
	n := v.nodesByName[node]
	if n == nil {
		return ""
	}
	namespace := n.Annotations[v1alpha1.KubecriNamespaceAnnotation]
	if namespace == "" || v.objects.Pods == nil || v.objects.PodsOf != "" && v.objects.PodsOf != namespace {
		return ""
	}
	pod := v.kubecris().seen[node]
	switch {
	case pod == nil:
		return fmt.Sprintf("kubecri is not on node %s: it has no pod of namespace %s there", node, namespace)
	case v1alpha1.KubecriReady(pod):
		return ""
	}
	why := ""
	for _, s := range waiting(pod) {
		why = " (" + s.State.Waiting.Reason + ")"
	}
	return fmt.Sprintf("kubecri is not on node %s: its pod %s/%s is not Ready%s", node, namespace, pod.Name, why)
}

// kubecris are kubecri's pods by node.
type kubecris struct {
	// seen are those that the scheduler sees: of the namespace that the node's annotation names.
	seen map[string]*corev1.Pod
	// labelled are of whichever namespace: of one that has just come the node has no annotation yet.
	labelled map[string]*corev1.Pod
}

func (v *View) findKubecris() kubecris {
	found := kubecris{map[string]*corev1.Pod{}, map[string]*corev1.Pod{}}
	for i := range v.objects.Pods {
		pod := &v.objects.Pods[i]
		n := v.nodesByName[pod.Spec.NodeName]
		if n == nil || !v1alpha1.IsKubecri(pod) || ended(pod) {
			continue
		}
		found.labelled[n.Name] = pod
		if pod.Namespace != n.Annotations[v1alpha1.KubecriNamespaceAnnotation] {
			continue
		}
		if found.seen[n.Name] == nil || v1alpha1.KubecriReady(pod) {
			found.seen[n.Name] = pod
		}
	}
	return found
}
