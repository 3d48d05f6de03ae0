package view

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/slot"
)

// bound says why a pod that has a node does not run there, or not as it should.
func (v *View) bound(pod *corev1.Pod, p *Pod, events []corev1.Event) {
	if pod.Status.Phase == corev1.PodFailed {
		w := Wait{Reason: "Failed", Source: FromKubelet, Why: "it has failed: its containers have ended", Needs: "see kubectl logs"}
		if pod.Status.Reason != "" {
			w = kubeletWait("", pod.Status.Reason, pod.Status.Message)
		}
		p.Waits = []Wait{w}
	} else {
		if p.State == Starting {
			p.Waits = append(v.nodeTrouble(pod), v.unpreparedWaits(pod)...)
			if w := v.pluginGoneWait(pod); w != nil {
				p.Waits = append(p.Waits, *w)
			}
			for _, w := range v.assignmentWaits(pod) {
				if w.Reason != "DeviceAway" || len(p.Waits) == 0 { // the node is what is away
					p.Waits = append(p.Waits, w)
				}
			}
		}
		p.Waits = append(p.Waits, v.missingWaits(pod, p.Slots)...)
		for _, s := range waiting(pod) {
			w := kubeletWait(s.Name, s.State.Waiting.Reason, s.State.Waiting.Message)
			if w.Reason != "Starting" && !told(p.Waits, w) && !(w.Reason == kubecriAway && told(p.Waits, Wait{Reason: pluginGone})) {
				p.Waits = append(p.Waits, w)
			}
		}
		for _, s := range restarting(pod) {
			p.Waits = append(p.Waits, restartingWait(s))
		}
		if p.State == Starting {
			p.Waits = append(p.Waits, eventWaits(p.Waits, events)...)
		}
		if p.State == Starting && len(p.Waits) == 0 {
			p.Waits = []Wait{{Reason: "Starting", Source: FromKubelet, Why: "node " + pod.Spec.NodeName + " is starting it", Needs: "nothing: it takes a moment"}}
		}
	}
	for _, w := range p.Waits {
		if w.Needs != "" && !slices.Contains(p.Needs, w.Needs) && len(p.Needs) < maxNeeds {
			p.Needs = append(p.Needs, w.Needs)
		}
	}
}

// nodeTrouble is what keeps the node from starting any pod with devices.
func (v *View) nodeTrouble(pod *corev1.Pod) []Wait {
	node := pod.Spec.NodeName
	var all []Wait
	n := v.nodesByName[node]
	if len(v.objects.Nodes) > 0 && n == nil {
		return []Wait{{Reason: "NodeGone", Source: FromKubeslot, Nodes: []string{node}, Why: "there is no node " + node,
			Needs: "delete the pod, if the control plane does not: its next one gets another node"}}
	}
	if n != nil {
		if c := ReadyCondition(n); c.Type != "" && c.Status != corev1.ConditionTrue {
			all = append(all, Wait{Reason: "NodeNotReady", Source: FromKubeslot, Nodes: []string{node},
				Why:   fmt.Sprintf("node %s is not Ready: %s", node, c.Message),
				Needs: "the node has to become Ready, or the pod to be deleted"})
		}
	}
	if away := v.kubecriAway(node); away != "" && len(requests(pod)) > 0 {
		all = append(all, Wait{Reason: kubecriAway, Source: FromKubeslot, Nodes: []string{node}, Why: away, Needs: awayNeeds})
	} else if len(v.objects.Slices) > 0 && !v.reporting[node] && len(requests(pod)) > 0 {
		all = append(all, Wait{Reason: "NoKubecri", Source: FromKubeslot, Nodes: []string{node},
			Why: "node " + node + " has no DeviceSlice: kubecri does not run there, or cannot reach the API server", Needs: "start kubecri on the node: kubecri check says what is missing"})
	}
	return all
}

// assignmentWaits compares what the pod asks for and was given with what there is.
func (v *View) assignmentWaits(pod *corev1.Pod) []Wait {
	rows := v.slotRequests(pod)
	if len(rows) == 0 {
		return nil
	}
	held := v.held[pod]
	if err := v.broken[pod]; err != nil {
		return []Wait{{Reason: "BadAssignment", Source: FromKubeslot, Why: "its assignment cannot be read: " + err.Error(),
			Needs: "delete the pod: its next one is assigned anew"}}
	}
	if len(held) == 0 {
		// Who may not list nodes cannot know which choose slots themselves.
		if assignment.Static(pod.Annotations) || len(v.objects.Nodes) == 0 || v.choosesSlots(pod.Spec.NodeName) {
			return nil
		}
		return []Wait{{Reason: "NotAssigned", Source: FromKubeslot, Container: rows[0].container, Resource: rows[0].resource, Count: rows[0].count,
			Why: v.unassigned(pod), Needs: "create the pod again without spec.nodeName, for Kubeslot's scheduler"}}
	}
	var all []Wait
	for c := range containers(pod) {
		if !started(pod, c.Name) {
			for _, g := range held[c.Name] {
				all = append(all, v.grantWaits(pod, c.Name, g)...)
			}
		}
	}
	return all
}

