package brokers

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kubeslot/kubeslot/controller/inventory"
	"github.com/kubeslot/kubeslot/controller/limits"
	"github.com/kubeslot/kubeslot/controller/naming"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// facts are what there is to know of an Instance's brokers.
type facts struct {
	now           time.Time
	instance      *akriv0.Instance
	configuration *akriv0.Configuration // owns the Instance's name
	spec          *spec                 // nil: the Configuration wants no broker
	// reported is set while a node reports the device.
	reported   bool
	shared     bool
	properties map[string]string         // of the device and the Configuration
	reach      []string                  // nodes that reach the device
	lost       map[string]struct{}       // those that do not know whether it is there
	nodes      map[string]inventory.Node // those, and the pods'; one that is missing does not exist
	pods       []*corev1.Pod             // owned by the Instance
	formers    sets.Set[string]          // pods of a former Instance of the name, which are going
	scheduler  string                    // of brokers whose spec names none; "" is the cluster's default
	priority   string                    // the PriorityClass of brokers whose spec names none; "" is the cluster's default
	exists     limits.Places             // also of a former Instance of the name
	room       *limits.Room              // within the Configuration's limits; nil: there are none
	memory     memory
	// templateMade is set when the template of the brokers' ResourceClaims is there.
	templateMade bool
}

// plan is what to do about an Instance's brokers, in this order.
type plan struct {
	// due are the nodes whose broker is removed for its successor, and the failures that the
	// successor counts, which the Instance has to say before.
	due    map[string]int
	remove []removal
	// replace are Ready brokers of an earlier spec or of other properties: they go when it is
	// their turn.
	replace []removal
	adopt   []*corev1.Pod // as they should be: with our annotations
	create  []*corev1.Pod
	notMade []string      // nodes whose broker cannot be made now
	steps   []step        // of the roll-out
	after   time.Duration // look again; 0: only when something changes

	desired, ready int
	outdated       int // of an earlier spec or of other properties, on nodes that are Ready
	updated        int // neither
	withheld       int // for lack of room
	problem        *Problem
	notReady       NotReady
	restarts       []string // what Events say of brokers that ended
	memory         memory
}

type removal struct {
	pod  *corev1.Pod
	why  string
	node string // of one that waits for its turn
	// failures that the successor counts; 0: none.
	failures int
}

// leftAlone is when a surplus broker is looked at again whose node is not Ready.
const leftAlone = 10 * time.Second

// Problem keeps an Instance from having its brokers.
type Problem struct{ Reason, Message string }

// Reasons of problems, in conditions and Events.
const (
	InvalidSpec     = "InvalidBrokerSpec"
	UnknownTemplate = "UnknownTemplate"
	TooManySlots    = "BrokerNeedsMoreSlots"
	NameTaken       = "BrokerNameTaken"
	NotCreated      = "BrokerNotCreated"
	// ChangingProperties is of a device whose brokers would be replaced all the time.
	ChangingProperties = "DevicePropertiesChange"
)

// propertiesHash is of the properties that the containers get; "" when they get none.
func (f *facts) propertiesHash() string {
	if !f.spec.usesProperties {
		return ""
	}
	return naming.Hash(propertiesText(f.properties))
}

