package configurationresources

import (
	"context"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// blockingPlugin has pods named victim wait before they are bound: in WaitOnPermit, or in PreBind
// until they are canceled.
type blockingPlugin struct {
	*Plugin
	permit  bool // wait in WaitOnPermit, for an hour
	blocked chan struct{}
}

var (
	_ fwk.PermitPlugin  = (*blockingPlugin)(nil)
	_ fwk.PreBindPlugin = (*blockingPlugin)(nil)
)

func (b *blockingPlugin) Permit(_ context.Context, _ fwk.CycleState, p *v1.Pod, _ string) (*fwk.Status, time.Duration) {
	if !b.permit || p.Name != "victim" {
		return nil, 0
	}
	b.blocked <- struct{}{}
	return fwk.NewStatus(fwk.Wait), time.Hour
}

func (b *blockingPlugin) PreBindPreFlight(context.Context, fwk.CycleState, *v1.Pod, string) (
	*fwk.PreBindPreFlightResult, *fwk.Status) {
	return nil, nil
}

func (b *blockingPlugin) PreBind(ctx context.Context, _ fwk.CycleState, p *v1.Pod, _ string) *fwk.Status {
	if p.Name != "victim" {
		return nil
	}
	b.blocked <- struct{}{}
	<-ctx.Done()
	return fwk.AsStatus(context.Cause(ctx))
}

// A victim that is assumed, in WaitOnPermit or PreBind, is not deleted: it gives its slots back, and waits.
func TestVictimThatIsNotBoundYet(t *testing.T) {
	for name, permit := range map[string]bool{"in WaitOnPermit": true, "in PreBind": false} {
		t.Run(name, func(t *testing.T) {
			b := &blockingPlugin{permit: permit, blocked: make(chan struct{}, 100)}
			q := newRealScheduler(t, func(p *Plugin) fwk.Plugin { b.Plugin = p; return b },
				advertising("node-a", "1"), advertising("node-b", "1"))
			shared(q.cache, "cam-000001")
			on := func(p *v1.Pod, node string) *v1.Pod {
				p.Spec.NodeSelector = map[string]string{v1.LabelHostname: node}
				return p
			}
			check(q.client.Tracker().Add(on(pod("victim", "1"), "node-a")))
			<-b.blocked
			check(q.client.Tracker().Add(on(important("vip"), "node-b")))
			q.eventuallyBound("vip", "node-b")
			q.wantDeleted("a pod that could be canceled")
			if got := stored(q.client, "victim"); got.Spec.NodeName != "" || slices.ContainsFunc(got.Status.Conditions,
				func(c v1.PodCondition) bool { return c.Type == v1.DisruptionTarget }) {
				t.Errorf("the victim is on node %q, with %+v", got.Spec.NodeName, got.Status.Conditions)
			}
		})
	}
}
