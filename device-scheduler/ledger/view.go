package ledger

import (
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// NodeList is a list of nodes, which are known by their places in it.
type NodeList struct {
	names   []string
	numbers []int32 // of the nodes, when the ledger's had changed so often
	changes int
}

// NewNodeList makes a list of the names, in their order.
func NewNodeList(names []string) *NodeList { return &NodeList{names: names, changes: -1} }

// numbersOf are the numbers of the list's nodes.
func (l *Ledger) numbersOf(list *NodeList) []int32 {
	if list.changes == l.numbers.changes {
		return list.numbers
	}
	list.numbers, list.changes = make([]int32, len(list.names)), l.numbers.changes
	for place, name := range list.names {
		if n := l.nodes[name]; n != nil {
			list.numbers[place] = n.number
		}
	}
	return list.numbers
}

// View says which nodes of a list have what a request asks for, where counts of free slots are enough to decide
// that. Filter asks it about hundreds of nodes for each pod. It looks at 64 nodes at once, those with places
// side by side, so that the caller locks the ledger once for all of them. Safe for concurrent use.
type View struct {
	ledger  *Ledger
	demands []demand // none if a resource is unknown
	numbers []int32  // of the nodes, by place
	rows    []atomic.Pointer[row]

	mu       sync.Mutex // of who looks
	lacks    map[lack]*Shortfall
	lastLack lack
	last     *Shortfall // of lastLack
}

// row is what nodes that lie side by side are short of: nil for one that has all, onlyFitKnows where counts
// do not tell.
type row [pageSize]*Shortfall

var onlyFitKnows = &Shortfall{}

// Looked reports whether the node at the place was looked at.
func (v *View) Looked(place int) bool { return v.rows[place/pageSize].Load() != nil }

// Look looks at the node at the place, and its neighbours, unless that was done. It reads the ledger.
func (v *View) Look(place int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.Looked(place) {
		return
	}
	r, first := &row{}, place/pageSize*pageSize
	for i, number := range v.numbers[first:min(first+pageSize, len(v.numbers))] {
		r[i] = v.shortfallOf(number)
	}
	v.rows[place/pageSize].Store(r)
}

// At answers as Fit does on the node at the place, which was looked at. sure is false where only Fit can tell.
func (v *View) At(place int) (shortfall *Shortfall, sure bool) {
	if shortfall = v.rows[place/pageSize].Load()[place%pageSize]; shortfall == onlyFitKnows {
		return nil, false
	}
	return shortfall, true
}

// Like returns a text that is the same for nodes on which Fit answers the same. It reads the ledger.
func (v *View) Like(node string) string { return string(v.ledger.appendLike(nil, v.demands, node)) }

func (l *Ledger) appendLike(like []byte, demands []demand, node string) []byte {
	n := l.nodes[node]
	for i := range demands {
		dm := &demands[i]
		if dm.most == 0 {
			for _, d := range dm.named {
				like = strconv.AppendBool(like, d.reachedBy(n))
			}
			continue
		}
		like = strconv.AppendUint(append(like, ' '), dm.config.classOf(n).id, 10)
		if dm.config.oncePerNode() { // then it matters what pods on the node have
			like = append(append(like, ' '), node...)
		}
	}
	return like
}

// View prepares the request for the nodes of the list. It keeps their numbers in the list: to be called like a
// change of the ledger.
func (l *Ledger) View(req *Request, list *NodeList) *View {
	demands, _ := l.demands(req)
	return &View{ledger: l, demands: demands, numbers: l.numbersOf(list),
		rows: make([]atomic.Pointer[row], len(list.names)/pageSize+1), lacks: map[lack]*Shortfall{}}
}

func (v *View) shortfallOf(number int32) *Shortfall {
	if len(v.demands) == 0 {
		return onlyFitKnows
	}
	for i := range v.demands {
		dm := &v.demands[i]
		at := dm.config.reach.of(number)
		if dm.enough(at) {
			continue
		}
		has := at.has(dm.device)
		switch want := dm.shortOf(at, has); {
		case want >= 0: // many nodes lack the same
			key := lack{i, want, has.instances, has.slots, has.free, has.withheld}
			if v.last == nil || key != v.lastLack {
				if v.lacks[key] == nil {
					v.lacks[key] = dm.shortfall(want, has)
				}
				v.lastLack, v.last = key, v.lacks[key]
			}
			return v.last
		case !dm.tells:
			return onlyFitKnows
		}
	}
	return nil
}

// lack is what tells Shortfalls of one request apart.
type lack struct{ demand, want, instances, slots, free, withheld int }

// demand is what a pod asks for of one Configuration: so many free slots, or Instances with a free one.
type demand struct {
	config *configRecord
	pod    Pod
	wants  []want
	named  []*device // that wants name, each once
	slots  int       // of all wants
	// Of any Instances the wants are for so many slots: the most that a container has, and what those have
	// that run together in the end. 0 if all name one.
	most, together int

	device  *device // the only want names it; nil for any Instances
	need    int     // 0 if counts decide nothing
	ofSlots bool    // slots are needed, and not Instances
	tells   bool    // it is enough that so many are free
}

type want struct {
	index     int // of the container
	container *ContainerRequest
	ResourceRequest
	device *device // nil for any
}

// demands are by Configuration, in the order of the request; none if a resource is unknown, as the Shortfall says.
func (l *Ledger) demands(req *Request) ([]demand, *Shortfall) {
	var all []demand
	for i := range req.Containers {
		for _, r := range req.Containers[i].Resources {
			conf, d := l.resource(r.Name)
			if conf == nil {
				return nil, l.unknown(req.Containers[i].Name, r)
			}
			at := slices.IndexFunc(all, func(dm demand) bool { return dm.config == conf })
			if at < 0 {
				at, all = len(all), append(all, demand{config: conf, pod: req.Pod})
			}
			all[at].add(want{i, &req.Containers[i], r, d})
		}
	}
	for i := range all {
		all[i].decide()
	}
	return all, nil
}

func (dm *demand) add(w want) {
	dm.wants, dm.slots = append(dm.wants, w), dm.slots+w.Count
	switch {
	case w.device == nil:
		dm.most = max(dm.most, w.Count)
		if w.container.Role != Init {
			dm.together += w.Count
		}
	case !slices.Contains(dm.named, w.device):
		dm.named = append(dm.named, w.device)
	}
}

// asksFor reports whether the device may serve one of the wants.
func (dm *demand) asksFor(d *device) bool {
	return d.config == dm.config && (dm.most > 0 || slices.Contains(dm.named, d))
}

// mayFit reports whether so many free slots, of so many Instances, may be enough. It leaves out what the pod
// requests by name.
func (dm *demand) mayFit(slots, instances int) bool {
	all, distinct := max(dm.most, dm.together), dm.most
	switch dm.config.unique() {
	case "":
		distinct = 0
	case akriv0.UniquePerPod, akriv0.UniquePerNode:
		distinct = all
	}
	return slots >= all && instances >= distinct
}

// decide finds what the demand needs. Where it decides something, Fit does the same by choosing slots.
func (dm *demand) decide() {
	single, simple := true, true
	for _, w := range dm.wants {
		single = single && w.Count == 1
		simple = simple && w.device == nil && w.container.Role == App
	}
	unique, first := dm.config.unique(), dm.wants[0]
	switch one := len(dm.wants) == 1; {
	case one && first.device != nil:
		dm.device, dm.need, dm.tells = first.device, dm.slots, true
	case !one && !simple: // containers may use one slot in turn, or leave no choice to others
	case unique == "", unique == akriv0.UniquePerContainer && single:
		dm.ofSlots, dm.need, dm.tells = true, dm.slots, true
	case one, unique == akriv0.UniquePerPod:
		dm.need, dm.tells = dm.slots, unique != akriv0.UniquePerNode // the node's other pods may have them
	}
}

// enough reports whether it is plain that the demand fits: it is looked at hundreds of nodes for each pod.
func (dm *demand) enough(at *class) bool {
	return dm.tells && dm.device == nil && (at.offers >= dm.need || dm.ofSlots && at.free >= dm.need)
}

// shortOf returns the first want that nodes of the class cannot serve, by what they have; below 0 if there is
// none, as far as counts tell.
func (dm *demand) shortOf(at *class, has supply) int {
	have := has.offers
	if dm.ofSlots || dm.device != nil {
		have = has.free
	}
	switch {
	case dm.device != nil && dm.need > 1 && dm.config.unique() != "":
		have = 0
	case dm.device != nil && has.instances > 0:
		have += dm.device.keptFor(dm.pod)
	case have < dm.need && dm.need <= have+has.waiting:
		have += dm.keptIn(at, dm.need-have)
	}
	if have >= dm.need {
		return -1
	}
	for i, w := range dm.wants {
		if have -= w.Count; have < 0 {
			return i
		}
	}
	return -1
}

// keptIn counts slots, or Instances that have no free one, which only nominations keep from
// being free, and not from the pod. It looks no further once there are enough.
func (dm *demand) keptIn(at *class, enough int) int {
	have := 0
	for _, g := range at.groups {
		for _, d := range g.nominated {
			switch {
			case dm.ofSlots:
				have += d.keptFor(dm.pod)
			case d.nfree == 0:
				have += min(1, d.keptFor(dm.pod))
			}
			if have >= enough {
				return have
			}
		}
	}
	return have
}

// shortfall says why the want cannot be served where so much is for the demand.
func (dm *demand) shortfall(short int, has supply) *Shortfall {
	own := 0
	for _, w := range dm.wants[:short] {
		own += w.Count
	}
	return dm.config.shortfall(has, dm.wants[short], own)
}
