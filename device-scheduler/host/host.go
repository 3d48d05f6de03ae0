package host

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
)

// DefaultTimeout is how long one call of a plugin may take.
const DefaultTimeout = 5 * time.Second

// Options of a Host; the zero value is good.
type Options struct {
	// Timeout is how long one call of a plugin may take, waiting for its turn
	// included. 0 means DefaultTimeout. Calls of a Remote have their own.
	Timeout time.Duration
	// OnFault is told of each fault, by many goroutines at once; it must be quick.
	OnFault func(*Fault)
	// OnCall is told how long each call took, waiting for its turn included; like
	// OnFault.
	OnCall func(plugin, method string, took time.Duration)
}

// Host has a set of device schedulers and the nodes that they know. It is safe
// for concurrent use.
type Host struct {
	options Options
	fixed   int // of the set's plugins were given to New

	changing sync.Mutex // held by what changes nodes and the set, also while plugins run
	mu       sync.RWMutex
	nodes    map[string]*Node
	set      *set
}

// New returns a Host of the device schedulers, which it asks in this order. It
// is an error if two have one name, or if one cannot say its name.
func New(schedulers []devicescheduler.DeviceScheduler, o Options) (*Host, error) {
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	h := &Host{options: o, nodes: map[string]*Node{}, set: &set{}}
	for i, scheduler := range schedulers {
		p, err := h.plugin(scheduler)
		if err == nil {
			h.set, err = h.set.with(p, i)
		}
		if err != nil {
			return nil, fmt.Errorf("device scheduler %d of %d: %w", i+1, len(schedulers), err)
		}
	}
	h.fixed = len(schedulers)
	return h, nil
}

// Plugins are the names of the device schedulers, in the order in which they are
// asked.
func (h *Host) Plugins() []string {
	set := h.current()
	names := make([]string, 0, len(set.plugins))
	for _, p := range set.plugins {
		names = append(names, p.name)
	}
	return names
}

// Put adds a device scheduler, which is asked after those of New, in the order of names, or asks one
// that was put before whether it uses the group scheduler now. All nodes are added, and their pods
// counted, anew; until then the device schedulers that there were before decide about a node. A plugin
// that fails at that is no error: see Retry.
func (h *Host) Put(scheduler devicescheduler.DeviceScheduler) error {
	h.changing.Lock()
	defer h.changing.Unlock()
	p, err := h.plugin(scheduler)
	if err != nil {
		return err
	}
	next, err := h.current().with(p, h.fixed)
	if err != nil {
		return err
	}
	h.mu.Lock()
	h.set = next
	h.mu.Unlock()
	_ = h.addAgain(func(*Node) bool { return true })
	return nil
}

// AddNode tells of a node, new or changed. info.Used counts for nothing: what is
// used is what Take was told of, before or after. A node that is as it was is
// not told again.
//
// With an error the node is there, but pods do not fit it until AddNode or Retry
// succeeds.
func (h *Host) AddNode(name string, info *types.NodeInfo) error {
	info = info.Clone()
	info.Name, info.Used = name, types.ResourceList{}
	h.changing.Lock()
	defer h.changing.Unlock()
	old := h.node(name)
	if old.given != nil && len(old.failed) == 0 && reflect.DeepEqual(old.given, info) {
		return nil
	}
	return h.add(old, info)
}

func (h *Host) add(old *Node, given *types.NodeInfo) error {
	next := &Node{name: old.name, set: h.current(), given: given, info: given.Clone(), pods: old.pods,
		failed: map[string]*Fault{}}
	var errs []error
	for _, p := range next.set.plugins {
		copied := next.info.Clone()
		got, fault := call(p, about{method: "AddNode", node: next.name}, func(s devicescheduler.DeviceScheduler) (*types.NodeInfo, error) {
			s.AddNode(next.name, copied)
			return copied.Clone(), nil // the plugin may keep the one that it was given
		})
		if fault != nil {
			next.failed[p.name] = fault
			errs = append(errs, fault)
			continue
		}
		next.info = got
		next.info.Name = next.name
	}
	if next.set.group != nil {
		next.set.group.AddNode(next.name, next.info)
	}
	errs = append(errs, h.recount(next))
	h.publish(next)
	return errors.Join(errs...)
}

// RemoveNode tells that a node is gone. Its pods are remembered until Return:
// the node may come back before they go.
func (h *Host) RemoveNode(name string) error {
	h.changing.Lock()
	defer h.changing.Unlock()
	old := h.node(name)
	if old.given == nil {
		return nil
	}
	var errs []error
	for _, p := range old.set.plugins {
		_, fault := call(p, about{method: "RemoveNode", node: name}, func(s devicescheduler.DeviceScheduler) (struct{}, error) {
			s.RemoveNode(name)
			return struct{}{}, nil
		})
		if fault != nil {
			errs = append(errs, fault)
		}
	}
	if old.set.group != nil {
		old.set.group.RemoveNode(name)
	}
	h.publish(&Node{name: name, set: old.set, info: types.NewNodeInfoWithName(name), pods: old.pods,
		failed: map[string]*Fault{}})
	return errors.Join(errs...)
}

// Take counts what the pod holds on the node, also before the node is added.
// See With.
func (h *Host) Take(node, uid string, pod *types.PodInfo) error {
	h.changing.Lock()
	defer h.changing.Unlock()
	next, err := h.With(h.node(node), uid, pod)
	h.publish(next)
	return err
}

// Return undoes Take; a pod that was not taken is no error. See Without.
func (h *Host) Return(node, uid string) error {
	h.changing.Lock()
	defer h.changing.Unlock()
	next, err := h.Without(h.node(node), uid)
	h.publish(next)
	return err
}

// Retry adds the nodes again at which a plugin failed, in the order of their
// names. To be called now and then.
func (h *Host) Retry() error {
	h.changing.Lock()
	defer h.changing.Unlock()
	return h.addAgain(func(n *Node) bool { return len(n.failed) > 0 })
}

// addAgain adds the nodes anew of which again says so, in the order of their names.
func (h *Host) addAgain(again func(*Node) bool) error {
	h.mu.RLock()
	var names []string
	for _, name := range slices.Sorted(maps.Keys(h.nodes)) {
		if n := h.nodes[name]; n.given != nil && again(n) {
			names = append(names, name)
		}
	}
	h.mu.RUnlock()
	var errs []error
	for _, name := range names {
		n := h.node(name)
		errs = append(errs, h.add(n, n.given))
	}
	return errors.Join(errs...)
}

// Node returns the node as it is now, or nil if it is not there.
func (h *Host) Node(name string) *Node {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if n := h.nodes[name]; n != nil && n.given != nil {
		return n
	}
	return nil
}

// node returns the node, an empty one if there is none.
func (h *Host) node(name string) *Node {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if n := h.nodes[name]; n != nil {
		return n
	}
	return &Node{name: name, set: h.set, info: types.NewNodeInfoWithName(name), pods: map[string]held{},
		failed: map[string]*Fault{}}
}

// publish has the node be as it is given. The caller holds changing.
func (h *Host) publish(n *Node) {
	for _, p := range n.set.plugins {
		if p.remote != nil {
			p.remote.SetNode(n)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if n.given == nil && len(n.pods) == 0 {
		delete(h.nodes, n.name)
		return
	}
	h.nodes[n.name] = n
}
