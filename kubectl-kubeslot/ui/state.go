package ui

import (
	"cmp"
	"encoding/hex"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/slot"
)

// State is what the page shows at one time. It does not change.
type State struct {
	Configurations []view.Configuration
	Devices        map[string]Device   // by Instance
	Reach          map[string][]string // sets of nodes; see Device.Reach
	Nodes          []Node
	Pods           []Pod
	Problems       []view.Finding
	// Missing are the resources that the user may not list.
	Missing []string
	// Error says why the state may be out of date; empty when it is not.
	Error string
}

// Device is an Instance and its slots, of which those that are not mentioned are free.
type Device struct {
	Name          string   `json:"name"` // the Instance's
	Namespace     string   `json:"namespace"`
	Configuration string   `json:"configuration"`
	ID            string   `json:"id,omitempty"`    // the discovery handler's
	Label         string   `json:"label,omitempty"` // its model and serial number, when it says its model
	Shared        bool     `json:"shared,omitempty"`
	Capacity      int      `json:"capacity"`
	Reach         string   `json:"reach"` // key of the nodes that reach it; empty when none does
	Taken         []Taken  `json:"taken,omitempty"`
	Problems      []string `json:"problems,omitempty"`
}

// Taken is a slot that is not free. There may be 100,000: the names are short.
type Taken struct {
	Index     int        `json:"i"`
	State     view.State `json:"s"`
	Pod       string     `json:"p,omitempty"` // namespace/name
	Claim     string     `json:"r,omitempty"` // ResourceClaim, namespace/name; Pod is the first of its pods
	Pods      int        `json:"u,omitempty"` // of the ResourceClaim, where it has several
	Container string     `json:"c,omitempty"`
	Node      string     `json:"n,omitempty"`
	Level     string     `json:"l,omitempty"` // CL or IL
	Since     int64      `json:"t,omitempty"` // seconds since 1970; 0 when it is not known
}

// Node is a node that reports devices, or that should.
type Node struct {
	Name    string `json:"name"`
	Reports bool   `json:"reports"` // whether it has a DeviceSlice
	Taken   int    `json:"taken"`   // slots of its pods
}

// Pod is a pod that asks for devices and does not run yet.
type Pod struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	State     string   `json:"state"`
	Node      string   `json:"node,omitempty"`
	Since     int64    `json:"since,omitempty"`
	Asks      []Ask    `json:"asks,omitempty"`
	Why       []string `json:"why,omitempty"`
}

// waits reports whether the pod has no node yet; one that has is starting.
func (p *Pod) waits() bool { return p.State != string(view.Starting) }

// Ask is a request of a container.
type Ask struct {
	Resource string `json:"resource"` // without prefix; of a ResourceClaim the DeviceClass
	Count    int64  `json:"count"`
}

// NewState makes a State of a view at the time. Findings that need all of the cluster
// are left out when something is missing.
func NewState(v *view.View, o view.Objects, missing []string, failure error, now time.Time) State {
	s := State{Configurations: v.Configurations(), Devices: map[string]Device{}, Reach: map[string][]string{}, Missing: slices.Clone(missing)}
	if failure != nil {
		s.Error = failure.Error()
	}
	taken := map[string][]Taken{}
	onNode := map[string]int{}
	for _, t := range v.Taken() {
		name, err := slot.Parse(t.Name)
		if err != nil {
			continue
		}
		taken[t.Instance] = append(taken[t.Instance], newTaken(name.Index, &t))
		onNode[t.Node]++
	}
	for _, in := range v.Instances() {
		d := Device{Name: in.Name, Namespace: in.Namespace, Configuration: in.Configuration, ID: in.Device, Label: label(in.Device, in.Properties),
			Shared: in.Shared, Capacity: in.Capacity, Reach: reachKey(in.Nodes), Taken: taken[in.Name], Problems: in.Problems}
		if s.Reach[d.Reach] == nil {
			s.Reach[d.Reach] = slices.Clone(in.Nodes)
		}
		for _, node := range in.Lost {
			d.Problems = append(slices.Clip(d.Problems), "node "+node+" does not know whether it is there: its discovery handler does not answer")
		}
		s.Devices[in.Name] = d
	}
	s.Nodes = nodesOf(o, onNode)
	s.Pods = podsOf(v)
	if len(missing) == 0 {
		s.Problems = v.Examine(now)
	} else {
		s.Problems = v.ExaminePart(now)
	}
	return s
}

