package host

import (
	"errors"
	"reflect"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/resource"
)

// Recognizes reports whether a device scheduler answers for what the pod requests
// under the name, in the container or, if that is "", as a whole. spec is whether the
// container requests it in KubeRequests.
//
// A Remote says which names it knows. KubeDevice's plugins do not, so it is found out: a
// plugin knows the name if on this node its answer would be another without the
// request, or with one more of it. (One whose answers vary with anything seems to
// know everything.) Group resources are the group scheduler's. The
// cost is that of three calls of Fits; the answer for a name that is recognized on one
// node holds for all.
func (h *Host) Recognizes(n *Node, pod *types.PodInfo, container string, name types.ResourceName, spec bool) bool {
	if resource.IsGroupResourceName(name) {
		return n.set.group != nil
	}
	for _, p := range n.set.plugins {
		if p.remote != nil && p.remote.Recognizes(name) {
			return true
		}
	}
	as := h.answers(n, pod, name)
	for _, change := range []func(types.ResourceList){
		func(r types.ResourceList) { delete(r, name) },
		func(r types.ResourceList) { r[name] = max(r[name], r[name]+1) }, // without overflow
	} {
		changed := pod.Clone()
		change(requestsOf(changed, container, spec))
		if !reflect.DeepEqual(as, h.answers(n, changed, name)) {
			return true
		}
	}
	return false
}

func requestsOf(pod *types.PodInfo, container string, spec bool) types.ResourceList {
	c := pod.GetContainerInPod(container)
	switch {
	case container == "":
		return pod.Requests
	case c == nil:
		return nil
	case spec:
		return c.KubeRequests
	}
	return c.Requests
}

// reply is what can be seen of a plugin's answer.
type reply struct {
	ok         bool
	score      float64
	reasons    []Reason
	fault      FaultKind
	containers [2]map[string]types.ContainerInfo
}

// answers asks all plugins, and leaves out of their answers what stands there
// only because the pod requests it under the name.
func (h *Host) answers(n *Node, pod *types.PodInfo, name types.ResourceName) []reply {
	p := fresh(pod, n.name)
	var all []reply
	for _, plug := range n.set.plugins {
		if plug.remote != nil {
			continue // it says which names it knows
		}
		got, fault := plug.fits(n.info, p)
		if fault != nil {
			kind := fault.Kind
			if errors.Is(fault.Err, errHanging) {
				kind = "" // it says nothing about the pod
			}
			return append(all, reply{fault: kind})
		}
		all = append(all, reply{ok: got.OK, score: got.Score, reasons: got.Reasons,
			containers: [2]map[string]types.ContainerInfo{
				without(p, got.Pod, true, name), without(p, got.Pod, false, name)}})
		p = got.Pod
	}
	return all
}

// without returns the containers' translation, less what a plugin left as it was
// under the name.
func without(before, after *types.PodInfo, init bool, name types.ResourceName) map[string]types.ContainerInfo {
	was, is := before.RunningContainers, after.RunningContainers
	if init {
		was, is = before.InitContainers, after.InitContainers
	}
	left := make(map[string]types.ContainerInfo, len(is))
	for c, info := range is {
		requests := clone(info.DevRequests)
		if n, ok := was[c].DevRequests[name]; ok && requests[name] == n {
			delete(requests, name)
		}
		left[c] = types.ContainerInfo{DevRequests: requests, AllocateFrom: info.AllocateFrom, Scorer: info.Scorer}
	}
	return left
}
