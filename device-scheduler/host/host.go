package host

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kubeslot/kubeslot/device-scheduler/group"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/contain"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
)

// DefaultTimeout is how long one call of a plugin may take.
const DefaultTimeout = 5 * time.Second

// Options of a Host; the zero value is good.
type Options struct {
	// Timeout is how long one call of a plugin may take, waiting for its turn
	// included. 0 means DefaultTimeout.
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
	plugins []*plugin
	group   *group.Scheduler // nil if no plugin uses it

	changing sync.Mutex // held by what changes nodes, also while plugins run
	mu       sync.RWMutex
	nodes    map[string]*Node
}

// New returns a Host of the device schedulers, which it asks in this order. It
// is an error if two have one name, or if one cannot say its name.
func New(schedulers []devicescheduler.DeviceScheduler, o Options) (*Host, error) {
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	h := &Host{nodes: map[string]*Node{}}
	names := map[string]bool{group.Name: true}
	for i, s := range schedulers {
		p, err := contain.Do(o.Timeout, func() (*plugin, error) {
			return &plugin{name: s.GetName(), scheduler: s, group: s.UsingGroupScheduler(), timeout: o.Timeout, onFault: o.OnFault, onCall: o.OnCall}, nil
		}, nil)
		if err != nil {
			return nil, fmt.Errorf("device scheduler %d of %d: ask for its name: %w", i+1, len(schedulers), err)
		}
		if names[p.name] {
			return nil, fmt.Errorf("device scheduler %d of %d: the name %q is taken: remove one of the two plugins", i+1, len(schedulers), p.name)
		}
		names[p.name] = true
		h.plugins = append(h.plugins, p)
		if p.group && h.group == nil {
			h.group = &group.Scheduler{}
		}
	}
	return h, nil
}

// Plugins are the names of the device schedulers, in the order in which they are
// asked.
func (h *Host) Plugins() []string {
	names := make([]string, 0, len(h.plugins))
	for _, p := range h.plugins {
		names = append(names, p.name)
	}
	return names
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
	if old.given != nil && len(old.failed) == 0 && equal(old.given, info) {
		return nil
	}
	return h.add(old, info)
}

func (h *Host) add(old *Node, given *types.NodeInfo) error {
	next := &Node{name: old.name, given: given, info: given.Clone(), pods: old.pods, failed: map[string]*Fault{}}
	var errs []error
	for _, p := range h.plugins {
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
	if h.group != nil {
		h.group.AddNode(next.name, next.info)
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
	for _, p := range h.plugins {
		_, fault := call(p, about{method: "RemoveNode", node: name}, func(s devicescheduler.DeviceScheduler) (struct{}, error) {
			s.RemoveNode(name)
			return struct{}{}, nil
		})
		if fault != nil {
			errs = append(errs, fault)
		}
	}
	if h.group != nil {
		h.group.RemoveNode(name)
	}
	h.publish(&Node{name: name, info: types.NewNodeInfoWithName(name), pods: old.pods, failed: map[string]*Fault{}})
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
	h.mu.RLock()
	var names []string
	for _, name := range slices.Sorted(maps.Keys(h.nodes)) {
		if n := h.nodes[name]; n.given != nil && len(n.failed) > 0 {
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
	return &Node{name: name, info: types.NewNodeInfoWithName(name), pods: map[string]held{}, failed: map[string]*Fault{}}
}

func (h *Host) publish(n *Node) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n.given == nil && len(n.pods) == 0 {
		delete(h.nodes, n.name)
		return
	}
	h.nodes[n.name] = n
}

func equal(a, b *types.NodeInfo) bool {
	return maps.Equal(a.Capacity, b.Capacity) && maps.Equal(a.Allocatable, b.Allocatable) && maps.Equal(a.Scorer, b.Scorer) &&
		maps.Equal(a.KubeCap, b.KubeCap) && maps.Equal(a.KubeAlloc, b.KubeAlloc)
}
