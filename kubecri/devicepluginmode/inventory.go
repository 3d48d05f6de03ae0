package devicepluginmode

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubeslot/kubeslot/kubecri/agent/deviceslices"
	"github.com/kubeslot/kubeslot/kubecri/devicepluginmode/deviceids"
	"github.com/kubeslot/kubeslot/kubecri/nodemode"
	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// inventory is what this node serves: Configurations by name. It does not change.
type inventory map[string]*served

// served is a Configuration that has devices on this node, or of whose devices this node
// holds slots.
type served struct {
	configuration *v0.Configuration // nil when it was deleted
	// refused: its uniqueScope cannot be kept here.
	refused bool
	// taken: another Configuration has its name.
	taken bool
	// devices says, by Instance, of those that the node sees whether slots are given.
	devices map[string]bool
	// held are the Instances of which this node holds slots.
	held map[string]bool
}

// takeInventory finds out what is to be served now.
//
// Devices are those of the node's own slices, for only of these its claims count. Slots are
// given of those that a handler has reported since the start. With spec.discovery devices are
// those that any node lists. Of a Configuration whose devices DRA gives there are those alone of which ids
// hold slots.
func (p *Plugins) takeInventory() (inventory, <-chan struct{}) {
	seen, changed := p.Devices()
	p.mu.Lock()
	p.seen = seen
	p.mu.Unlock()
	all, _ := p.Configurations.Lister().List(labels.Everything()) // from memory
	oldest := v0.OldestOf(all)
	inv := inventory{}
	of := func(name string) *served {
		s := inv[name]
		if s == nil {
			s = &served{configuration: oldest.InForce(name), devices: map[string]bool{}, held: map[string]bool{}}
			s.refused = s.configuration != nil && s.configuration.Spec.Unique() == v0.UniquePerPod
			inv[name] = s
		}
		return s
	}
	for instance := range seen {
		configuration, _ := slot.SplitInstance(instance)
		if c := oldest.InForce(configuration); c != nil && c.Spec.Discovery != nil && c.GivesSlots() {
			of(configuration).devices[instance] = !heldByDRA(c, instance)
		}
	}
	reported, _ := p.Slices.Lister().List(labels.Everything())
	for c, d := range deviceslices.Counted(p.Node, reported, oldest) {
		if !c.GivesSlots() {
			continue
		}
		_, is := seen[d.Instance()]
		s := of(c.Name)
		s.devices[d.Instance()] = is && !d.Unschedulable && !heldByDRA(c, d.Instance())
	}
	for _, h := range p.holds("") {
		configuration, _ := slot.SplitInstance(h.Slot.Instance)
		of(configuration).held[h.Slot.Instance] = true
	}
	// Of two that ask for one resource there is one plugin, also while slots of both are held.
	for name, s := range inv {
		owner := oldest.ResourceOwner(name)
		s.taken = owner != nil && owner.Name != name
		maps.DeleteFunc(s.held, func(instance string, _ bool) bool { return oldest.InForce(instance) != nil })
	}
	return inv, changed
}

// heldByDRA reports whether ResourceClaims, or ResourceSlices, still have the Instance of a Configuration whose
// slots DRA gave before.
func heldByDRA(c *v0.Configuration, instance string) bool {
	return c.Status.Allocator != nil && c.Status.Allocator.Holds(instance)
}

// capacity is the number of slots of an Instance that the node sees, 0 for others.
func (s *served) capacity(instance string) int {
	if _, seen := s.devices[instance]; !seen || s.configuration == nil {
		return 0
	}
	return s.configuration.Spec.Slots()
}

// instances are all of them, by name.
func (s *served) instances() []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(s.devices)), maps.Keys(s.held))
	slices.Sort(names)
	return slices.Compact(names)
}

// key names what a plugin serves: a Configuration, or with instance set one of its Instances.
type key struct{ configuration, instance string }

// name is the resource's, without prefix.
func (k key) name() string {
	if k.instance != "" {
		return k.instance
	}
	return k.configuration
}

// level is that of claims for the plugin's ids.
func (k key) level() v1alpha1.Level {
	if k.instance != "" {
		return v1alpha1.InstanceLevel
	}
	return v1alpha1.ConfigurationLevel
}

// keys are those of the plugins that there are to be.
func (inv inventory) keys(instances bool) map[key]bool {
	all := map[key]bool{}
	for name, s := range inv {
		if !s.taken && (!s.refused || len(s.held) > 0) {
			all[key{configuration: name}] = true
		}
		if instances {
			for _, instance := range s.instances() {
				all[key{name, instance}] = true
			}
		}
	}
	return all
}

// resource makes what a decision about the plugin's ids is made of; nil when there is
// nothing of it any more.
func (p *Plugins) resource(k key) *deviceids.Resource {
	p.mu.Lock()
	s := p.inventory[k.configuration]
	p.mu.Unlock()
	if s == nil {
		return nil
	}
	listed := p.claimsListed(k.configuration) // before that nobody knows what is free
	r := &deviceids.Resource{Name: k.name(), Level: k.level()}
	instances, usable := []string{k.instance}, listed
	if k.instance == "" {
		instances, usable, r.Unique = s.instances(), listed && !s.refused, v0.UniquePerContainer
		if s.configuration != nil {
			r.Unique = s.configuration.Spec.Unique()
		}
	}
	for _, name := range instances {
		r.Instances = append(r.Instances, p.instance(name, s.capacity(name), usable && s.devices[name]))
	}
	return r
}

// Served returns the resources that there are plugins of, with what the kubelet was last
// told of them; false until that is known.
func (p *Plugins) Served() (map[string]nodemode.Amount, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inventory == nil || !p.synced() {
		return nil, false
	}
	all := map[string]nodemode.Amount{}
	for k := range p.inventory.keys(!p.NoInstances) {
		amount := nodemode.Amount{}
		if s := p.servers[k]; s != nil {
			s.mu.Lock()
			amount = s.amount
			s.mu.Unlock()
		}
		all[assignment.ResourcePrefix+k.name()] = amount
	}
	return all, true
}
