package ledger

import (
	"fmt"
	"slices"
	"strings"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/spelling"
)

// Reason classifies a Shortfall.
type Reason int

const (
	// Unknown: there is no Configuration or Instance of the name.
	Unknown Reason = iota + 1
	// NoNode: no node reaches an Instance for the request.
	NoNode
	// NoCommonNode: some nodes reach one, but none of those that reach Instances for other
	// requests of the pod.
	NoCommonNode
	// NotReachable: the node reaches no Instance that could serve the request.
	NotReachable
	// Impossible: the request exceeds what the node reaches, whoever holds it.
	Impossible
	// Held: there are enough slots, but others hold them.
	Held
	// SearchLimit: some slots are free, and the search for a choice that serves all of the pod's containers
	// was given up.
	SearchLimit
)

// Shortfall says why a container's request cannot be met on a node. The counts
// are those of the Configuration (or Instance) on that node.
type Shortfall struct {
	Reason    Reason
	Container string
	Resource  string // without akri.sh/
	Needed    int
	// Unique is the scope in force, "" when slots alone count.
	Unique    akriv0.UniqueScope
	Instances int // that the node reaches
	Slots     int // of those Instances
	Free      int // of those slots
	Own       int // slots that this pod's other requests would take
	Withheld  int // of the Instances, that DRA has
	// InstanceLevel is set when one Instance was asked for by name.
	InstanceLevel bool
	// Meant is the Configuration whose name is near to an unknown one; "" for none.
	Meant string
	// Configuration is namespace/name of the one whose problems may say why NoNode is.
	Configuration string
}

// Resolvable reports whether the request could be met once others let go.
func (s *Shortfall) Resolvable() bool { return s.Reason >= Held }

// maxCompared is how many names of Configurations an unknown name is compared with, at each try of a
// pod that requests it: about 1 ms for names of 63 characters. Where there are more, none is proposed.
const maxCompared = 100

// unknown says that there is no Configuration or Instance of the name.
func (l *Ledger) unknown(container string, r ResourceRequest) *Shortfall {
	s := &Shortfall{Reason: Unknown, Container: container, Resource: r.Name, Needed: r.Count}
	if len(l.configs) > maxCompared {
		return s
	}
	var names []string
	for name, conf := range l.configs { // those of certain namespaces are not for everybody to read
		if conf.owner != nil && conf.owner.Spec.AllowedNamespaces == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	s.Meant = spelling.Nearest(r.Name, names)
	return s
}

// shortfall says why the want cannot be served where nodes have so much. The pod's other requests take so many slots
// that could serve it.
func (conf *configRecord) shortfall(has supply, w want, own int) *Shortfall {
	s := &Shortfall{Container: w.container.Name, Resource: w.Name, Needed: w.Count, Unique: conf.unique(),
		InstanceLevel: w.device != nil, Own: own,
		Instances: has.instances, Slots: has.slots, Free: has.free, Withheld: has.withheld}
	most := s.Slots
	if s.Unique != "" {
		most = s.Instances
	}
	switch {
	case s.Instances == 0:
		s.Reason = NotReachable
	case w.Count > most:
		s.Reason = Impossible
	default:
		s.Reason = Held
	}
	return s
}

// String is what a pod's event shows, in the framework's manner: it puts the
// number of nodes with the same shortfall before it.
func (s *Shortfall) String() string {
	name := assignment.ResourcePrefix + s.Resource
	switch s.Reason {
	case Unknown:
		text := fmt.Sprintf("container %q requests %s, but there is no Configuration or Instance %q", s.Container, name,
			s.Resource)
		if s.Meant != "" {
			text += fmt.Sprintf("; did you mean %q?", s.Meant)
		}
		return text
	case NoNode:
		text := fmt.Sprintf("no node reaches an Instance for %s, requested by container %q", name, s.Container)
		if namespace, configuration, ok := strings.Cut(s.Configuration, "/"); ok {
			text += fmt.Sprintf("; kubectl describe configuration -n %s %s says what keeps nodes from finding one", namespace, configuration)
		}
		return text
	case NoCommonNode:
		return fmt.Sprintf("no node reaches Instances for all that the pod requests: of the nodes that do for its other requests, none does for %s, requested by container %q",
			name, s.Container)
	case NotReachable:
		return fmt.Sprintf("node(s) reach no Instance for %s, requested by container %q", name, s.Container)
	case Impossible:
		if s.Unique != "" && s.InstanceLevel {
			return fmt.Sprintf("node(s) cannot serve %s: container %q requests %d slots of the one Instance, and with uniqueDevices a container gets one",
				name, s.Container, s.Needed)
		}
		if s.Unique != "" {
			return fmt.Sprintf("node(s) reach too few Instances for %s: container %q needs %d different ones (uniqueDevices), %d reached",
				name, s.Container, s.Needed, s.Instances)
		}
		return fmt.Sprintf("node(s) reach too few slots for %s: container %q needs %d, %d reached", name, s.Container, s.Needed, s.Slots)
	case SearchLimit:
		return fmt.Sprintf("node(s) where the search for slots of %s was given up: %d of %d slots free on %d "+
			"Instances, and too many ways to give them to the pod's "+
			"containers; let fewer containers of the pod request it, or set uniqueDevices: false", name, s.Free,
			s.Slots, s.Instances)
	}
	own := ""
	if s.Own > 0 {
		own = fmt.Sprintf(", and this pod's other requests take %d", s.Own)
	}
	if s.Withheld > 0 {
		own += fmt.Sprintf("; %d of the Instances are DRA's", s.Withheld)
	}
	return fmt.Sprintf("node(s) short of %s: container %q needs %d%s; %d of %d slots free on %d Instances, %d held%s",
		name, s.Container, s.Needed, atMostOne[s.Unique], s.Free, s.Slots, s.Instances, s.Slots-s.Free, own)
}
