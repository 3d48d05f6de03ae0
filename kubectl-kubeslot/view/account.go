package view

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// account returns the scheduler's ledger of the objects: what decides there says here
// why a pod waits. It is nil for a user who may not list DeviceSlices.
func (v *View) account() *ledger.Ledger {
	v.accounted.Do(func() {
		if len(v.objects.Slices) == 0 {
			return
		}
		l := ledger.New()
		for i := range v.objects.Configurations {
			l.SetConfiguration(&v.objects.Configurations[i])
		}
		for i := range v.objects.Nodes {
			l.SetNode(v.objects.Nodes[i].Name, v.objects.Nodes[i].Labels)
		}
		for i := range v.objects.Slices {
			l.SetSlice(&v.objects.Slices[i])
		}
		for i := range v.objects.Claims {
			l.SetClaim(&v.objects.Claims[i])
		}
		for i := range v.objects.Pods {
			pod := &v.objects.Pods[i]
			if pod.Spec.NodeName == "" || ended(pod) {
				continue
			}
			held, _ := v.held(pod) // an error is of a container that is not created
			if len(held) == 0 {
				continue
			}
			l.Observe(podKey(pod), pod.Spec.NodeName, held)
			if pod.DeletionTimestamp != nil {
				l.SetTerminating(string(pod.UID))
			}
		}
		v.ledger = l
	})
	return v.ledger
}

func podKey(pod *corev1.Pod) ledger.Pod {
	key := ledger.Pod{UID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name}
	if pod.Spec.Priority != nil {
		key.Priority = *pod.Spec.Priority
	}
	if pod.Spec.NodeName != "" {
		key.Bound = scheduled(pod).Unix()
	}
	return key
}

// request is what a container asks for, of a resource named without prefix.
type request struct {
	container string
	resource  string
	count     int64
}

// requests are those of the pod, by container in the order of the pod and by name.
func requests(pod *corev1.Pod) []request {
	var all []request
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			c := &containers[i]
			var counts map[string]int64
			for _, list := range []corev1.ResourceList{c.Resources.Limits, c.Resources.Requests} {
				for name, quantity := range list {
					if resource, ours := strings.CutPrefix(string(name), assignment.ResourcePrefix); ours {
						if counts == nil {
							counts = map[string]int64{}
						}
						counts[resource] = quantity.Value()
					}
				}
			}
			for _, resource := range slices.Sorted(maps.Keys(counts)) {
				if counts[resource] > 0 {
					all = append(all, request{c.Name, resource, counts[resource]})
				}
			}
		}
	}
	return all
}

// maxSlots is how many slots the scheduler gives to one pod at most.
const maxSlots = 1000

// asked is the pod's request as the ledger takes it. Of one that the scheduler refuses
// for its size ok is false.
func asked(pod *corev1.Pod) (req *ledger.Request, ok bool) {
	req = &ledger.Request{Pod: podKey(pod)}
	rows, total := requests(pod), int64(0)
	for i, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for j := range containers {
			c := ledger.ContainerRequest{Name: containers[j].Name, Role: ledger.App}
			if i == 0 {
				c.Role = ledger.Init
				if policy := containers[j].RestartPolicy; policy != nil && *policy == corev1.ContainerRestartPolicyAlways {
					c.Role = ledger.Sidecar
				}
			}
			for _, r := range rows {
				if r.container == c.Name {
					if total += r.count; r.count > maxSlots || total > maxSlots {
						return nil, false
					}
					c.Resources = append(c.Resources, ledger.ResourceRequest{Name: r.resource, Count: int(r.count)})
				}
			}
			req.Containers = append(req.Containers, c)
		}
	}
	return req, true
}

// nodes are those on which a pod can get the Instance: as slices say or, for a user who
// may not list them, as the Instance does.
func (v *View) nodes(in *akriv0.Instance) []string {
	d := v.devices[in.Name]
	if len(d.nodes) == 0 || len(v.objects.Nodes) == 0 && v.discovered(in) {
		return in.Spec.Nodes
	}
	if selected := v.selected(in.Spec.ConfigurationName); selected != nil {
		if len(d.lost) == len(d.nodes) {
			return nil
		}
		return selected
	}
	return slices.DeleteFunc(slices.Clone(d.nodes), func(node string) bool { return slices.Contains(d.lost, node) })
}

// lost are the nodes that no longer know whether the device is there.
func (v *View) lost(in *akriv0.Instance) []string {
	d := v.devices[in.Name]
	if selected := v.selected(in.Spec.ConfigurationName); selected != nil {
		if len(d.lost) < len(d.nodes) || len(d.nodes) == 0 {
			return nil
		}
		return selected
	}
	return d.lost
}

// discovered reports whether nodes reach the device that others discover.
func (v *View) discovered(in *akriv0.Instance) bool {
	c := v.configurations[in.Spec.ConfigurationName]
	return c != nil && c.Spec.Discovery != nil
}

// selected are the nodes that reach what any of them discovers, with spec.discovery;
// nil without it, and for a user who may not list nodes.
func (v *View) selected(configuration string) []string {
	c := v.configurations[configuration]
	if c == nil || c.Spec.Discovery == nil || len(v.objects.Nodes) == 0 {
		return nil
	}
	v.selecting.Lock()
	defer v.selecting.Unlock()
	if names, known := v.selections[configuration]; known {
		return names
	}
	selector := labels.SelectorFromSet(c.Spec.Discovery.NodeSelector)
	names := []string{}
	for i := range v.objects.Nodes {
		if n := &v.objects.Nodes[i]; selector.Matches(labels.Set(n.Labels)) {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	if v.selections == nil {
		v.selections = map[string][]string{}
	}
	v.selections[configuration] = names
	return names
}
