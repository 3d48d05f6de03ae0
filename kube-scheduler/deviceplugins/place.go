package deviceplugins

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/helper"

	"github.com/kubeslot/kubeslot/kube-scheduler/binding"
)

// PreScore skips Score for pods that ask nothing of plugins.
func (*Plugin) PreScore(_ context.Context, state fwk.CycleState, _ *v1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	if readCycle(state) == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	return nil
}

// scoreUnit is what a plugin's score of 1 is between Score and NormalizeScore, in
// whole numbers; maxScore bounds scores, which plugins do not keep to 1.
const (
	scoreUnit = 1 << 20
	maxScore  = 1 << 32
)

// Score is the sum of what the plugins said in Filter.
func (p *Plugin) Score(_ context.Context, state fwk.CycleState, _ *v1.Pod, on fwk.NodeInfo) (int64, *fwk.Status) {
	c := readCycle(state)
	if c == nil {
		return 0, nil
	}
	name := on.Node().Name
	score, ok := c.scores.Load(name)
	if !ok { // the framework did not ask Filter, as for a nominated node
		score = p.cache.judge(name, p.node(c, name), c.req, c.ask).score
	}
	return int64(scoreUnit * math.Min(math.Max(score.(float64), 0), maxScore)), nil
}

// ScoreExtensions implements fwk.ScorePlugin.
func (p *Plugin) ScoreExtensions() fwk.ScoreExtensions { return p }

// NormalizeScore gives the best node all points, and each other its share of that.
func (*Plugin) NormalizeScore(_ context.Context, _ fwk.CycleState, _ *v1.Pod, scores fwk.NodeScoreList) *fwk.Status {
	return helper.DefaultNormalizeScore(fwk.MaxScore, false, scores)
}

// Reserve has the plugins allocate on the node, and counts it.
func (p *Plugin) Reserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	c := readCycle(state)
	if c == nil {
		return nil
	}
	before := p.cache.host.Node(node)
	if before == nil {
		return p.failed(pod, node, errors.New("the node's devices are not known any longer"))
	}
	allocated, err := p.cache.host.Allocate(before, c.req.pod)
	if err != nil {
		return p.failed(pod, node, err)
	}
	if err := p.cache.assume(pod.UID, node, allocated); err != nil {
		return p.failed(pod, node, err)
	}
	p.cache.queue.Reserved(pod.UID)
	if c.req.byAuthor() == 0 && !gave(allocated) && p.countsNothing(string(pod.UID), node) {
		p.cache.forget(pod) // all its requests are another's
		return nil
	}
	if err := p.binder.Contribute(state, pod, node, Name, partOf(allocated), nil); err != nil {
		return unresolvable(err.Error()) // Unreserve follows
	}
	return nil
}

// countsNothing reports whether the pod, which is counted, uses nothing.
func (p *Plugin) countsNothing(uid, node string) bool {
	now := p.cache.host.Node(node)
	if now == nil {
		return true
	}
	without, err := p.cache.host.Without(now, uid)
	return err == nil && maps.Equal(without.Info().Used, now.Info().Used)
}

// failed is the status of a pod that a plugin refuses at Reserve, although it fitted.
func (p *Plugin) failed(pod *v1.Pod, node string, err error) *fwk.Status {
	err = fmt.Errorf("allocate devices of node %s to pod %s: %w", node, klog.KObj(pod), err)
	// That it fitted a moment ago and does not now is retried like a fault: a plugin
	// may contradict itself, and then nothing that happens to the node would help.
	p.cache.faulted(pod.UID)
	p.cache.trouble.happen.Send()
	return fwk.NewStatus(fwk.Unschedulable, shorten(err.Error(), maxEventMessage))
}

// Unreserve gives the devices back, unless the pod turned out to be bound.
func (p *Plugin) Unreserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ string) {
	if readCycle(state) == nil {
		return
	}
	binding.Withdraw(state)
	p.cache.forget(pod)
}

// Bind sends what was reserved, with the slots that the pod got.
func (p *Plugin) Bind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	return p.binder.Bind(ctx, state, pod, node)
}
