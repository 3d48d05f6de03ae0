package view

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Objects are what a view is made of: those that the user may list, nil for what he may not. Pods
// are those of one namespace or of all, or of them at least those that hold slots, are pending, or are explained, and
// kubecri's of their nodes: see source.Wanted. Whoever holds a slot is shown by name also if his pod is
// not among them, when Claims are.
type Objects struct {
	Configurations []akriv0.Configuration
	Instances      []akriv0.Instance
	Slices         []v1alpha1.DeviceSlice
	Claims         []v1alpha1.SlotClaim
	Pods           []corev1.Pod
	Nodes          []corev1.Node
	// ResourceClaims and DeviceClasses are read where DRA gives devices. Who may not list them is shown the
	// names of the claims that hold slots, and no more.
	ResourceClaims []resourceapi.ResourceClaim
	DeviceClasses  []resourceapi.DeviceClass
	// PodsOf is the namespace that Pods are of, and ConfigurationsOf that of Configurations; "" is all.
	PodsOf, ConfigurationsOf string
	// Held returns what a bound pod was given, by container; nil is assignment.Held, which
	// decodes it.
	Held func(pod *corev1.Pod) (map[string][]assignment.Grant, error)
	// Refused are read for `pod` and doctor alone.
	Refused []Refused
	// Cluster is read for doctor alone.
	Cluster *Cluster
}

// View is the objects, joined. It does not change, and is safe for concurrent use.
type View struct {
	objects        Objects
	configurations map[string]*akriv0.Configuration      // those in force, by name
	oldest         akriv0.Oldest                         // says who has a name
	instances      map[string]*akriv0.Instance           // by name: namespaces do not tell them apart
	of             map[string][]*akriv0.Instance         // by Configuration, ordered by name
	devices        map[string]device                     // by Instance
	claims         map[string]*v1alpha1.SlotClaim        // by slot
	resourceClaims map[string]*resourceapi.ResourceClaim // by namespace/name
	granted        map[string][]grant                    // by slot: more than one is an error
	used           map[string]map[int]bool               // indices that are mentioned, by Instance
	broken         map[*corev1.Pod]error                 // pods whose assignment cannot be read
	pods           map[string]*corev1.Pod                // by UID
	assigned       map[*corev1.Pod]bool                  // pods that have slots
	nodesByName    map[string]*corev1.Node
	reporting      map[string]bool // nodes that have a DeviceSlice

	indexed    sync.Once
	index      slotIndex // see slots
	parsed     sync.Map  // of the scheduler's messages, what they mean
	accounted  sync.Once
	ledger     *ledger.Ledger // see account
	selecting  sync.Mutex
	selections map[string][]string // see selected
	counted    sync.Once
	inUse      map[string]corev1.ResourceList // see requested
	listed     sync.Once
	onNodes    map[corev1.ResourceName]bool // see advertised
	positioned sync.Once
	positions  map[string]int // of pods, by namespace/name; see podAt
	diagnosing sync.Mutex
	diagnoses  map[string]diagnosis // see diagnosed
	heard      sync.Once
	said       map[v1alpha1.ConfigurationReference][]nodeProblem // see nodesSay
	placed     sync.Once
	// By node, see kubecriOf and anyKubecri.
	kubecris, kubecriPods map[string]*corev1.Pod
}

// device is what slices say of an Instance.
type device struct {
	id    string
	nodes []string // that report it, sorted
	lost  []string // of these, those whose handler does not answer
	gone  []string // that list it only for the containers that hold slots of it
}

// grant is a slot in a bound pod's annotation.
type grant struct {
	pod        *corev1.Pod
	containers []string // in order; several where a later container uses an init container's
	grant      assignment.Grant
}

