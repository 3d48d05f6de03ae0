package deviceplugins

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/host"
	"github.com/kubeslot/kubeslot/kube-scheduler/kubecripods"
)

const stateKey = Name

// cycle is what the plugin knows of a pod during its scheduling cycle.
type cycle struct {
	req *request
	ask *host.Ask // of the pod, also about nodes that are imagined; nil while there are no plugins
	// imagined are nodes as a preemption's what-if has them, by name.
	imagined map[string]*host.Node

	// scores are of nodes that fit, by name: float64. Filter writes them in parallel.
	scores sync.Map
}

// Clone implements fwk.StateData. It is for a what-if, which reads no scores.
func (c *cycle) Clone() fwk.StateData {
	return &cycle{req: c.req, ask: c.ask, imagined: maps.Clone(c.imagined)}
}

// PreFilter reads what the pod asks of plugins, and refuses what none can answer.
func (p *Plugin) PreFilter(_ context.Context, state fwk.CycleState, pod *v1.Pod,
	nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if !mightAsk(pod) || pod.Spec.NodeName != "" { // a bound one may be looked at again to be resized
		return nil, fwk.NewStatus(fwk.Skip)
	}
	req, err := requestOf(pod)
	if err != nil {
		return nil, unresolvable(err.Error())
	}
	if req == nil {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	if !p.cache.plugins.Load() {
		i := slices.IndexFunc(req.asked, func(a asked) bool { return a.author })
		if i < 0 {
			state.Write(stateKey, &cycle{req: req})
			return nil, nil
		}
		return nil, unresolvable(fmt.Sprintf("the pod's annotation requests %s, and no device scheduler plugin is "+
			"loaded: see the scheduler's --devschedpath", req.asked[i]))
	}
	p.cache.expect(pod, req)
	if !p.cache.synced() {
		return nil, unresolvable("the nodes and pods have not been read yet")
	}
	state.Write(stateKey, &cycle{req: req, ask: p.cache.host.Ask(req.pod, after(nodes)),
		imagined: map[string]*host.Node{}})
	return nil, nil
}

// after yields the names of the nodes that the framework looks at after one of them, which it does
// in their order.
func after(nodes []fwk.NodeInfo) func(node string) iter.Seq[string] {
	return func(node string) iter.Seq[string] {
		return func(yield func(string) bool) {
			at := slices.IndexFunc(nodes, func(n fwk.NodeInfo) bool { return n.Node().Name == node })
			for i := range nodes {
				if !yield(nodes[(at+1+i)%len(nodes)].Node().Name) {
					return
				}
			}
		}
	}
}

// PreFilterExtensions implements fwk.PreFilterPlugin.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return p }

// AddPod imagines a pod on the node: one that RemovePod took away, or a nominated
// one, which would get devices first.
func (p *Plugin) AddPod(_ context.Context, state fwk.CycleState, _ *v1.Pod, added fwk.PodInfo, on fwk.NodeInfo) *fwk.Status {
	c := readCycle(state)
	if c == nil {
		return nil
	}
	n, pod := p.node(c, on.Node().Name), added.GetPod()
	if n == nil || n.Holds(string(pod.UID)) {
		return nil
	}
	held, _ := p.cache.hold(pod.UID)
	holds := held.info
	if held.node != n.Name() {
		if pod.Spec.NodeName != "" {
			return nil // bound without devices
		}
		req, err := requestOf(pod)
		if err != nil || req == nil {
			return nil // it holds nothing, and will get nothing
		}
		if holds, err = p.cache.host.Allocate(n, req.pod); err != nil {
			return nil // it will not get here either
		}
	}
	// With an error, the node is without what could not be counted, and closed if
	// that is not known.
	next, _ := p.cache.host.With(n, string(pod.UID), holds)
	c.imagined[n.Name()] = next
	return nil
}

// RemovePod imagines a pod away.
func (p *Plugin) RemovePod(_ context.Context, state fwk.CycleState, _ *v1.Pod, removed fwk.PodInfo, on fwk.NodeInfo) *fwk.Status {
	c := readCycle(state)
	if c == nil {
		return nil
	}
	n, uid := p.node(c, on.Node().Name), removed.GetPod().UID
	if n == nil || !n.Holds(string(uid)) {
		return nil
	}
	next, _ := p.cache.host.Without(n, string(uid)) // with an error it is counted anew
	c.imagined[n.Name()] = next
	return nil
}

// Filter asks the plugins whether the node fits, and refuses it if kubecri there would refuse a container.
func (p *Plugin) Filter(_ context.Context, state fwk.CycleState, pod *v1.Pod, on fwk.NodeInfo) *fwk.Status {
	c := readAnyCycle(state)
	if c == nil {
		return nil
	}
	var n *host.Node
	var v verdict
	name := on.Node().Name
	if c.ask != nil {
		n = p.node(c, name)
		v = p.cache.judge(name, n, c.req, c.ask)
	}
	if v.fits() {
		p.cache.refuseUnassigned(&v, on.Node(), n, c.req)
	}
	switch {
	case !v.fits():
		if v.faulted {
			p.cache.faulted(pod.UID)
		}
		return v.status()
	case c.ask == nil:
		return nil
	case kubecripods.Away(on):
		if w, waits := p.cache.queue.Get(pod.UID); waits {
			w.kubecriAway.Store(true)
		}
		return kubecripods.Refused()
	}
	c.scores.Store(name, v.score)
	return nil
}

// readCycle returns nil if the pod asks nothing of plugins, or there are none.
func readCycle(state fwk.CycleState) *cycle {
	if c := readAnyCycle(state); c != nil && c.ask != nil {
		return c
	}
	return nil
}

// readAnyCycle is readCycle, also while there are no plugins.
func readAnyCycle(state fwk.CycleState) *cycle {
	data, err := state.Read(stateKey)
	if err != nil {
		return nil
	}
	return data.(*cycle)
}

// node returns the node as the cycle imagines it; nil if it is not known.
func (p *Plugin) node(c *cycle, name string) *host.Node {
	if n := c.imagined[name]; n != nil {
		return n
	}
	return p.cache.host.Node(name)
}

func unresolvable(reason string) *fwk.Status {
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, shorten(reason, maxEventMessage))
}
