package brokers

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

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
	scheduler  string                    // of brokers whose spec names none; "" is the cluster's default
	priority   string                    // the PriorityClass of brokers whose spec names none; "" is the cluster's default
	exists     limits.Places             // also of a former Instance of the name
	room       *limits.Room              // within the Configuration's limits; nil: there are none
	memory     memory
}

// memory is what no object says, or only those that are going. It is lost with the
// process: then a broker's failures count from what its pod or the Instance says, and
// Events are told again.
type memory struct {
	specHash string
	failures map[string]int          // in a row, by node
	seen     map[types.UID]time.Time // when a pod was seen first that has ended
	ended    map[string]string       // why the last broker ended, by node, until another is Ready
	// refused is how often in a row the API server refused to create a broker, last at
	// refusedAt, and why.
	refused   int
	refusal   Problem
	refusedAt time.Time
}

// plan is what to do about an Instance's brokers, in this order.
type plan struct {
	// due are the nodes whose broker has ended and is removed for its successor, and how
	// many have failed there in a row, which the Instance has to say before.
	due    map[string]int
	remove []removal
	// replace are Ready brokers of an earlier spec: they go when it is their turn.
	replace []removal
	adopt   []*corev1.Pod // as they should be: with our annotations
	create  []*corev1.Pod
	after   time.Duration // look again; 0: only when something changes

	desired, ready int
	outdated       int // of an earlier spec
	withheld       int // for lack of room
	problem        *Problem
	notReady       NotReady
	news           []news
	memory         memory
}

type removal struct {
	pod  *corev1.Pod
	node string
	why  string
}

// news is something that a user should read once.
type news struct{ reason, action, message string }

// leftAlone is when a surplus broker is looked at again whose node is not Ready.
const leftAlone = 10 * time.Second

const brokerEnded = "BrokerEnded"

// Problem keeps an Instance from having its brokers.
type Problem struct{ Reason, Message string }

// Reasons of problems, in conditions and Events.
const (
	InvalidSpec     = "InvalidBrokerSpec"
	UnknownTemplate = "UnknownTemplate"
	TooManySlots    = "BrokerNeedsMoreSlots"
	NameTaken       = "BrokerNameTaken"
	NotCreated      = "BrokerNotCreated"
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
			p.removeUnlessGoing(pod, "", "its Configuration has no broker pod")
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
		p.removeUnlessGoing(pod, "", "it is not the broker of a node that reaches the device")
	}
	if len(on)+len(surplus) < len(f.pods) { // some are left alone, on nodes that nothing tells of
		p.lookAgain(leftAlone)
	}
	p.outdated = f.countOutdated(on)
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
			p.removeUnlessGoing(pod, node, "there are brokers enough")
		}
	}
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
// that are not Ready.
func (f *facts) countOutdated(on map[string]*corev1.Pod) int {
	outdated := 0
	for node, pod := range on {
		if pod.Annotations[naming.SpecHash] != "" && !f.isCurrent(pod) && !isEnded(pod) && f.nodes[node].Ready {
			outdated++
		}
	}
	return outdated
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
		if adopted.Annotations == nil {
			adopted.Annotations = map[string]string{}
		}
		adopted.Annotations[naming.SpecHash] = f.spec.hash
		if h := f.propertiesHash(); h != "" {
			adopted.Annotations[naming.PropertiesHash] = h
		}
		p.adopt = append(p.adopt, adopted)
	case !f.isCurrent(pod):
		if _, err := renderPod(f, node, 0); err != nil { // there would be no successor
			p.problem = &Problem{UnknownTemplate, err.Error()}
			return
		}
		if r := (removal{pod, node, "it is of an earlier spec"}); isReady(pod) {
			p.replace = append(p.replace, r)
		} else {
			p.remove = append(p.remove, r)
		}
	}
}

// isCurrent reports whether a pod is of the spec and the properties as they are now.
func (f *facts) isCurrent(pod *corev1.Pod) bool {
	return pod.Annotations[naming.SpecHash] == f.spec.hash && pod.Annotations[naming.PropertiesHash] == f.propertiesHash()
}

