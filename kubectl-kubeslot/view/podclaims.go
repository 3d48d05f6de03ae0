package view

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// PodClaim is a ResourceClaim of a pod for devices of Kubeslot.
type PodClaim struct {
	// Name is what the pod calls it; "" for the one that the scheduler made for extended resources.
	Name          string         `json:"name,omitempty"`
	ResourceClaim string         `json:"resourceClaim"`
	Requests      []ClaimRequest `json:"requests,omitempty"`
	// Devices are the Instances that were allocated; none while it waits.
	Devices []string `json:"devices,omitempty"`
}

// ClaimRequest is how many devices of a DeviceClass a ResourceClaim asks for.
type ClaimRequest struct {
	DeviceClass string `json:"deviceClass"`
	Count       int64  `json:"count"`
}

// configuration is the one whose DeviceClass it is; "" for none.
func (r ClaimRequest) configuration() string { return v1alpha1.DeviceClassConfiguration(r.DeviceClass) }

// claimRows are the pod's ResourceClaims.
func (v *View) claimRows(pod *corev1.Pod) []PodClaim {
	var rows []PodClaim
	for _, c := range v.podClaims(pod) {
		rows = append(rows, PodClaim{Name: c.inPod, ResourceClaim: c.Name, Requests: classesOf(c.ResourceClaim),
			Devices: v1alpha1.AllocatedInstances(c.ResourceClaim)})
	}
	return rows
}

// unallocatedWaits say which of the pod's ResourceClaims have no devices, and who has those that they ask for.
func (v *View) unallocatedWaits(pod *corev1.Pod) []Wait {
	var all []Wait
	for _, c := range v.podClaims(pod) {
		if c.Status.Allocation != nil {
			continue
		}
		for _, r := range classesOf(c.ResourceClaim) {
			all = append(all, v.unallocatedWait(c.ResourceClaim, r))
		}
	}
	return all
}

func (v *View) unallocatedWait(claim *resourceapi.ResourceClaim, r ClaimRequest) Wait {
	w := Wait{Reason: "ClaimNotAllocated", Source: FromKubeslot, Resource: r.configuration(), Count: r.Count,
		Why: fmt.Sprintf("its ResourceClaim %s asks for %s of DeviceClass %s, and is not allocated", claim.Name,
			counted(int(r.Count), "device", "devices"), r.DeviceClass),
		Needs: "a device that the ResourceClaim selects has to be free"}
	c := v.configurations[r.configuration()]
	switch {
	case c == nil:
		w.Why += "; there is no such Configuration that you can see"
		w.Needs = fmt.Sprintf("create the Configuration %s with allocator DRA, or correct the DeviceClass",
			r.configuration())
	case !c.Spec.IsDRA():
		w.Why += fmt.Sprintf("; kube-scheduler of Kubeslot gives the devices of Configuration %s/%s",
			c.Namespace, c.Name)
		w.Needs = fmt.Sprintf("set spec.allocator: DRA there, or request akri.sh/%s without a ResourceClaim", c.Name)
	default:
		if _, change := allocator(c); change != nil {
			w.Why += "; " + change.text()
		}
		free := 0
		for _, in := range v.of[c.Name] {
			free += v.counts(in).Free
		}
		if int64(free) < r.Count {
			w.Holders = v.holders(c.Name, v.nodeNames())
		}
	}
	return w
}

// unpreparedWaits say which devices were allocated to the pod, and not prepared by its node: who has the slots.
func (v *View) unpreparedWaits(pod *corev1.Pod) []Wait {
	var all []Wait
	for _, c := range v.podClaims(pod) {
		for _, r := range v1alpha1.DRAResults(c.ResourceClaim) {
			holder := v1alpha1.DRAHolder(c.UID, r.ShareID)
			has, others := v.holdersBut(r.Device, holder)
			want := slotsOfResult(&r)
			if has >= want || v.objects.Claims == nil {
				continue
			}
			w := Wait{Reason: "ClaimNotPrepared", Source: FromKubeslot, Resource: r.Device,
				Nodes: []string{pod.Spec.NodeName},
				Why: fmt.Sprintf("its ResourceClaim %s was allocated device %s, and node %s has %d of the %d slots",
					c.Name, r.Device, pod.Spec.NodeName, has, want),
				Needs: "nothing: the node prepares it, which takes a moment; if it stays, look at kubecri there"}
			if in := v.instances[r.Device]; in != nil && int64(v.capacity(in)-len(others)) < want {
				w.Holders, w.Needs = others, "those that have its slots have to end"
			}
			all = append(all, w)
		}
	}
	return all
}

// holdersBut are how many slots of the Instance a holder has, and those that others have.
func (v *View) holdersBut(instance, holder string) (has int64, others []Slot) {
	for _, s := range v.slots().ofInstance[instance] {
		if claim := v.claims[s.Name]; claim != nil && claim.Spec.Holder == holder {
			has++
		} else {
			others = append(others, s)
		}
	}
	return has, others
}

// givenByDRA is why a pod that requests resources of ours waits, although DRA gives these; nil where it does not.
func (v *View) givenByDRA(pod *corev1.Pod) *Wait {
	for _, r := range requests(pod) {
		c, extended := v.dra(r.resource)
		if c == nil || extended {
			continue
		}
		w := Wait{Reason: "AllocatedByDRA", Source: FromKubeslot, Container: r.container, Resource: r.resource,
			Count: r.count,
			Why:   fmt.Sprintf("DRA gives the devices of Configuration %s/%s", c.Namespace, c.Name),
			Needs: fmt.Sprintf("request them with a ResourceClaim of DeviceClass %s", v1alpha1.DeviceClassName(c.Name))}
		if _, change := allocator(c); change != nil {
			w.Why += ": " + change.text()
			if !c.Spec.IsDRA() {
				w.Needs = "nothing: it is tried again once kube-scheduler gives them"
			}
		}
		return &w
	}
	return nil
}