// New joins the objects.
func New(o Objects) *View {
	v := &View{objects: o, configurations: map[string]*akriv0.Configuration{}, instances: map[string]*akriv0.Instance{},
		of: map[string][]*akriv0.Instance{}, devices: map[string]device{}, claims: map[string]*v1alpha1.SlotClaim{},
		granted: map[string][]grant{}, used: map[string]map[int]bool{}, broken: map[*corev1.Pod]error{}, pods: map[string]*corev1.Pod{}, assigned: map[*corev1.Pod]bool{}, nodesByName: make(map[string]*corev1.Node, len(o.Nodes)),
		reporting: map[string]bool{}, resourceClaims: make(map[string]*resourceapi.ResourceClaim,
			len(o.ResourceClaims))}
	all := make([]*akriv0.Configuration, len(o.Configurations))
	for i := range o.Configurations {
		all[i] = &o.Configurations[i]
	}
	v.oldest = akriv0.OldestOf(all)
	for _, c := range all {
		if v.oldest.InForce(c.Name) == c {
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
	for i := range o.Nodes {
		v.nodesByName[o.Nodes[i].Name] = &o.Nodes[i]
	}
	for i := range o.Slices {
		v.addSlice(&o.Slices[i])
	}
	for i := range o.Claims {
		v.claims[o.Claims[i].Name] = &o.Claims[i]
		v.use(o.Claims[i].Name)
	}
	for i := range o.ResourceClaims {
		v.resourceClaims[o.ResourceClaims[i].Namespace+"/"+o.ResourceClaims[i].Name] = &o.ResourceClaims[i]
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
	v.reporting[s.Spec.NodeName] = true
	for i := range s.Spec.Devices {
		reported := &s.Spec.Devices[i]
		if reported.Check(s.Spec.NodeName) != nil {
			continue
		}
		d := v.devices[reported.Instance()]
		d.id = reported.ID
		if reported.Gone {
			d.gone = append(d.gone, s.Spec.NodeName)
			v.devices[reported.Instance()] = d
			continue
		}
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
			at := slices.IndexFunc(v.granted[name], func(o grant) bool { return o.pod == pod })
			if at < 0 {
				v.granted[name] = append(v.granted[name], grant{pod, []string{container}, g})
				continue
			}
			v.granted[name][at].containers = append(v.granted[name][at].containers, container)
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

func (v *View) nodeSet() map[string]bool {
	names := map[string]bool{}
	for i := range v.objects.Nodes {
		names[v.objects.Nodes[i].Name] = true
	}
	return names
}

// nodeNames are the nodes that are known of, in order.
func (v *View) nodeNames() []string {
	names := map[string]bool{}
	for i := range v.objects.Nodes {
		names[v.objects.Nodes[i].Name] = true
	}
	if len(names) == 0 {
		for i := range v.objects.Slices {
			names[v.objects.Slices[i].Spec.NodeName] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// choosesSlots reports whether the node gives out slots itself: its pods get no
// assignment, and its claims name no pods.
func (v *View) choosesSlots(node string) bool {
	n := v.nodesByName[node]
	return n != nil && v1alpha1.ChoosesSlots(n)
}

// HasPod reports whether Pod knows the pod, at less cost.
func (v *View) HasPod(namespace, name string) bool { return v.podAt(namespace, name) >= 0 }

// podAt is where the pod is among the objects; negative when it is not there.
func (v *View) podAt(namespace, name string) int {
	v.positioned.Do(func() {
		v.positions = make(map[string]int, len(v.objects.Pods))
		for i := range v.objects.Pods {
			v.positions[v.objects.Pods[i].Namespace+"/"+v.objects.Pods[i].Name] = i
		}
	})
	if at, known := v.positions[namespace+"/"+name]; known {
		return at
	}
	return -1
}

// preemptor is how kube-scheduler names a pod in its events.
var preemptor = regexp.MustCompile(`\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`)

// named puts the names of pods beside their UIDs.
func (v *View) named(text string) string {
	return preemptor.ReplaceAllStringFunc(text, func(uid string) string {
		if pod := v.pods[uid]; pod != nil {
			return pod.Namespace + "/" + pod.Name
		}
		return uid
	})
}

// podOf names the pod that uses the claim's slot.
func (v *View) podOf(c *v1alpha1.SlotClaim) string {
	p := v.userOf(c)
	if p == nil {
		return "(not known)"
	}
	return p.Namespace + "/" + p.Name
}

// userOf is the pod that uses the claim's slot: the one that it names, the first of a ResourceClaim's or, where the
// kubelet gives out slots, the one that its node has seen to use it; nil when none is known.
func (v *View) userOf(c *v1alpha1.SlotClaim) *v1alpha1.PodReference {
	if c.Spec.Pod != nil {
		return c.Spec.Pod
	}
	if users := v.usersOf(c); len(users) > 0 {
		return &users[0]
	}
	namespace, name, shown := strings.Cut(c.Annotations[v1alpha1.PodAnnotation], "/")
	if !shown {
		return nil
	}
	p := &v1alpha1.PodReference{Namespace: namespace, Name: name}
	if at := v.podAt(namespace, name); at >= 0 && v.objects.Pods[at].Spec.NodeName == c.Spec.NodeName {
		p.UID = v.objects.Pods[at].UID
	}
	return p
}
