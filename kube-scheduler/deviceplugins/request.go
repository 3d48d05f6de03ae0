package deviceplugins

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/kube-scheduler/binding"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/resource"
)

// request is what a pod asks of device schedulers.
type request struct {
	pod *types.PodInfo // as host.Fits wants it
	// asked are the single requests, of names that are not Kubernetes' own and not
	// slots, in a fixed order.
	asked []asked
}

// asked is one request.
type asked struct {
	container string // "" is the pod as a whole
	name      types.ResourceName
	count     int64 // > 0
	// author is whether it stands in the annotation: nobody but a device scheduler
	// answers for it. Those of the spec may be another device plugin's.
	author bool
}

func (a asked) String() string {
	if a.container == "" {
		return fmt.Sprintf("%d of %q", a.count, a.name)
	}
	return fmt.Sprintf("%d of %q for container %q", a.count, a.name, a.container)
}

// maxName is how long a requested name may be, in bytes: three times what
// Kubernetes allows, since group names are paths.
const maxName = 3 * (253 + 1 + 63)

// maxNames bounds the requests in a pod's annotation: whether a plugin answers for a name
// is found out by asking all plugins.
const maxNames = 100

// requestsExtended reports whether a container requests extended resources that are
// not slots. What has only a limit was given a request by the API server.
func requestsExtended(pod *v1.Pod) bool {
	for _, containers := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			for name := range containers[i].Resources.Requests {
				if extended(types.ResourceName(name)) {
					return true
				}
			}
		}
	}
	return false
}

func extended(name types.ResourceName) bool {
	return strings.Contains(string(name), "/") && !isSlot(name)
}

func isSlot(name types.ResourceName) bool {
	return strings.HasPrefix(string(name), assignment.ResourcePrefix)
}

// requestOf reads what the pod asks, in its annotation and its spec; nil if that is
// nothing. An error is for the author to read.
func requestOf(pod *v1.Pod) (*request, error) {
	info, err := binding.Input(pod)
	if err != nil {
		return nil, err
	}
	info.Name, info.Namespace, info.UID = pod.Name, pod.Namespace, string(pod.UID)
	if err := check(pod, info); err != nil {
		return nil, err
	}
	addSpec(info, pod)
	dropSlots(info)
	dropZeros(info)
	r := &request{pod: info, asked: list(info)}
	if len(r.asked) == 0 {
		return nil, nil
	}
	if n := r.byAuthor(); n > maxNames {
		return nil, fmt.Errorf("annotation %s requests %d resources: a pod may request at most %d of device scheduler plugins; split it into several", assignment.Annotation, n, maxNames)
	}
	return r, nil
}

// check refuses what nobody would answer for.
func check(pod *v1.Pod, in *types.PodInfo) error {
	for _, name := range slices.Sorted(maps.Keys(in.Requests)) {
		if err := checkName(name); err != nil {
			return err
		}
		if in.Requests[name] > 0 && isSlot(name) {
			return fmt.Errorf("annotation %s requests %d of %q for the pod as a whole: slots are requested in a container's resources", assignment.Annotation, in.Requests[name], name)
		}
	}
	spec := map[string]types.ResourceList{}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		spec[c.Name] = amounts(c.Resources.Requests)
	}
	written := maps.Collect(in.Containers())
	for _, name := range slices.Sorted(maps.Keys(written)) {
		if err := checkContainer(spec, name, written[name].Requests); err != nil {
			return err
		}
	}
	return nil
}

// checkContainer checks what the annotation requests for a container, by what the containers of
// the spec request.
func checkContainer(spec map[string]types.ResourceList, container string, requests types.ResourceList) error {
	inSpec, known := spec[container]
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		n := requests[name]
		if err := checkName(name); err != nil {
			return fmt.Errorf("container %q: %w", container, err)
		}
		switch {
		case n == 0:
		case !known:
			return fmt.Errorf("annotation %s requests %d of %q for container %q, and the pod has only %q: correct the container's name",
				assignment.Annotation, n, name, container, slices.Sorted(maps.Keys(spec)))
		case isSlot(name) && n > inSpec[name]:
			return fmt.Errorf("annotation %s requests %d of %q for container %q, and its resources request %d: slots are requested in the container's resources",
				assignment.Annotation, n, name, container, inSpec[name])
		}
	}
	return nil
}

func checkName(name types.ResourceName) error {
	if name == "" || len(name) > maxName {
		return fmt.Errorf("annotation %s requests a resource whose name has %d bytes: want 1 to %d", assignment.Annotation, len(name), maxName)
	}
	if strings.ContainsFunc(string(name), func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("annotation %s requests %q: want a name of printable characters", assignment.Annotation, name)
	}
	return nil
}

// addSpec adds what the spec requests, and the containers that the annotation does
// not have: plugins see the whole pod. No map of info is nil.
func addSpec(info *types.PodInfo, pod *v1.Pod) {
	init := binding.InitContainers(pod, info)
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		to := info.RunningContainers
		if init[c.Name] {
			to = info.InitContainers
		}
		entry := to[c.Name]
		entry.KubeRequests = amounts(c.Resources.Requests)
		to[c.Name] = entry
	}
}

// dropZeros removes requests for 0 of a group resource. Whoever is assigned a leaf gets its device, and of 0
// nothing would be counted. For a set of bits 0 means that any will do.
func dropZeros(info *types.PodInfo) {
	for _, c := range info.Containers() {
		maps.DeleteFunc(c.Requests, func(name types.ResourceName, n int64) bool {
			return n == 0 && resource.IsGroupResourceName(name) && !resource.IsEnumResource(name)
		})
	}
}

// dropSlots removes slots from what plugins see in the annotation: they are the
// ledger's, and mirrored there only once the pod has them.
func dropSlots(info *types.PodInfo) {
	dropSlotsOf(info.Requests)
	for _, c := range info.Containers() {
		dropSlotsOf(c.Requests)
		dropSlotsOf(c.DevRequests)
		dropSlotsOf(c.AllocateFrom)
	}
}

func dropSlotsOf[M ~map[types.ResourceName]V, V any](m M) {
	maps.DeleteFunc(m, func(name types.ResourceName, _ V) bool { return isSlot(name) })
}

func list(info *types.PodInfo) []asked {
	var all []asked
	add := func(container string, requests types.ResourceList, author bool) {
		for name, n := range requests {
			if n > 0 && !isSlot(name) && (author || extended(name)) {
				all = append(all, asked{container: container, name: name, count: n, author: author})
			}
		}
	}
	add("", info.Requests, true)
	for name, c := range info.Containers() {
		add(name, c.Requests, true)
		add(name, c.KubeRequests, false)
	}
	slices.SortFunc(all, func(a, b asked) int {
		return cmp.Or(cmp.Compare(a.container, b.container), cmp.Compare(a.name, b.name), cmp.Compare(a.count, b.count))
	})
	return all
}

// byAuthor is how many of the requests stand in the annotation.
func (r *request) byAuthor() (n int) {
	for _, a := range r.asked {
		if a.author {
			n++
		}
	}
	return n
}

// authorAsks reports whether any of the requests for the container stands in the annotation.
func (r *request) authorAsks(container string) bool {
	return slices.ContainsFunc(r.asked, func(a asked) bool { return a.author && a.container == container })
}

// kind is the same for pods that ask for the same in all containers.
func (r *request) kind() string {
	unnamed := *r.pod
	unnamed.Name = ""                 // its namespace and UID are not in the JSON
	text, _ := json.Marshal(&unnamed) // numbers and strings have no error
	return fmt.Sprintf("%s %v", text, r.asked)
}