// decide says what to do about broker pods.
func decide(f *facts) plan {
	p := plan{memory: f.memory.next(f)}
	if f.spec == nil || f.spec.err == nil && f.spec.pod == nil {
		for _, pod := range f.pods {
			p.removeUnlessGoing(pod, "its Configuration has no broker pod")
		}
		return p
	}
	on, surplus := f.byNode()
	p.ready = countReady(f, on)
	if f.spec.err != nil { // what runs is left as it is
		p.desired = min(f.configuration.Spec.Slots(), len(f.reach))
		p.problem = &Problem{InvalidSpec, f.spec.err.Error()}
		return p
	}
	for _, pod := range surplus {
		p.removeUnlessGoing(pod, "it is not the broker of a node that reaches the device")
	}
	if len(on)+len(surplus) < len(f.pods) { // some are left alone, on nodes that nothing tells of
		p.lookAgain(leftAlone)
	}
	p.outdated, p.updated = f.countOutdated(on)
	places := f.spec.places(f.configuration.Spec.Slots())
	if places == 0 && f.reported {
		p.problem = tooManySlots(f)
	}
	n := nodesFor(f.spec.pod, f.nodes)
	selected := 0
	for _, name := range f.reach {
		if n.selected(name) {
			selected++
		}
	}
	p.desired = min(places, selected)
	chosen := map[string]bool{}
	nodes, withheld := placement(f, n, places, on, p.memory.failures)
	f.room.Withhold(withheld)
	p.withheld = withheld
	for _, node := range nodes {
		chosen[node] = true
	}
	p.notReady = f.firstNotReady(on, chosen, p.memory.ended)
	for _, node := range f.reach {
		pod := on[node]
		switch known, exists := f.nodes[node]; {
		case chosen[node]:
			p.tend(f, node, pod)
		case pod == nil:
		case exists && !known.Ready && pod.Spec.NodeName != "":
			// What runs on a node that is not Ready is moved by eviction.
		case isEnded(pod) && len(chosen) == 0 && places > 0:
			// Its logs stay while there is no successor.
		default:
			p.removeUnlessGoing(pod, "there are brokers enough")
		}
	}
	p.steps = p.stepsOf(f)
	return p
}

func tooManySlots(f *facts) *Problem {
	return &Problem{TooManySlots, fmt.Sprintf("a broker requests %d slots of its Instance, which has %d: raise spec.capacity, or have the broker request fewer",
		f.spec.slots, f.configuration.Spec.Slots())}
}

// byNode returns the broker pod of each node that reaches the device, and the pods
// that are none. Pods on other nodes that exist and are not Ready are left alone.
func (f *facts) byNode() (on map[string]*corev1.Pod, surplus []*corev1.Pod) {
	on = map[string]*corev1.Pod{}
	labelled := make(map[string]string, len(f.reach))
	for _, node := range f.reach {
		labelled[naming.Cut(node)] = node
	}
	for _, pod := range f.pods {
		node := pod.Spec.NodeName
		if node == "" {
			node = labelled[pod.Labels[naming.TargetNode]]
		}
		_, reaches := slices.BinarySearch(f.reach, node)
		known, exists := f.nodes[node]
		switch {
		case reaches && pod.Name == naming.Pod(f.instance.Name, node, f.shared):
			on[node] = pod
		case exists && !known.Ready:
		default:
			surplus = append(surplus, pod)
		}
	}
	return on, surplus
}

func countReady(f *facts, on map[string]*corev1.Pod) int {
	ready := 0
	for node, pod := range on {
		if f.nodes[node].Ready && isReady(pod) {
			ready++
		}
	}
	return ready
}

// countOutdated counts the brokers of an earlier spec, but not Akri's and those on nodes
// that are not Ready, and the brokers that are as they should be.
func (f *facts) countOutdated(on map[string]*corev1.Pod) (outdated, updated int) {
	for node, pod := range on {
		switch {
		case isEnded(pod):
		case f.isCurrent(pod):
			if pod.DeletionTimestamp == nil {
				updated++
			}
		case pod.Annotations[naming.SpecHash] != "" && f.nodes[node].Ready:
			outdated++
		}
	}
	return outdated, updated
}

