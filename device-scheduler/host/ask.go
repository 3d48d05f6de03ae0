package host

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"iter"
	"reflect"
	"sync"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
)

// Remote is a device scheduler that is asked about many nodes in one call, which takes long compared
// with a function's, and may fail. It is asked nothing but Fit and PodAllocate about pods, and those
// only about pods that concern it. All methods may be called concurrently. Errors name the plugin.
type Remote interface {
	devicescheduler.DeviceScheduler
	// Concerns reports whether the plugin has a say about the pod. An error is why it cannot be asked
	// although it has.
	Concerns(pod *types.PodInfo) (bool, error)
	// Recognizes reports whether the plugin answers for requests under the name.
	Recognizes(name types.ResourceName) bool
	// Fit says of each node whether the pod, as the plugins before translated it, fits it. The pod's
	// NodeName counts for nothing: nodes that are equal but for their names are asked for once.
	Fit(pod *types.PodInfo, nodes []*Node) ([]Verdict, error)
	// SetNode gives a node that is new or has changed, with Used, or is gone: see Known. It must be
	// quick.
	SetNode(n *Node)
}

// Verdict is what a plugin says of a node.
type Verdict struct {
	OK      bool
	Reasons []Reason // why not
	Score   float64
	Pod     *types.PodInfo // with what the plugin changes in it
}

const (
	// maxChunk is how many nodes a Remote is asked about in one call: about what one of the
	// framework's 16 workers looks at in one go of 5,000 nodes.
	maxChunk = 64
	// maxAhead is how many nodes are looked at for those of a chunk: equal ones are asked for once.
	maxAhead = 512
)

// Ask is a pod's question in one scheduling cycle. What Remotes answer for a node is remembered in
// it for nodes that are equal but for their names. It is safe for concurrent use.
type Ask struct {
	host  *Host
	pod   *types.PodInfo
	ahead func(node string) iter.Seq[string]

	mu       sync.Mutex
	memories map[*plugin]*memory
}

// memory is what a Remote has answered to an Ask.
type memory struct {
	// concerned and fault, at first, are about the pod on any node.
	concerned bool

	mu sync.Mutex
	// fault is what went wrong first: the plugin is then asked no more.
	fault *Fault
	// answers wait for the call that they are of, and the first makes it.
	answers map[question]answer
}

type answer func() (Verdict, *Fault)

// question is what a verdict depends on in a cycle.
type question struct {
	class class
	pod   string // as plugins before have translated it; "" if they have not
}

// class is the same for nodes that are equal but for their names.
type class [sha256.Size]byte

// classOf is made when it is first asked for: only Remotes need it.
func (n *Node) classOf() class {
	n.classify.Do(func() {
		i := n.info
		text, _ := json.Marshal([]any{i.Capacity, i.Allocatable, i.Used, i.KubeCap, i.KubeAlloc, i.Scorer})
		n.class = sha256.Sum256(text) // numbers by names have no error
	})
	return n.class
}

// Ask returns the pod's question. The pod has Requests, Scorer and KubeRequests, and is not changed.
// ahead yields the names of nodes that are likely to be asked for next after a node, so that Remotes
// are asked about them together; it may be nil.
func (h *Host) Ask(pod *types.PodInfo, ahead func(node string) iter.Seq[string]) *Ask {
	return &Ask{host: h, pod: pod, ahead: ahead, memories: map[*plugin]*memory{}}
}

// Fits asks whether the pod fits the node.
func (a *Ask) Fits(n *Node) Fit {
	if reasons := n.unknown(); len(reasons) > 0 {
		return Fit{Reasons: reasons}
	}
	written := fresh(a.pod, n.name)
	p := written
	fit := Fit{OK: true}
	for _, plug := range n.set.plugins {
		got, fault := a.ask(plug, n, written, p)
		if fault != nil {
			// The pod may be half translated: what others say of it is worth nothing.
			return Fit{Reasons: append(fit.Reasons, Reason{Plugin: plug.name, Text: fault.reason(), Fault: fault})}
		}
		p = got.Pod
		fit.OK = fit.OK && got.OK
		fit.Score += got.Score
		fit.Reasons = append(fit.Reasons, got.Reasons...)
	}
	if group := n.set.group; fit.OK && group != nil {
		ok, reasons, score := group.PodFitsDevice(n.info, p, false)
		fit.OK = ok
		fit.Score += score
		fit.Reasons = append(fit.Reasons, values(group.GetName(), reasons)...)
	}
	if !fit.OK {
		fit.Score = 0
	}
	return fit
}