// called is the device's label or, if it has none, its id.
func (d *Device) called() string { return cmp.Or(d.Label, d.ID) }

// Properties that name a device: those of discovery handler usb, and udev's.
var modelsAndSerials = [][2]string{{"USB_MODEL", "USB_SERIAL"}, {"ID_MODEL", "ID_SERIAL_SHORT"}}

// label is what people know the device by. Two of a model that have no serial number are told apart by
// their ids.
func label(id string, properties map[string]string) string {
	for _, names := range modelsAndSerials {
		if model := properties[names[0]]; model != "" {
			return short(model) + " " + short(cmp.Or(properties[names[1]], id))
		}
	}
	return ""
}

// short is a text of at most 40 characters: a longer one is cut in the middle.
func short(text string) string {
	runes := []rune(text)
	if len(runes) <= 40 {
		return text
	}
	return string(runes[:20]) + "…" + string(runes[len(runes)-19:])
}

func newTaken(index int, s *view.Slot) Taken {
	t := Taken{Index: index, State: s.State, Claim: s.ResourceClaim, Container: s.Container, Node: s.Node,
		Level: s.Level}
	if s.Pod != "" {
		t.Pod = s.Namespace + "/" + s.Pod
	}
	if len(s.Users) > 1 {
		t.Pods = len(s.Users)
	}
	if !s.Since.IsZero() {
		t.Since = s.Since.Unix()
	}
	return t
}

// reachKey names a set of nodes: one node by its name, more by a hash.
func reachKey(nodes []string) string {
	switch len(nodes) {
	case 0:
		return ""
	case 1:
		return "node/" + nodes[0]
	}
	h := fnv.New128a()
	for _, n := range nodes {
		h.Write([]byte(n))
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil))
}

// nodesOf returns the nodes that are there, and those that only slices or slots name.
func nodesOf(o view.Objects, taken map[string]int) []Node {
	all := map[string]Node{}
	for i := range o.Nodes {
		all[o.Nodes[i].Name] = Node{}
	}
	for i := range o.Slices {
		all[o.Slices[i].Spec.NodeName] = Node{Reports: true}
	}
	for i := range o.Instances { // for a user who may list neither
		for _, name := range o.Instances[i].Spec.Nodes {
			if _, known := all[name]; !known {
				all[name] = Node{Reports: true}
			}
		}
	}
	for name := range taken {
		if _, known := all[name]; !known && name != "" {
			all[name] = Node{}
		}
	}
	nodes := make([]Node, 0, len(all))
	for name, n := range all {
		n.Name, n.Taken = name, taken[name]
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	return nodes
}

// podsOf returns the pods that do not run yet, longest wait first.
func podsOf(v *view.View) []Pod {
	pods := []Pod{}
	for _, p := range v.Pods() {
		if !underway(p.State) {
			continue
		}
		out := Pod{Namespace: p.Namespace, Name: p.Name, State: string(p.State), Node: p.Node}
		if !p.Since.IsZero() {
			out.Since = p.Since.Unix()
		}
		for _, r := range p.Requests {
			out.ask(strings.TrimPrefix(r.Resource, assignment.ResourcePrefix), r.Count)
		}
		for _, c := range p.Claims {
			for _, r := range c.Requests {
				out.ask(r.DeviceClass, r.Count)
			}
		}
		for _, w := range p.Waits {
			if w.Why != "" && !slices.Contains(out.Why, w.Why) {
				out.Why = append(out.Why, w.Why)
			}
		}
		pods = append(pods, out)
	}
	slices.SortStableFunc(pods, func(a, b Pod) int { return int(a.Since - b.Since) })
	return pods
}

// ask adds what one of its containers, or ResourceClaims, asks for.
func (p *Pod) ask(resource string, count int64) {
	at := slices.IndexFunc(p.Asks, func(a Ask) bool { return a.Resource == resource })
	if at < 0 {
		at, p.Asks = len(p.Asks), append(p.Asks, Ask{Resource: resource})
	}
	p.Asks[at].Count += count
}

// underway reports whether a pod in the state is on its way to its devices.
func underway(s view.PodState) bool {
	return s == view.Gated || s == view.Pending || s == view.Preempting || s == view.Starting
}
