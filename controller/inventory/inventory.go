// Package inventory has, by Instance, what nodes report and claim. It decides for the
// whole controller which nodes reach a device, and which claims count. It does no I/O.
package inventory

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Inventory knows Configurations, DeviceSlices, SlotClaims and Nodes. It keeps the
// objects that it is given, which must not be changed any more. Its methods may be
// called concurrently.
type Inventory struct {
	mu           sync.Mutex
	names        map[string]*configurations       // by Configuration's name
	records      map[string]*record               // by Instance's name
	slices       map[string]*v1alpha1.DeviceSlice // by name
	slicesOfNode map[string]int
	lacking      lacking
	claims       map[string]*v1alpha1.SlotClaim // by name
	claimsOfNode index[string]
	claimsOfPod  index[types.UID]
	nodes        map[string]Node
}

// New returns an empty Inventory.
func New() *Inventory {
	return &Inventory{
		names:        map[string]*configurations{},
		records:      map[string]*record{},
		slices:       map[string]*v1alpha1.DeviceSlice{},
		slicesOfNode: map[string]int{},
		lacking:      lacking{},
		claims:       map[string]*v1alpha1.SlotClaim{},
		claimsOfNode: index[string]{},
		claimsOfPod:  index[types.UID]{},
		nodes:        map[string]Node{},
	}
}

// Change names what may look different after an update.
type Change struct {
	Instances []types.NamespacedName
	Claims    []string
	// Brokers are Instances whose brokers, or what ResourceSlices say of them, may have to be others:
	// their devices, nodes or Configuration changed, not only who claims their slots.
	Brokers []types.NamespacedName
	// Configurations are those whose status may be another, besides those of Instances
	// and Claims.
	Configurations []types.NamespacedName
}

func (c *Change) add(other Change) {
	c.Instances = append(c.Instances, other.Instances...)
	c.Claims = append(c.Claims, other.Claims...)
	c.Brokers = append(c.Brokers, other.Brokers...)
	c.Configurations = append(c.Configurations, other.Configurations...)
}

// record is what is known of one Instance's name.
type record struct {
	reports map[string][]report         // by slice; of devices that name the Instance
	claims  map[int]*v1alpha1.SlotClaim // by the slot's index
	kinds   map[identity]int            // how many reports there are of each device
	standing
	judged bool // standing is up to date
}

// identity tells devices apart that have one Instance name. A device that is not
// shared is another on each node.
type identity struct {
	id     string
	shared bool
	node   string
}

// report is one slice's entry of a device.
type report struct {
	slice  *v1alpha1.DeviceSlice
	device *v1alpha1.Device
	bad    error // of Device.Check
}

func (r *report) identity() identity {
	i := identity{id: r.device.ID, shared: r.device.Shared}
	if !i.shared {
		i.node = r.slice.Spec.NodeName
	}
	return i
}

// record returns the record of a name, made if need be.
func (v *Inventory) record(instance string) *record {
	r := v.records[instance]
	if r == nil {
		r = &record{reports: map[string][]report{}, claims: map[int]*v1alpha1.SlotClaim{}, kinds: map[identity]int{}}
		v.records[instance] = r
		v.configurationsOf(instance).instances[instance] = struct{}{}
	}
	return r
}

// tidy forgets a record of which nothing is known any more.
func (v *Inventory) tidy(instance string) {
	if r := v.records[instance]; r != nil && len(r.reports) == 0 && len(r.claims) == 0 {
		delete(v.records, instance)
		delete(v.configurationsOf(instance).instances, instance)
		name, _ := slot.SplitInstance(instance)
		v.tidyName(name)
	}
}

// key is where an Instance is, or would be.
func key(owner *akriv0.Configuration, instance string) types.NamespacedName {
	return types.NamespacedName{Namespace: owner.Namespace, Name: instance}
}

// index is a set of names by key.
type index[K comparable] map[K]map[string]struct{}

func (x index[K]) add(key K, name string) {
	if x[key] == nil {
		x[key] = map[string]struct{}{}
	}
	x[key][name] = struct{}{}
}

func (x index[K]) remove(key K, name string) {
	if delete(x[key], name); len(x[key]) == 0 {
		delete(x, key)
	}
}

func (x index[K]) names(key K) []string { return slices.Collect(maps.Keys(x[key])) }
