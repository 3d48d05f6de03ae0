package view

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Objects are what a view is made of: those that the user may list. Pods are those of
// one namespace or of all; whoever holds a slot is shown by name also if his pod is not
// among them, when Claims are.
type Objects struct {
	Configurations []akriv0.Configuration
	Instances      []akriv0.Instance
	Slices         []v1alpha1.DeviceSlice
	Claims         []v1alpha1.SlotClaim
	Pods           []corev1.Pod
	Nodes          []corev1.Node
}

// View is the objects, joined. It does not change.
type View struct {
	objects        Objects
	configurations map[string]*akriv0.Configuration // the owner of each name
	instances      map[string]*akriv0.Instance      // by name: namespaces do not tell them apart
	of             map[string][]*akriv0.Instance    // by Configuration, ordered by name
	devices        map[string]device                // by Instance
	claims         map[string]*v1alpha1.SlotClaim   // by slot
	granted        map[string][]grant               // by slot: more than one is an error
	used           map[string]map[int]bool          // indices that are mentioned, by Instance
	broken         map[*corev1.Pod]error            // pods whose assignment cannot be read
}

// device is what slices say of an Instance.
type device struct {
	id    string
	nodes []string // that report it, sorted
	lost  []string // of these, those whose handler does not answer
}

// grant is a slot in a bound pod's annotation.
type grant struct {
	pod       *corev1.Pod
	container string
	grant     assignment.Grant
}

// New joins the objects.
func New(o Objects) *View {
	v := &View{objects: o, configurations: map[string]*akriv0.Configuration{}, instances: map[string]*akriv0.Instance{},
		of: map[string][]*akriv0.Instance{}, devices: map[string]device{}, claims: map[string]*v1alpha1.SlotClaim{},
		granted: map[string][]grant{}, used: map[string]map[int]bool{}, broken: map[*corev1.Pod]error{}}
	for i := range o.Configurations {
		c := &o.Configurations[i]
		if first := v.configurations[c.Name]; c.MayOwnName() && (first == nil || akriv0.CompareOwners(c, first) < 0) {
			v.configurations[c.Name] = c
		}
	}
	for i := range o.Instances {
		in := &o.Instances[i]
		v.instances[in.Name] = in
		v.of[in.Spec.ConfigurationName] = append(v.of[in.Spec.ConfigurationName], in)
		for name := range in.Spec.DeviceUsage {
			v.use(name)
		}
	}
	for _, all := range v.of {
		slices.SortFunc(all, func(a, b *akriv0.Instance) int { return cmp.Compare(a.Name, b.Name) })
	}
	for i := range o.Slices {
		v.addSlice(&o.Slices[i])
	}
	for i := range o.Claims {
		v.claims[o.Claims[i].Name] = &o.Claims[i]
		v.use(o.Claims[i].Name)
	}
	for i := range o.Pods {
		v.addPod(&o.Pods[i])
	}
	return v
}

func (v *View) addSlice(s *v1alpha1.DeviceSlice) {
	for i := range s.Spec.Devices {
		reported := &s.Spec.Devices[i]
		if reported.Check(s.Spec.NodeName) != nil {
			continue
		}
		d := v.devices[reported.Instance()]
		d.id = reported.ID
		if at, found := slices.BinarySearch(d.nodes, s.Spec.NodeName); !found {
			d.nodes = slices.Insert(d.nodes, at, s.Spec.NodeName)
		}
		if reported.Unschedulable {
			d.lost = append(d.lost, s.Spec.NodeName)
		}
		v.devices[reported.Instance()] = d
	}
}

func (v *View) addPod(pod *corev1.Pod) {
	if ended(pod) || pod.Spec.NodeName == "" {
		return
	}
	held, err := assignment.Held(pod)
	if err != nil {
		v.broken[pod] = err
	}
	for _, container := range slices.Sorted(maps.Keys(held)) {
		for _, g := range held[container] {
			name := g.Slot.String()
			v.use(name)
			// An init container's slot may be a later container's, too.
			if !slices.ContainsFunc(v.granted[name], func(o grant) bool { return o.pod == pod }) {
				v.granted[name] = append(v.granted[name], grant{pod, container, g})
			}
		}
	}
}