// make creates a node's broker, unless the API server refused the last one just now.
func (p *plan) make(f *facts, node string) {
	if p.memory.refused > 0 {
		if wait := p.memory.refusedAt.Add(delay(p.memory.refused, maxRefusedDelay)).Sub(f.now); wait > 0 {
			p.problem = &p.memory.refusal
			p.lookAgain(wait)
			return
		}
	}
	pod, err := renderPod(f, node, p.memory.failures[node])
	if err != nil {
		p.problem = &Problem{UnknownTemplate, err.Error()}
		return
	}
	p.create = append(p.create, pod)
}

// succeed removes a pod that has ended when its successor is due.
func (p *plan) succeed(f *facts, node string, pod *corev1.Pod) {
	if hash := pod.Annotations[naming.SpecHash]; hash != "" && hash != f.spec.hash {
		p.remove = append(p.remove, removal{pod, node, "it has ended, and was of an earlier spec"})
		return
	}
	wait := delay(p.memory.failures[node], maxDelay)
	if _, told := f.memory.seen[pod.UID]; !told {
		p.news = append(p.news, news{brokerEnded, "RestartBroker", fmt.Sprintf(
			"Broker %s on node %s ended: %s. Its successor comes after %s", pod.Name, node, whyEnded(pod), wait)})
	}
	left := endedAt(pod, p.memory.seen[pod.UID]).Add(wait).Sub(f.now)
	if left > 0 {
		p.lookAgain(left)
		return
	}
	p.remove = append(p.remove, removal{pod, node, "it has ended, and its successor is due"})
	if p.due == nil {
		p.due = map[string]int{}
	}
	p.due[node] = p.memory.failures[node]
}

func (p *plan) lookAgain(after time.Duration) {
	if p.after == 0 || after < p.after {
		p.after = after
	}
}

func (p *plan) removeUnlessGoing(pod *corev1.Pod, node, why string) {
	if pod.DeletionTimestamp == nil {
		p.remove = append(p.remove, removal{pod, node, why})
	}
}

// notedNow is what the Instance has to say before the pods that are due are removed:
// of their nodes, and of those whose broker has no successor yet.
func (f *facts) notedNow(due map[string]int) string {
	now := noted{Spec: f.spec.hash, Failures: map[string]int{}}
	on, _ := f.byNode()
	for node, failures := range notedFailures(f.instance, f.spec.hash) {
		if on[node] == nil && slices.Contains(f.reach, node) {
			now.Failures[node] = failures
		}
	}
	maps.Copy(now.Failures, due)
	return now.text()
}

// next is what is to be remembered from now on: of nodes and pods that there are.
func (m memory) next(f *facts) memory {
	n := memory{failures: map[string]int{}, seen: map[types.UID]time.Time{}, ended: map[string]string{}}
	if f.spec == nil || f.spec.err != nil {
		return n
	}
	before := m.failures
	switch n.specHash = f.spec.hash; m.specHash {
	case n.specHash:
		n.refused, n.refusedAt, n.refusal = m.refused, m.refusedAt, m.refusal
	case "": // this process has just begun
		before = notedFailures(f.instance, n.specHash)
	default:
		before = nil
	}
	for _, node := range f.reach {
		if before[node] > 0 {
			n.failures[node] = before[node]
			n.ended[node] = m.ended[node]
		}
	}
	on, _ := f.byNode()
	for node, pod := range on {
		hash := pod.Annotations[naming.SpecHash]
		switch {
		// Its failures are not its successor's. Of other properties they are: these may
		// change all the time.
		case hash != "" && hash != f.spec.hash:
			delete(n.failures, node)
			delete(n.ended, node)
			continue
		case isEnded(pod):
			n.failures[node], n.ended[node] = failures(pod), reasonEnded(pod)
			if n.seen[pod.UID] = f.now; !m.seen[pod.UID].IsZero() {
				n.seen[pod.UID] = m.seen[pod.UID]
			}
		default:
			if n.failures[node] = failuresBefore(pod); n.failures[node] == 0 || isReady(pod) {
				delete(n.ended, node)
			}
		}
	}
	return n
}