func (v *View) unassigned(pod *corev1.Pod) string {
	if holder := pod.Annotations[assignment.HolderAnnotation]; holder != "" && holder != string(pod.UID) {
		return fmt.Sprintf("it has no slots: its annotation %s is of another pod (UID %s), as of one that was copied", assignment.HolderAnnotation, holder)
	}
	return fmt.Sprintf("it has a node and no slots: it was bound with spec.nodeName, or by a scheduler of the name %q that does not have Kubeslot's plugins", pod.Spec.SchedulerName)
}

// grantWaits says why a container that has not started cannot have one of its slots.
func (v *View) grantWaits(pod *corev1.Pod, container string, g assignment.Grant) []Wait {
	name := g.Slot.String()
	w := Wait{Source: FromKubeslot, Container: container, Resource: g.Resource, Nodes: []string{pod.Spec.NodeName}}
	configuration, _ := slot.SplitInstance(g.Slot.Instance)
	c, claim := v.configurations[configuration], v.claims[name]
	switch {
	case claim != nil && claim.Spec.Holder != string(pod.UID):
		w.Reason, w.Why = "SlotClaimed", fmt.Sprintf("its slot %s is still claimed for pod %s on node %s", name, v.podOf(claim), claim.Spec.NodeName)
		w.Needs = fmt.Sprintf("pod %s has to end", v.podOf(claim))
		if claim.Spec.Pod != nil && v.objects.PodsOf == "" && v.podOfClaim(claim) == nil {
			w.Needs = fmt.Sprintf("pod %s is gone: node %s has to release the slot, look at kubecri there", v.podOf(claim), claim.Spec.NodeName)
		}
		if in := v.instances[g.Slot.Instance]; in != nil {
			w.Holders = []Slot{v.slot(in, g.Slot)}
		}
	case c == nil && v.objects.PodsOf != "": // it may be in a namespace that is not read
		return nil
	case c == nil:
		w.Reason, w.Why = "ConfigurationGone", fmt.Sprintf("its slot %s is of Configuration %s, which does not exist, or is being deleted", name, configuration)
		w.Needs = fmt.Sprintf("create Configuration %s again, or delete the pod", configuration)
	case g.Slot.Index >= c.Spec.Slots() && claim == nil:
		w.Reason, w.Why = "CapacityLowered", fmt.Sprintf("its slot %s does not exist: Configuration %s has a capacity of %d", name, configuration, c.Spec.Slots())
		w.Needs = "delete the pod: its next one gets another slot; or raise the capacity again"
	case len(v.objects.Slices) > 0 && !v.reaches(pod.Spec.NodeName, g.Slot.Instance):
		w.Reason, w.Why = "DeviceAway", fmt.Sprintf("node %s does not see the device of its slot %s any more", pod.Spec.NodeName, name)
		w.Needs = "the device has to come back to this node, or the pod has to be deleted to get another"
	default:
		return nil
	}
	return []Wait{w}
}

// startEvents are the reasons of events that say why a pod with a node does not start
// before it has a container.
var startEvents = map[string]string{
	"FailedCreatePodSandBox":        "see the message: the network or the runtime of the node; the kubelet tries again",
	"FailedMount":                   "create the Secret, ConfigMap or volume that is missing; the kubelet tries again",
	"FailedAttachVolume":            "the volume has to be free to be attached; the control plane tries again",
	"FailedMapVolume":               "see kubectl describe of the pod's PersistentVolumeClaims",
	"FailedPrepareDynamicResources": "see the DRA driver's log on the node; the kubelet tries again",
	"NetworkNotReady":               "the network plugin of the node has to become ready",
	"StartedWithoutDevices":         "nothing: the container is created again with its devices",
	"SlotLost":                      "delete one of the two pods",
	"DeviceRefused":                 "see the message; the kubelet tries again",
	"DeviceUnavailable":             "see the message; the kubelet tries again",
}

// eventWaits are the events that nothing else has told of.
func eventWaits(before []Wait, events []corev1.Event) []Wait {
	var all []Wait
	for i := range events {
		e := &events[i]
		needs, known := startEvents[e.Reason]
		if !known || len(before) > 0 && (e.Reason == "DeviceRefused" || e.Reason == "DeviceUnavailable") {
			continue
		}
		w := Wait{Reason: e.Reason, Source: FromKubelet, Why: e.Message, Needs: needs}
		if !told(all, w) {
			all = append(all, w)
		}
	}
	return all
}
