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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"

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
	// PodsOf is the namespace that Pods are of, and so of the others; "" is all.
	PodsOf, ConfigurationsOf, ResourceClaimsOf string
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
	configurations map[string]*akriv0.Configuration // those in force, by name
	oldest         akriv0.Oldest                    // says who has a name
	instances      map[string]*akriv0.Instance      // by name: namespaces do not tell them apart
	of             map[string][]*akriv0.Instance    // by Configuration, ordered by name
	devices        map[string]device                // by Instance
	claims         map[string]*v1alpha1.SlotClaim   // by slot
	deviceClasses  map[string]*resourceapi.DeviceClass
	resourceClaims map[string]*resourceapi.ResourceClaim         // by namespace/name
	granted        map[string][]grant                            // by slot: more than one is an error
	used           map[string]map[int]bool                       // indices that are mentioned, by Instance
	broken         map[*corev1.Pod]error                         // pods whose assignment cannot be read
	pods           map[string]*corev1.Pod                        // by UID
	held           map[*corev1.Pod]map[string][]assignment.Grant // of pods that have slots, by container
	nodesByName    map[string]*corev1.Node
	reporting      map[string]bool // nodes that have a DeviceSlice

	parsed     sync.Map // of the scheduler's messages, what they mean
	required   sync.Map // of annotations that require NRI plugins, the names in them
	selections sync.Map // of Configurations, the nodes that spec.discovery selects
	diagnosing sync.Mutex
	diagnoses  map[string]diagnosis // see diagnosed

	// These are made when they are first asked for.
	slots      func() *slotIndex
	listed     func() []Slot // see Slots
	account    func() *ledger.Ledger
	inUse      func() map[string]corev1.ResourceList // by node, see requested
	advertised func() map[corev1.ResourceName]bool
	podsByName func() map[string]*corev1.Pod // by namespace/name
	said       func() map[v1alpha1.ConfigurationReference][]nodeProblem
	kubecris   func() kubecris
	plugins    func() sets.Set[string] // kubecri's names as an NRI plugin, of all nodes
	schedulers func() sets.Set[string] // of the pods that have slots
	preempting func() []string         // see preemptors
	anyChooses func() bool             // whether any node chooses slots itself
}

// device is what slices say of an Instance.
type device struct {
	id     string
	nodes  []string // that report it, sorted
	usable []string // of these, those whose handler answers, and lost the others
	lost   []string
	gone   []string // that list it only for the containers that hold slots of it
}

// grant is a slot in a bound pod's annotation.
type grant struct {
	pod        *corev1.Pod
	containers []string // in order; several where a later container uses an init container's
	grant      assignment.Grant
}

// New joins the objects.
func New(o Objects) *View {
	if o.Held == nil {
		o.Held = assignment.Held
	}
	v := &View{objects: o, configurations: map[string]*akriv0.Configuration{}, of: map[string][]*akriv0.Instance{},
		instances:      index(o.Instances, (*akriv0.Instance).GetName),
		nodesByName:    index(o.Nodes, (*corev1.Node).GetName),
		claims:         index(o.Claims, (*v1alpha1.SlotClaim).GetName),
		deviceClasses:  index(o.DeviceClasses, (*resourceapi.DeviceClass).GetName),
		resourceClaims: index(o.ResourceClaims, fullName),
		pods:           index(o.Pods, func(p *corev1.Pod) string { return string(p.UID) }),
		devices:        map[string]device{}, reporting: map[string]bool{}, granted: map[string][]grant{},
		held: map[*corev1.Pod]map[string][]assignment.Grant{}, broken: map[*corev1.Pod]error{},
		used: map[string]map[int]bool{}, diagnoses: map[string]diagnosis{}}
	v.slots, v.listed = sync.OnceValue(v.indexSlots), sync.OnceValue(v.listSlots)
	v.account, v.inUse = sync.OnceValue(v.makeLedger), sync.OnceValue(v.requested)
	v.advertised, v.said = sync.OnceValue(v.advertisedAnywhere), sync.OnceValue(v.nodesSay)
	v.kubecris, v.plugins = sync.OnceValue(v.findKubecris), sync.OnceValue(v.namePlugins)
	v.schedulers, v.preempting = sync.OnceValue(v.nameSchedulers), sync.OnceValue(v.preemptors)
	v.podsByName = sync.OnceValue(func() map[string]*corev1.Pod { return index(o.Pods, fullName) })
	v.anyChooses = sync.OnceValue(func() bool {
		return slices.ContainsFunc(o.Nodes, func(n corev1.Node) bool { return v1alpha1.ChoosesSlots(&n) })
	})
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
		v.of[in.Spec.ConfigurationName] = append(v.of[in.Spec.ConfigurationName], in)
		for name, usage := range in.Spec.DeviceUsage {
			if usage != "" {
				v.use(name)
			}
		}
	}
	for _, all := range v.of {
		slices.SortFunc(all, func(a, b *akriv0.Instance) int { return cmp.Compare(a.Name, b.Name) })
	}
	for i := range o.Slices {
		v.addSlice(&o.Slices[i])
	}
	for name, d := range v.devices { // slices come in any order, and a node may list a device twice
		for _, nodes := range []*[]string{&d.nodes, &d.usable, &d.lost} {
			slices.Sort(*nodes)
			*nodes = slices.Compact(*nodes)
		}
		v.devices[name] = d
	}
	for name := range v.claims {
		v.use(name)
	}
	for i := range o.Pods {
		v.addPod(&o.Pods[i])
	}
	for name, grants := range v.granted { // the first keeps it, as the scheduler decides
		claimed := func(g grant) int {
			if c := v.claims[name]; c != nil && c.Spec.Holder == string(g.pod.UID) {
				return 0
			}
			return 1
		}
		slices.SortFunc(grants, func(a, b grant) int {
			return cmp.Or(claimed(a)-claimed(b), scheduled(a.pod).Compare(scheduled(b.pod)),
				cmp.Compare(a.pod.UID, b.pod.UID))
		})
	}
	return v
}

