package host

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/contain"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
)

// Reason says why a pod does not fit a node. It is a value, for a plugin's own
// reason may be anything.
type Reason struct {
	Plugin   string
	Text     string
	Resource types.ResourceName
	// Requested, Used and Capacity are units of Resource; all 0 if that is not it.
	Requested, Used, Capacity int64
	// Never is whether the node could not meet the request if nothing of it were in use, as far as the
	// plugin says.
	Never bool
	// Fault is set when no answer could be had, so that victims would not help.
	Fault *Fault
}

// Fit is whether a pod fits a node.
type Fit struct {
	OK bool
	// Score compares nodes for one pod: the sum of the schedulers' scores, of
	// which the group scheduler's is from 0 to 1.
	Score   float64
	Reasons []Reason // why not; at least one
}

// Fits asks whether the pod fits the node: an Ask for one node.
func (h *Host) Fits(n *Node, pod *types.PodInfo) Fit { return h.Ask(pod, nil).Fits(n) }

// unknown says why the node cannot be judged.
func (n *Node) unknown() []Reason {
	if n.given == nil {
		return []Reason{{Text: "the node's devices are not known yet"}}
	}
	var reasons []Reason
	for _, name := range slices.Sorted(maps.Keys(n.failed)) {
		reasons = append(reasons, Reason{Plugin: name, Text: n.failed[name].reason(), Fault: n.failed[name]})
	}
	return reasons
}

func (p *plugin) fits(node *types.NodeInfo, pod *types.PodInfo) (Verdict, *Fault) {
	a := about{method: "PodFitsDevice", node: node.Name, pod: pod.Name, shared: true}
	nodeCopy, podCopy := node.Clone(), pod.Clone()
	got, fault := call(p, a, func(s devicescheduler.DeviceScheduler) (Verdict, error) {
		ok, reasons, score := s.PodFitsDevice(nodeCopy, podCopy, false)
		if math.IsNaN(score) || math.IsInf(score, 0) {
			return Verdict{}, fmt.Errorf("%w: the score %v", contain.ErrInvalid, score)
		}
		got := Verdict{OK: ok, Score: score}
		if !ok {
			got.Reasons = values(p.name, reasons) // calls the plugin's code as well
		}
		var err error
		got.Pod, err = adopt(pod, podCopy)
		return got, err
	})
	return p.explained(got), fault
}

// explained returns the verdict with a reason if it refuses the node without one.
func (p *plugin) explained(v Verdict) Verdict {
	if !v.OK && len(v.Reasons) == 0 {
		v.Reasons = []Reason{{Plugin: p.name, Text: fmt.Sprintf("device scheduler %s refuses the node and does not "+
			"say why", p.name)}}
	}
	return v
}

func values(plugin string, reasons []devicescheduler.PredicateFailureReason) []Reason {
	var to []Reason
	for _, r := range reasons {
		if r == nil {
			continue
		}
		v := Reason{Plugin: plugin, Text: r.GetReason()}
		v.Resource, v.Requested, v.Used, v.Capacity = r.GetInfo()
		if n, says := r.(interface{ Never() bool }); says {
			v.Never = n.Never()
		}
		to = append(to, v)
	}
	return to
}

// Allocate returns a copy of the pod with DevRequests and AllocateFrom for the
// node. Nothing is counted: see With and Take.
func (h *Host) Allocate(n *Node, pod *types.PodInfo) (*types.PodInfo, error) {
	if reasons := n.unknown(); len(reasons) > 0 {
		return nil, fmt.Errorf("allocate devices of node %s to pod %s: %w", n.name, pod.Name, reasons[0].err())
	}
	p := fresh(pod, n.name)
	for _, plug := range n.set.plugins {
		concerned, fault := plug.concerned(p)
		if fault != nil {
			return nil, fault
		}
		if !concerned {
			continue
		}
		if p, fault = plug.allocate(n.info, p); fault != nil {
			return nil, fault
		}
	}
	if group := n.set.group; group != nil {
		if err := group.PodAllocate(n.info, p); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *plugin) allocate(node *types.NodeInfo, pod *types.PodInfo) (*types.PodInfo, *Fault) {
	a := about{method: "PodAllocate", node: node.Name, pod: pod.Name}
	nodeCopy, podCopy := node.Clone(), pod.Clone()
	return call(p, a, func(s devicescheduler.DeviceScheduler) (*types.PodInfo, error) {
		if err := s.PodAllocate(nodeCopy, podCopy); err != nil {
			return nil, err
		}
		return adopt(pod, podCopy)
	})
}

func (r Reason) err() error {
	if r.Fault != nil {
		return r.Fault
	}
	return errors.New(r.Text)
}
