package view

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
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
	// PodsOf is the namespace that Pods are of; "" is all.
	PodsOf string
	// Held returns what a bound pod was given, by container; nil is assignment.Held, which
	// decodes it.
	Held func(pod *corev1.Pod) (map[string][]assignment.Grant, error)
	// Cluster is read for doctor alone.
	Cluster *Cluster
}

// View is the objects, joined. It does not change, and is safe for concurrent use.
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
	pods           map[string]*corev1.Pod           // by UID
	assigned       map[*corev1.Pod]bool             // pods that have slots

	indexed    sync.Once
	index      slotIndex // see slots
	parsed     sync.Map  // of the scheduler's messages, what they mean
	accounted  sync.Once
	ledger     *ledger.Ledger // see account
	selecting  sync.Mutex
	selections map[string][]string // see selected
	counted    sync.Once
	inUse      map[string]corev1.ResourceList // see requested
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
		granted: map[string][]grant{}, used: map[string]map[int]bool{}, broken: map[*corev1.Pod]error{}, pods: map[string]*corev1.Pod{}, assigned: map[*corev1.Pod]bool{}}
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
	for _, grants := range v.granted { // the first has it, as the scheduler sees it
		slices.SortFunc(grants, func(a, b grant) int {
			return cmp.Or(scheduled(a.pod).Compare(scheduled(b.pod)), cmp.Compare(a.pod.UID, b.pod.UID))
		})
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
	v.pods[string(pod.UID)] = pod
	if ended(pod) || pod.Spec.NodeName == "" {
		return
	}
	held, err := v.held(pod)
	if err != nil {
		v.broken[pod] = err
	}
	for _, container := range slices.Sorted(maps.Keys(held)) {
		for _, g := range held[container] {
			name := g.Slot.String()
			v.use(name)
			v.assigned[pod] = true
			// An init container's slot may be a later container's, too.
			if !slices.ContainsFunc(v.granted[name], func(o grant) bool { return o.pod == pod }) {
				v.granted[name] = append(v.granted[name], grant{pod, container, g})
			}
		}
	}
}

// held is what the bound pod was given, by container.
func (v *View) held(pod *corev1.Pod) (map[string][]assignment.Grant, error) {
	if v.objects.Held != nil {
		return v.objects.Held(pod)
	}
	return assignment.Held(pod)
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

// deviceID is the discovery handler's id of the device; empty when nobody says it.
func (v *View) deviceID(in *akriv0.Instance) string {
	return cmp.Or(v.devices[in.Name].id, in.Status.Device)
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
	Name string `json:"name"`
	// InstanceNamespace is that of the Instance and its Configuration.
	InstanceNamespace string    `json:"namespace,omitempty"`
	Instance          string    `json:"instance"`
	Configuration     string    `json:"configuration"`
	Device            string    `json:"device,omitempty"`
	State             State     `json:"state"`
	Namespace         string    `json:"podNamespace,omitempty"`
	Pod               string    `json:"pod,omitempty"`
	PodUID            string    `json:"podUID,omitempty"`
	Container         string    `json:"container,omitempty"`
	Node              string    `json:"node,omitempty"`
	Level             string    `json:"level,omitempty"` // CL or IL
	Since             time.Time `json:"since,omitzero"`
	// Labels are the Instance's.
	Labels map[string]string `json:"labels,omitempty"`
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

// Slots returns the slots of all Instances, by Configuration and name. The slice is the
// caller's.
func (v *View) Slots() []Slot { return slices.Clone(v.slots().all) }

// slotIndex is all slots, made once for a view.
type slotIndex struct {
	all        []Slot
	ofInstance map[string][]Slot
	ofPod      map[string][]Slot // by UID
}

func (v *View) slots() *slotIndex {
	v.indexed.Do(func() {
		x := slotIndex{ofInstance: make(map[string][]Slot, len(v.instances)), ofPod: map[string][]Slot{}}
		for _, name := range slices.Sorted(maps.Keys(v.of)) {
			for _, in := range v.of[name] {
				from := len(x.all)
				x.all = v.appendSlots(x.all, in)
				x.ofInstance[in.Name] = x.all[from:len(x.all):len(x.all)]
			}
		}
		for _, name := range slices.Sorted(maps.Keys(v.claims)) {
			if s, ok := v.slotWithoutInstance(name); ok {
				x.all = append(x.all, s)
			}
		}
		for i := range x.all {
			if uid := x.all[i].PodUID; uid != "" {
				x.ofPod[uid] = append(x.ofPod[uid], x.all[i])
			}
		}
		v.index = x
	})
	return &v.index
}

// slotWithoutInstance is a slot that is held of a device whose Instance is gone, as when
// its Configuration was deleted.
func (v *View) slotWithoutInstance(claim string) (Slot, bool) {
	name, err := slot.Parse(claim)
	if err != nil || v.instances[name.Instance] != nil {
		return Slot{}, false
	}
	c, in := v.claims[claim], &akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Name: name.Instance}}
	in.Spec.ConfigurationName = c.Labels[v1alpha1.ConfigurationLabel]
	if c.Spec.Pod != nil {
		in.Namespace = c.Spec.Pod.Namespace
	}
	return v.slot(in, name), true
}

// slotsOf returns the Instance's slots by index. A slot beyond the capacity is among
// them as long as somebody has it. They are not to be changed.
func (v *View) slotsOf(in *akriv0.Instance) []Slot { return v.slots().ofInstance[in.Name] }

func (v *View) appendSlots(all []Slot, in *akriv0.Instance) []Slot {
	count := v.capacity(in)
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
	s := Slot{Name: name.String(), InstanceNamespace: in.Namespace, Labels: in.Labels, Instance: in.Name, Configuration: in.Spec.ConfigurationName, Device: v.deviceID(in), State: Free}
	if c := v.claims[s.Name]; c != nil {
		s.State, s.Node, s.Container, s.Level, s.Since = Held, c.Spec.NodeName, c.Spec.Container, string(c.Spec.Level), c.CreationTimestamp.Time
		if p := c.Spec.Pod; p != nil {
			s.Namespace, s.Pod, s.PodUID = p.Namespace, p.Name, string(p.UID)
		}
		return s
	}
	if grants := v.granted[s.Name]; len(grants) > 0 {
		g := grants[0]
		s.State, s.Namespace, s.Pod, s.Container, s.Node = Assigned, g.pod.Namespace, g.pod.Name, g.container, g.pod.Spec.NodeName
		s.PodUID, s.Level, s.Since = string(g.pod.UID), level(g.grant), scheduled(g.pod)
		if usage, err := slot.ParseUsage(in.Spec.DeviceUsage[s.Name]); err == nil && !usage.Free() && usage.Node == s.Node && len(v.objects.Claims) == 0 {
			s.State = Held // by what the Instance says, to a user who may not list claims
		}
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