// index is the objects by their keys.
func index[T any](objects []T, key func(*T) string) map[string]*T {
	all := make(map[string]*T, len(objects))
	for i := range objects {
		all[key(&objects[i])] = &objects[i]
	}
	return all
}

// fullName is the object's namespace/name.
func fullName[O metav1.Object](of O) string { return of.GetNamespace() + "/" + of.GetName() }

// once is what is made of the key, which is made once.
func once[V any](of *sync.Map, key string, make func(key string) V) V {
	if known, ok := of.Load(key); ok {
		return known.(V)
	}
	made := make(key)
	of.Store(key, made)
	return made
}

func (v *View) addSlice(s *v1alpha1.DeviceSlice) {
	node := s.Spec.NodeName
	v.reporting[node] = true
	for i := range s.Spec.Devices {
		reported := &s.Spec.Devices[i]
		name := reported.Instance()
		if reported.Check(node) != nil || isAnother(reported, v.instances[name]) {
			continue
		}
		d := v.devices[name]
		d.id = reported.ID
		switch {
		case reported.Gone:
			d.gone = append(d.gone, node)
		case reported.Unschedulable:
			d.nodes, d.lost = append(d.nodes, node), append(d.lost, node)
		default:
			d.nodes, d.usable = append(d.nodes, node), append(d.usable, node)
		}
		v.devices[name] = d
	}
}

// isAnother reports whether the device is another than that of the Instance of its name: their ids have the same
// hash, and the controller has given the name to the other.
func isAnother(reported *v1alpha1.Device, in *akriv0.Instance) bool {
	return in != nil && in.Status.Device != "" && (in.Status.Device != reported.ID || in.Spec.Shared != reported.Shared)
}

func (v *View) addPod(pod *corev1.Pod) {
	if ended(pod) || pod.Spec.NodeName == "" {
		return
	}
	held, err := v.objects.Held(pod)
	if err != nil {
		v.broken[pod] = err
	}
	if len(held) > 0 {
		v.held[pod] = held
	}
	for _, container := range slices.Sorted(maps.Keys(held)) {
		for _, g := range held[container] {
			name := g.Slot.String()
			v.use(name)
			at := slices.IndexFunc(v.granted[name], func(o grant) bool { return o.pod == pod })
			if at < 0 {
				v.granted[name] = append(v.granted[name], grant{pod, []string{container}, g})
				continue
			}
			v.granted[name][at].containers = append(v.granted[name][at].containers, container)
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

// nodeNames are the nodes that are known of, in order.
func (v *View) nodeNames() []string {
	if len(v.nodesByName) > 0 {
		return slices.Sorted(maps.Keys(v.nodesByName))
	}
	return slices.Sorted(maps.Keys(v.reporting))
}

// choosesSlots reports whether the node gives out slots itself: its pods get no
// assignment, and its claims name no pods.
func (v *View) choosesSlots(node string) bool {
	n := v.nodesByName[node]
	return n != nil && v1alpha1.ChoosesSlots(n)
}

// HasPod reports whether Pod knows the pod, at less cost.
func (v *View) HasPod(namespace, name string) bool { return v.podsByName()[namespace+"/"+name] != nil }

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

// podOf names the pod that uses the claim's slot, or the first of them.
func (v *View) podOf(c *v1alpha1.SlotClaim) string {
	users := v.usersOf(c)
	if len(users) == 0 {
		return "(not known)"
	}
	return users[0].Namespace + "/" + users[0].Name
}

// usersOf are the pods that use the claim's slot: the one that it names, those of its ResourceClaim by name or, where
// the kubelet gives out slots, the one that its node has seen to use it; none when none is known.
func (v *View) usersOf(c *v1alpha1.SlotClaim) (all []v1alpha1.PodReference) {
	if c.Spec.Pod != nil {
		return []v1alpha1.PodReference{*c.Spec.Pod}
	}
	if claim := v.resourceClaimOf(c); claim != nil {
		for _, r := range claim.Status.ReservedFor {
			if r.APIGroup == "" && r.Resource == "pods" {
				all = append(all, v1alpha1.PodReference{Namespace: claim.Namespace, Name: r.Name, UID: r.UID})
			}
		}
		slices.SortFunc(all, func(a, b v1alpha1.PodReference) int { return cmp.Compare(a.Name, b.Name) })
		return all
	}
	user := c.Annotations[v1alpha1.PodAnnotation]
	namespace, name, shown := strings.Cut(user, "/")
	// The node has written it: no other text is to get into a command that people copy.
	if !shown || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return nil
	}
	p := v1alpha1.PodReference{Namespace: namespace, Name: name}
	if pod := v.podsByName()[user]; pod != nil && pod.Spec.NodeName == c.Spec.NodeName {
		p.UID = pod.UID
	}
	return []v1alpha1.PodReference{p}
}
