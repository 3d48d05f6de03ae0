package group

import (
	"errors"
	"fmt"
	"sync"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
)

// Name is the name of the group scheduler among the device schedulers. It is
// KubeDevice's.
const Name = "grpdevice"

// Scheduler is the group scheduler in the form of a plugin. It belongs after
// all plugins: they translate the pod's requests to the node's hierarchy first.
// The zero value is ready, and safe for concurrent use as long as no two calls
// share a NodeInfo or PodInfo.
type Scheduler struct {
	mu    sync.RWMutex
	trees map[string]*Tree // of the nodes that were added
}

var _ devicescheduler.DeviceScheduler = (*Scheduler)(nil)

// AddNode parses the node, as the plugins before left it.
func (s *Scheduler) AddNode(name string, node *types.NodeInfo) {
	tree := NewTree(node)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.trees == nil {
		s.trees = map[string]*Tree{}
	}
	s.trees[name] = tree
}

// RemoveNode forgets the node.
func (s *Scheduler) RemoveNode(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.trees, name)
}

// tree returns the node's tree. The NodeInfo in hand decides: a caller may have
// changed its copy, or never have added the node.
func (s *Scheduler) tree(node *types.NodeInfo) *Tree {
	s.mu.RLock()
	tree := s.trees[node.Name]
	s.mu.RUnlock()
	if tree == nil || !tree.Matches(node) {
		return NewTree(node)
	}
	return tree
}

// PodFitsDevice is Tree.Fit. With fillAllocateFrom it writes the placement to
// the pod, if the pod fits.
func (s *Scheduler) PodFitsDevice(node *types.NodeInfo, pod *types.PodInfo, fillAllocateFrom bool) (bool, []devicescheduler.PredicateFailureReason, float64) {
	p, reasons := s.tree(node).Fit(node.Used, pod)
	if p == nil {
		return false, reasons, 0
	}
	if fillAllocateFrom {
		p.Fill(pod)
	}
	return true, nil, p.Score
}

// PodAllocate places the pod and writes the placement to it.
func (s *Scheduler) PodAllocate(node *types.NodeInfo, pod *types.PodInfo) error {
	ok, reasons, _ := s.PodFitsDevice(node, pod, true)
	if ok {
		return nil
	}
	var errs []error
	for _, r := range reasons {
		if err, ok := r.(error); ok {
			errs = append(errs, err)
		} else {
			errs = append(errs, errors.New(r.GetReason()))
		}
	}
	return fmt.Errorf("place pod %s on node %s: %w", pod.Name, node.Name, errors.Join(errs...))
}

// TakePodResources is Take.
func (s *Scheduler) TakePodResources(node *types.NodeInfo, pod *types.PodInfo) error {
	return Take(node, pod)
}

// ReturnPodResources is Return.
func (s *Scheduler) ReturnPodResources(node *types.NodeInfo, pod *types.PodInfo) error {
	return Return(node, pod)
}

// GetName returns Name.
func (s *Scheduler) GetName() string { return Name }

// UsingGroupScheduler is true: it is the group scheduler.
func (s *Scheduler) UsingGroupScheduler() bool { return true }
