package configurationresources

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
)

// PreScore skips Score for pods that ask for no slots: it would be asked about
// hundreds of nodes.
func (*Plugin) PreScore(_ context.Context, state fwk.CycleState, _ *v1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	if _, err := state.Read(stateKey); err != nil {
		return fwk.NewStatus(fwk.Skip)
	}
	return nil
}

// Score prefers nodes as the plugin's arguments weigh: those with more of the
// requested slots free (with fewer, when packing), and those with devices of
// their own.
func (p *Plugin) Score(_ context.Context, state fwk.CycleState, _ *v1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	c, status := readCycle(state)
	if status != nil {
		return 0, status
	}
	in := c.ScoreInput(node)
	if p.args.Strategy == ledger.Pack {
		in.Free = 1 - in.Free
	}
	free, local := float64(*p.args.NodeScore.FreeSlots), float64(*p.args.NodeScore.LocalDevices)
	return int64(float64(fwk.MaxScore) * (free*in.Free + local*in.Local) / (free + local)), nil
}

// ScoreExtensions implements fwk.ScorePlugin: scores are absolute.
func (*Plugin) ScoreExtensions() fwk.ScoreExtensions { return nil }
