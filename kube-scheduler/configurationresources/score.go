package configurationresources

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotcache"
)

// PreScore computes the scores: the plugin prefers nodes as its arguments weigh, those with more of the
// requested slots free (with fewer, when packing), and those with devices of their own. It skips Score, which
// would be asked about hundreds of nodes, where all are equal and for pods that ask for no slots.
func (p *Plugin) PreScore(_ context.Context, state fwk.CycleState, _ *v1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	c, status := readCycle(state)
	if status != nil {
		return fwk.NewStatus(fwk.Skip)
	}
	places := make([]int, 0, len(nodes))
	for _, node := range nodes {
		if place := c.Place(node); place != slotcache.NoPlace {
			places = append(places, place)
		}
	}
	if len(places) == 0 {
		return fwk.NewStatus(fwk.Skip)
	}
	c.scores = make([]int8, 1+slices.Max(places))
	equal := len(places) == len(nodes)
	for i, in := range c.ScoreInputs(places) {
		c.scores[places[i]] = p.score(in)
		equal = equal && c.scores[places[i]] == c.scores[places[0]]
	}
	if equal {
		return fwk.NewStatus(fwk.Skip)
	}
	return nil
}

// score is from 0 to MaxScore, which is 100.
func (p *Plugin) score(in ledger.ScoreInput) int8 {
	if p.args.Strategy == ledger.Pack {
		in.Free = 1 - in.Free
	}
	free, local := float64(*p.args.NodeScore.FreeSlots), float64(*p.args.NodeScore.LocalDevices)
	return int8(float64(fwk.MaxScore) * (free*in.Free + local*in.Local) / (free + local))
}

// Score returns what PreScore has computed; 0 for a node that was not among those.
func (*Plugin) Score(_ context.Context, state fwk.CycleState, _ *v1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	c, status := readCycle(state)
	if status != nil {
		return 0, status
	}
	if place := c.Place(node); place != slotcache.NoPlace && place < len(c.scores) {
		return int64(c.scores[place]), nil
	}
	return 0, nil
}

// ScoreExtensions implements fwk.ScorePlugin: scores are absolute.
func (*Plugin) ScoreExtensions() fwk.ScoreExtensions { return nil }