// tend sees to the broker of a node that is to have one.
func (p *plan) tend(f *facts, node string, pod *corev1.Pod) {
	switch {
	case pod == nil:
		p.make(f, node)
	case pod.DeletionTimestamp != nil: // its successor has the same name
	case isEnded(pod):
		p.succeed(f, node, pod)
	case pod.Annotations[naming.SpecHash] == "":
		// Akri made it. It is of this spec, as far as anybody knows.
		adopted := pod.DeepCopy()
		metav1.SetMetaDataAnnotation(&adopted.ObjectMeta, naming.SpecHash, f.spec.hash)
		if h := f.propertiesHash(); h != "" {
			adopted.Annotations[naming.PropertiesHash] = h
		}
		p.adopt = append(p.adopt, adopted)
	case !f.isCurrent(pod):
		if f.configuration.Spec.BrokerUpdatePaused() {
			return
		}
		if _, err := renderPod(f, node, 0); err != nil { // there would be no successor
			p.problem = &Problem{UnknownTemplate, err.Error()}
			return
		}
		r := removal{pod: pod, node: node, why: "it is of an earlier spec"}
		if pod.Annotations[naming.SpecHash] == f.spec.hash {
			failures, may := p.mayReplace(f, pod)
			if !may {
				return
			}
			r.why, r.failures = "the device has other properties", failures
		}
		// Brokers of the other allocator hold up the change, of which their successors wait for the end: they
		// cannot take turns.
		if isReady(pod) && usesClaim(pod) == (len(f.spec.requests) > 0) {
			p.replace = append(p.replace, r)
			return
		}
		p.remove = append(p.remove, r)
		if r.failures > 0 {
			p.isDue(node, pod, r.failures)
		}
	}
}

// isCurrent reports whether a pod is of the spec and the properties as they are now.
func (f *facts) isCurrent(pod *corev1.Pod) bool {
	return pod.Annotations[naming.SpecHash] == f.spec.hash && pod.Annotations[naming.PropertiesHash] == f.propertiesHash()
}

// make creates a node's broker, unless the API server refused the last one just now, or a former Instance's
// has its name: then there is an event when that is gone.
func (p *plan) make(f *facts, node string) {
	if f.formers.Has(naming.Pod(f.instance.Name, node, f.shared)) {
		return
	}
	if wait := p.memory.refusedFor(f.now); wait > 0 {
		p.problem = &p.memory.refusal
		p.notMade = append(p.notMade, node)
		p.lookAgain(wait)
		return
	}
	pod, err := renderPod(f, node, p.memory.failures[node])
	if err != nil {
		p.problem = &Problem{UnknownTemplate, err.Error()}
		p.notMade = append(p.notMade, node)
		return
	}
	p.create = append(p.create, pod)
}

// succeed removes a pod that has ended when its successor is due.
func (p *plan) succeed(f *facts, node string, pod *corev1.Pod) {
	if hash := pod.Annotations[naming.SpecHash]; hash != "" && hash != f.spec.hash {
		p.remove = append(p.remove, removal{pod: pod, why: "it has ended, and was of an earlier spec"})
		return
	}
	wait := delay(p.memory.failures[node], maxDelay)
	if f.memory.pods[pod.UID].ended.IsZero() {
		p.restarts = append(p.restarts, fmt.Sprintf(
			"Broker %s on node %s ended: %s. Its successor comes after %s", pod.Name, node, whyEnded(pod), wait))
	}
	left := p.memory.pods[pod.UID].ended.Add(wait).Sub(f.now)
	if left > 0 {
		p.lookAgain(left)
		return
	}
	p.remove = append(p.remove, removal{pod: pod, why: "it has ended, and its successor is due"})
	p.isDue(node, pod, p.memory.failures[node])
}

// isDue notes that a node's broker is removed, and the failures that its successor counts.
func (p *plan) isDue(node string, pod *corev1.Pod, failures int) {
	if p.due == nil {
		p.due = map[string]int{}
	}
	is := p.memory.pods[pod.UID]
	is.successor = failures
	p.due[node], p.memory.failures[node], p.memory.pods[pod.UID] = failures, failures, is
}

func (p *plan) lookAgain(after time.Duration) {
	if p.after == 0 || after < p.after {
		p.after = after
	}
}

func (p *plan) removeUnlessGoing(pod *corev1.Pod, why string) {
	if pod.DeletionTimestamp == nil {
		p.remove = append(p.remove, removal{pod: pod, why: why})
	}
}