// use records that the slot is mentioned.
func (v *View) use(text string) {
	name, err := slot.Parse(text)
	if err != nil {
		return
	}
	if v.used[name.Instance] == nil {
		v.used[name.Instance] = map[int]bool{}
	}
	v.used[name.Instance][name.Index] = true
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// capacity is how many slots the Instance has.
func (v *View) capacity(in *akriv0.Instance) int {
	if c := v.configurations[in.Spec.ConfigurationName]; c != nil {
		return c.Spec.Slots()
	}
	return int(max(in.Spec.Capacity, 1))
}

// nodes are those that reach the Instance: as slices say or, for a user who may not
// list them, as the Instance does.
func (v *View) nodes(in *akriv0.Instance) []string {
	if d := v.devices[in.Name]; len(d.nodes) > 0 {
		return slices.DeleteFunc(slices.Clone(d.nodes), func(node string) bool { return slices.Contains(d.lost, node) })
	}
	return in.Spec.Nodes
}

// State is what a slot is used for.
type State string

const (
	// Free: nobody has it.
	Free State = "Free"
	// Assigned: the scheduler gave it to a pod, which the node has not begun to start.
	Assigned State = "Assigned"
	// Held: a node has claimed it for a container.
	Held State = "Held"
)

// Slot is one slot and who has it.
type Slot struct {
	Name          string    `json:"name"`
	Instance      string    `json:"instance"`
	Configuration string    `json:"configuration"`
	Device        string    `json:"device,omitempty"`
	State         State     `json:"state"`
	Namespace     string    `json:"podNamespace,omitempty"`
	Pod           string    `json:"pod,omitempty"`
	Container     string    `json:"container,omitempty"`
	Node          string    `json:"node,omitempty"`
	Level         string    `json:"level,omitempty"` // CL or IL
	Since         time.Time `json:"since,omitzero"`
}

// Holder is who has the slot, in words; empty when nobody does.
func (s *Slot) Holder() string {
	switch {
	case s.Pod != "":
		return s.Namespace + "/" + s.Pod
	case s.State != Free:
		return "node " + s.Node
	}
	return ""
}

// Slots returns the slots of all Instances, by Configuration and name.
func (v *View) Slots() []Slot {
	var all []Slot
	for _, name := range slices.Sorted(maps.Keys(v.of)) {
		for _, in := range v.of[name] {
			all = append(all, v.slotsOf(in)...)
		}
	}
	return all
}

// slotsOf returns the Instance's slots by index. A slot beyond the capacity is among
// them as long as somebody has it.
func (v *View) slotsOf(in *akriv0.Instance) []Slot {
	count := v.capacity(in)
	all := make([]Slot, 0, count)
	for index := range count {
		all = append(all, v.slot(in, slot.Name{Instance: in.Name, Index: index}))
	}
	for _, index := range slices.Sorted(maps.Keys(v.used[in.Name])) {
		if index < count {
			continue
		}
		if s := v.slot(in, slot.Name{Instance: in.Name, Index: index}); s.State != Free {
			all = append(all, s)
		}
	}
	return all
}

func (v *View) slot(in *akriv0.Instance, name slot.Name) Slot {
	s := Slot{Name: name.String(), Instance: in.Name, Configuration: in.Spec.ConfigurationName, Device: v.devices[in.Name].id, State: Free}
	if c := v.claims[s.Name]; c != nil {
		s.State, s.Node, s.Container, s.Level, s.Since = Held, c.Spec.NodeName, c.Spec.Container, string(c.Spec.Level), c.CreationTimestamp.Time
		if p := c.Spec.Pod; p != nil {
			s.Namespace, s.Pod = p.Namespace, p.Name
		}
		return s
	}
	if grants := v.granted[s.Name]; len(grants) > 0 {
		g := grants[0]
		s.State, s.Namespace, s.Pod, s.Container, s.Node = Assigned, g.pod.Namespace, g.pod.Name, g.container, g.pod.Spec.NodeName
		s.Level, s.Since = level(g.grant), scheduled(g.pod)
		return s
	}
	// For a user who may not list claims the Instance says who uses it.
	if usage, err := slot.ParseUsage(in.Spec.DeviceUsage[s.Name]); err == nil && !usage.Free() && len(v.objects.Claims) == 0 {
		s.State, s.Node, s.Level = Held, usage.Node, string(v1alpha1.InstanceLevel)
		if usage.ConfigurationLevel() {
			s.Level = string(v1alpha1.ConfigurationLevel)
		}
	}
	return s
}

func level(g assignment.Grant) string {
	if g.InstanceLevel() {
		return string(v1alpha1.InstanceLevel)
	}
	return string(v1alpha1.ConfigurationLevel)
}

func scheduled(pod *corev1.Pod) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return c.LastTransitionTime.Time
		}
	}
	return pod.CreationTimestamp.Time
}
