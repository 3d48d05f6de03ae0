package view

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Pod says what devices a pod has, or why it waits.
type Pod struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Node      string    `json:"node,omitempty"`
	Phase     string    `json:"phase"`
	State     PodState  `json:"state"`
	Since     time.Time `json:"since,omitzero"` // of the state
	Requests  []Asked   `json:"requests,omitempty"`
	// Claims are its ResourceClaims for devices of Kubeslot.
	Claims []PodClaim `json:"resourceClaims,omitempty"`
	Slots  []Slot     `json:"slots,omitempty"`
	// Devices are those of .so plugins.
	Devices []PluginDevice `json:"devices,omitempty"`
	// Waits are the conditions that keep it from running; all of them have to be met,
	// on one node.
	Waits []Wait `json:"waits,omitempty"`
	// Needs are what would let it run, the least first; each of them is enough.
	Needs []string `json:"needs,omitempty"`
	// Says is what the scheduler or the kubelet says, in its own words.
	Says   []string          `json:"says,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
}

// PodState is where a pod is on its way.
type PodState string

const (
	// Gated: it has scheduling gates.
	Gated PodState = "Gated"
	// Pending: it has no node.
	Pending PodState = "Pending"
	// Preempting: other pods are made to go for it.
	Preempting PodState = "Preempting"
	// Starting: it has a node, and not all of its containers have run.
	Starting PodState = "Starting"
	// Running: all its containers have started.
	Running PodState = "Running"
	// Succeeded, Failed: it has ended.
	Succeeded PodState = "Succeeded"
	Failed    PodState = "Failed"
	// Wanted: a workload wants it, and the API server refuses it. The row is the workload's.
	Wanted PodState = "Wanted"
	// Terminating: it is being deleted.
	Terminating PodState = "Terminating"
)

// Asked is what a container asks for.
type Asked struct {
	Container string `json:"container"`
	Resource  string `json:"resource"` // akri.sh/...
	Count     int64  `json:"count"`
}

// podRow is the pod with the slots that it has.
func (v *View) podRow(pod *corev1.Pod, slots []Slot) Pod {
	p := Pod{Namespace: pod.Namespace, Name: pod.Name, Node: pod.Spec.NodeName, Phase: string(pod.Status.Phase), Slots: slots, Labels: pod.Labels}
	p.State, p.Since = stateOf(pod)
	for _, r := range requests(pod) {
		p.Requests = append(p.Requests, Asked{r.container, "akri.sh/" + r.resource, r.count})
	}
	p.Claims = v.claimRows(pod)
	return p
}

func stateOf(pod *corev1.Pod) (PodState, time.Time) {
	created := pod.CreationTimestamp.Time
	switch {
	case pod.Status.Phase == corev1.PodSucceeded:
		return Succeeded, time.Time{}
	case pod.Status.Phase == corev1.PodFailed:
		return Failed, time.Time{}
	case pod.DeletionTimestamp != nil:
		return Terminating, pod.DeletionTimestamp.Time
	case pod.Spec.NodeName == "" && len(pod.Spec.SchedulingGates) > 0:
		return Gated, created
	case pod.Spec.NodeName == "" && pod.Status.NominatedNodeName != "":
		return Preempting, created
	case pod.Spec.NodeName == "":
		return Pending, created
	}
	var latest time.Time
	for s := range statuses(pod) {
		if r := s.State.Running; r != nil && r.StartedAt.After(latest) {
			latest = r.StartedAt.Time
		}
	}
	if pod.Status.Phase != corev1.PodRunning || len(pod.Status.ContainerStatuses) < len(pod.Spec.Containers) ||
		len(waiting(pod)) > 0 || len(restarting(pod)) > 0 {
		return Starting, scheduled(pod)
	}
	return Running, latest
}
