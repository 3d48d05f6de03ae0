package configurationresources

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/claims"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// beforeBind is the step before a pod's Binding is sent: it makes sure that the
// slots are the pod's still, and with claimMode Scheduler claims them.
type beforeBind struct {
	*Plugin
	pod   *v1.Pod
	node  string
	wants map[string]claims.Claim // by Instance; none with claimMode Node
}

func (p *Plugin) beforeBind(pod *v1.Pod, node string, a ledger.Assignment) *beforeBind {
	s := &beforeBind{Plugin: p, pod: pod, node: node}
	if p.claims != nil {
		s.wants = claims.Of(string(pod.UID), node, a)
	}
	return s
}

// Do claims on one Instance after the other, all or none. A slot that another has
// taken is in the ledger afterwards: the pod, tried again, gets another or waits.
func (s *beforeBind) Do(ctx context.Context) *fwk.Status {
	if err := s.book.check(string(s.pod.UID)); err != nil {
		return fwk.AsStatus(err)
	}
	tried := map[string]*akriv0.Instance{}
	for _, name := range slices.Sorted(maps.Keys(s.wants)) {
		in := s.book.instance(name)
		if in == nil {
			s.release(ctx, tried)
			return fwk.AsStatus(fmt.Errorf("Instance %s does not exist any more", name))
		}
		tried[name] = in
		err := s.claims.Take(ctx, in, s.wants[name])
		if err == nil {
			continue
		}
		var held *claims.Held
		if errors.As(err, &held) {
			delete(tried, name) // nothing was written
		}
		s.release(ctx, tried)
		if held != nil {
			s.tryLater(s.pod)
			return fwk.NewStatus(fwk.Unschedulable, fmt.Sprintf("cannot be bound to node %s: %v; the pod is tried again", s.node, held))
		}
		return fwk.AsStatus(err)
	}
	return nil
}

// Undo releases the claims of a pod that was not bound.
func (s *beforeBind) Undo(ctx context.Context) {
	of := map[string]*akriv0.Instance{}
	for name := range s.wants {
		if in := s.book.instance(name); in != nil {
			of[name] = in
		}
	}
	s.release(ctx, of)
}

// release gives back what was claimed of the Instances. The slots are the pod's in
// the ledger meanwhile. What cannot be released is found as a stray, or by kubecri.
func (s *beforeBind) release(ctx context.Context, of map[string]*akriv0.Instance) {
	for name, in := range of {
		if err := s.claims.Release(ctx, in, s.wants[name]); err != nil {
			klog.FromContext(ctx).Error(err, "Slots stay claimed for a pod that was not bound; they are released later",
				"pod", klog.KObj(s.pod), "node", s.node, "instance", name)
		}
	}
}

func (b *book) instance(name string) *akriv0.Instance {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.ledger.Instance(name)
}
