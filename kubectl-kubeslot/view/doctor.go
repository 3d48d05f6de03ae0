package view

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/types/slot"
)

// Finding is something that is not as it should be.
type Finding struct {
	// Object is what has it, as resource/name.
	Object string `json:"object"`
	// Problem says what is wrong and what to do.
	Problem string `json:"problem"`
}

// settling is how long a state may last that a start or an end of a pod passes through.
const settling = time.Minute

// Examine returns what is not as it should be at the time. It needs all objects of the
// cluster: of a part it would say that the rest is missing.
func (v *View) Examine(now time.Time) []Finding {
	var all []Finding
	add := func(object, format string, args ...any) {
		all = append(all, Finding{object, fmt.Sprintf(format, args...)})
	}
	pods := map[string]*corev1.Pod{} // by UID
	for i := range v.objects.Pods {
		pods[string(v.objects.Pods[i].UID)] = &v.objects.Pods[i]
	}
	for _, name := range slices.Sorted(maps.Keys(v.claims)) {
		c := v.claims[name]
		if now.Sub(c.CreationTimestamp.Time) < settling {
			continue
		}
		at, err := slot.Parse(name)
		if err != nil {
			add("slotclaim/"+name, "its name is not that of a slot: delete it")
			continue
		}
		object := "slotclaim/" + name
		d, known := v.devices[at.Instance]
		in := v.instances[at.Instance]
		switch {
		case c.Spec.Pod != nil && pods[string(c.Spec.Pod.UID)] == nil:
			add(object, "its pod %s/%s is gone, and node %s has not released it: look at kubecri on that node", c.Spec.Pod.Namespace, c.Spec.Pod.Name, c.Spec.NodeName)
		case !known:
			add(object, "no node reports its device; the slot is free when pod %s has ended", podOf(c.Spec.Pod))
		case !slices.Contains(d.nodes, c.Spec.NodeName) && (in == nil || !v.discovers(in.Spec.ConfigurationName)):
			add(object, "node %s holds it, and does not report the device", c.Spec.NodeName)
		case in != nil && at.Index >= v.capacity(in):
			add(object, "its Configuration has a capacity of %d: the slot goes when pod %s has ended", v.capacity(in), podOf(c.Spec.Pod))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v.granted)) {
		grants := v.granted[name]
		if len(grants) > 1 {
			add("pod/"+grants[1].pod.Namespace+"/"+grants[1].pod.Name, "slot %s is also assigned to pod %s/%s: delete one of the two, and report this",
				name, grants[0].pod.Namespace, grants[0].pod.Name)
		}
		for _, g := range grants {
			if c := v.claims[name]; c != nil && c.Spec.Pod != nil && c.Spec.Pod.UID != g.pod.UID && now.Sub(scheduled(g.pod)) > settling {
				add("pod/"+g.pod.Namespace+"/"+g.pod.Name, "slot %s, which it is assigned, is still held by pod %s", name, podOf(c.Spec.Pod))
			}
			if v.claims[name] == nil && running(g.pod, g.container) && now.Sub(scheduled(g.pod)) > settling {
				add("pod/"+g.pod.Namespace+"/"+g.pod.Name, "container %s runs without a claim of its slot %s: was it started past kubecri? Run `kubecri check` on node %s",
					g.container, name, g.pod.Spec.NodeName)
			}
		}
	}
	for i := range v.objects.Pods {
		if pod := &v.objects.Pods[i]; v.broken[pod] != nil {
			add("pod/"+pod.Namespace+"/"+pod.Name, "its assignment cannot be read: %v", v.broken[pod])
		}
	}
	for i := range v.objects.Configurations {
		c := &v.objects.Configurations[i]
		for _, p := range v.problems(c) {
			add("configuration/"+c.Namespace+"/"+c.Name, "%s", p)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v.instances)) {
		for _, p := range v.instances[name].Status.Problems {
			add("instance/"+name, "%s", p)
		}
		for _, node := range v.devices[name].lost {
			add("instance/"+name, "node %s does not know whether the device is there, since its discovery handler does not answer", node)
		}
	}
	return append(all, v.nodesWithout()...)
}

// nodesWithout are the nodes that report nothing at all.
func (v *View) nodesWithout() []Finding {
	if len(v.objects.Configurations) == 0 {
		return nil
	}
	reporting := map[string]bool{}
	for i := range v.objects.Slices {
		reporting[v.objects.Slices[i].Spec.NodeName] = true
	}
	var all []Finding
	for i := range v.objects.Nodes {
		if name := v.objects.Nodes[i].Name; !reporting[name] {
			all = append(all, Finding{"node/" + name, "it has no DeviceSlice: kubecri does not run there, or cannot reach the API server"})
		}
	}
	return all
}

// discovers reports whether nodes reach what others of the Configuration discover.
func (v *View) discovers(configuration string) bool {
	c := v.configurations[configuration]
	return c != nil && c.Spec.Discovery != nil
}