// ask asks one plugin about the pod, as its author wrote it and as plugins before have translated it.
func (a *Ask) ask(p *plugin, n *Node, written, pod *types.PodInfo) (Verdict, *Fault) {
	if p.remote == nil {
		return p.fits(n.info, pod)
	}
	m := a.memory(p)
	if !m.concerned {
		return Verdict{OK: true, Pod: pod}, nil
	}
	got, fault := m.answer(a, p, n, pod, !reflect.DeepEqual(written, pod))()
	if fault != nil {
		return Verdict{}, fault
	}
	var err error
	if got.Pod, err = adopt(pod, got.Pod); err != nil {
		about := about{method: "PodFitsDevice", node: n.name, pod: pod.Name}
		return Verdict{}, p.fault(about, fmt.Errorf("plugin %q: %w", p.name, err))
	}
	return p.explained(got), nil
}

// concerned reports whether the plugin is to be asked about the pod: those that are functions are.
func (p *plugin) concerned(pod *types.PodInfo) (bool, *Fault) {
	if p.remote == nil {
		return true, nil
	}
	concerned, err := p.remote.Concerns(pod)
	if err != nil {
		return true, p.report(about{method: "PodFitsDevice", pod: pod.Name}, Away, err)
	}
	return concerned, nil
}

func (a *Ask) memory(p *plugin) *memory {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := a.memories[p]
	if m == nil {
		m = &memory{answers: map[question]answer{}}
		m.concerned, m.fault = p.concerned(a.pod)
		a.memories[p] = m
	}
	return m
}

// answer returns what says what the plugin answers about the node, as it was asked before or as it is to be
// asked together with others.
func (m *memory) answer(a *Ask, p *plugin, n *Node, pod *types.PodInfo, translated bool) answer {
	q := question{class: n.classOf()}
	if translated {
		q.pod = translation(pod)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.answers[q]; known != nil {
		return known
	}
	if fault := m.fault; fault != nil {
		return func() (Verdict, *Fault) { return Verdict{}, fault }
	}
	nodes := []*Node{n}
	fit := sync.OnceValues(func() ([]Verdict, *Fault) { return m.fit(p, pod, nodes) })
	m.answers[q] = verdict(fit, 0)
	if a.ahead == nil || translated || a.host.Node(n.name) != n { // else another's is another question
		return m.answers[q]
	}
	seen := 0
	for name := range a.ahead(n.name) {
		if seen++; seen > maxAhead || len(nodes) == maxChunk {
			break
		}
		other := a.host.Node(name)
		if other == nil || len(other.failed) > 0 {
			continue
		}
		if q := (question{class: other.classOf()}); m.answers[q] == nil {
			m.answers[q] = verdict(fit, len(nodes))
			nodes = append(nodes, other)
		}
	}
	return m.answers[q]
}

// verdict is the answer about the node of the index.
func verdict(fit func() ([]Verdict, *Fault), i int) answer {
	return func() (Verdict, *Fault) {
		verdicts, fault := fit()
		if fault != nil {
			return Verdict{}, fault
		}
		return verdicts[i], nil
	}
}

// fit asks the plugin about the nodes.
func (m *memory) fit(p *plugin, pod *types.PodInfo, nodes []*Node) ([]Verdict, *Fault) {
	about := about{method: "PodFitsDevice", pod: pod.Name}
	verdicts, fault := call(p, about, func(devicescheduler.DeviceScheduler) ([]Verdict, error) {
		return p.remote.Fit(pod, nodes)
	})
	if fault != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.fault = fault
	}
	return verdicts, fault
}

// translation is the pod as plugins have translated it, but for its node.
func translation(pod *types.PodInfo) string {
	anywhere := *pod
	anywhere.NodeName = ""
	text, _ := json.Marshal(&anywhere) // numbers and strings have no error
	return string(text)
}
