package host

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/kubeslot/kubeslot/device-scheduler/group"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/contain"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
)

// Node is a node and what its pods hold. It never changes, so that it may be
// shared and kept.
type Node struct {
	name  string
	set   *set            // that it was added to
	given *types.NodeInfo // to AddNode; nil while the node is not there
	info  *types.NodeInfo // as the plugins' AddNode left it, with Used
	pods  map[string]held // by UID
	// failed has, by plugin, why the node cannot be judged: the plugin does not
	// know of it, or not of what a pod holds.
	failed map[string]*Fault

	// classify makes class, once it is asked for.
	classify sync.Once
	class    class
}

// held is a pod that holds devices, and who accounted for it.
type held struct {
	pod   *types.PodInfo
	took  map[string]bool // by plugin
	group bool
}

// Known reports whether the node is there: SetNode gives one that is not when it is gone.
func (n *Node) Known() bool { return n.given != nil }

// Name returns the node's name.
func (n *Node) Name() string { return n.name }

// Info returns a copy of the node's description, with Used.
func (n *Node) Info() *types.NodeInfo { return n.info.Clone() }

// Holds reports whether the pod with the UID is counted on the node.
func (n *Node) Holds(uid string) bool {
	_, ok := n.pods[uid]
	return ok
}

// Holders is how many pods are counted on the node.
func (n *Node) Holders() int { return len(n.pods) }

// Amount is how much the node has of a resource under just this name, as its
// plugins advertise it or as Kubernetes counts it; false if it is not advertised.
func (n *Node) Amount(name types.ResourceName) (int64, bool) {
	if n.given == nil {
		return 0, false
	}
	for _, list := range []types.ResourceList{n.given.Allocatable, n.given.KubeAlloc} {
		if amount, ok := list[name]; ok {
			return amount, true
		}
	}
	return 0, false
}

// copy returns a node that is not shared yet.
func (n *Node) copy() *Node {
	return &Node{name: n.name, set: n.set, given: n.given, info: n.info.Clone(), pods: clone(n.pods),
		failed: clone(n.failed)}
}

// With returns the node with what the pod, as Allocate returned it or as it is
// in a bound pod's annotation, holds. A pod that is counted already is counted
// anew. With an error, the node is without what could not be counted.
func (h *Host) With(n *Node, uid string, pod *types.PodInfo) (*Node, error) {
	if n.Holds(uid) {
		n, _ = h.Without(n, uid)
	}
	next := n.copy()
	err := h.take(next, uid, pod.Clone())
	return next, err
}

// Without returns the node without what the pod holds. If a plugin fails at
// that, or leaves less than nothing used, Used is made again from the other
// pods; the error is only to be told.
func (h *Host) Without(n *Node, uid string) (*Node, error) {
	was, ok := n.pods[uid]
	if !ok {
		return n, nil
	}
	next := n.copy()
	delete(next.pods, uid)
	if next.given == nil {
		return next, nil
	}
	var errs []error
	if was.group {
		if err := group.Return(next.info, was.pod); err != nil {
			errs = append(errs, err)
		}
	}
	for _, p := range slices.Backward(n.set.plugins) {
		if !was.took[p.name] {
			continue
		}
		used, fault := p.account("ReturnPodResources", next.info, was.pod, devicescheduler.DeviceScheduler.ReturnPodResources)
		if fault != nil {
			errs = append(errs, fault)
			continue
		}
		next.info.Used = used
	}
	if len(errs) > 0 {
		_ = h.recount(next) // its faults were told when the pods were taken
	}
	return next, errors.Join(errs...)
}

// recount makes Used again from the node's pods, in the order of their UIDs.
func (h *Host) recount(n *Node) error {
	pods := n.pods
	n.pods, n.info.Used = make(map[string]held, len(pods)), types.ResourceList{}
	var errs []error
	for _, uid := range slices.Sorted(maps.Keys(pods)) {
		errs = append(errs, h.take(n, uid, pods[uid].pod))
	}
	return errors.Join(errs...)
}

// take counts the pod on n, which is not shared yet. While the node is not
// there, it only remembers the pod.
func (h *Host) take(n *Node, uid string, pod *types.PodInfo) error {
	hold := held{pod: pod, took: map[string]bool{}}
	defer func() { n.pods[uid] = hold }()
	if n.given == nil {
		return nil
	}
	var errs []error
	for _, p := range n.set.plugins {
		used, fault := p.account("TakePodResources", n.info, pod, devicescheduler.DeviceScheduler.TakePodResources)
		switch {
		case fault == nil:
			n.info.Used, hold.took[p.name] = used, true
		case fault.Kind != Errored:
			// What is used is not known: nobody may be given it.
			n.failed[p.name] = fault
			fallthrough
		default:
			errs = append(errs, fault)
		}
	}
	if n.set.group != nil {
		if err := group.Take(n.info, pod); err != nil {
			errs = append(errs, err)
		} else {
			hold.group = true
		}
	}
	return errors.Join(errs...)
}

// account returns what Used is after the plugin counted the pod.
func (p *plugin) account(method string, node *types.NodeInfo, pod *types.PodInfo,
	count func(devicescheduler.DeviceScheduler, *types.NodeInfo, *types.PodInfo) error) (types.ResourceList, *Fault) {
	a := about{method: method, node: node.Name, pod: pod.Name}
	node, pod = node.Clone(), pod.Clone()
	return call(p, a, func(s devicescheduler.DeviceScheduler) (types.ResourceList, error) {
		if err := count(s, node, pod); err != nil {
			return nil, err
		}
		for name, n := range node.Used {
			if n < 0 {
				return nil, fmt.Errorf("%w: %d of %q would be used", contain.ErrInvalid, n, name)
			}
		}
		return clone(node.Used), nil
	})
}
