package configurationresources

import (
	"context"
	"testing"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// TestFilterOfNodesThatComeAndGo: what a node has is found by its place in the
// scheduler's list of nodes, which is another one after nodes came or went, and by
// its name where the scheduler only imagines the node.
func TestFilterOfNodesThatComeAndGo(t *testing.T) {
	ctx := context.Background()
	p, has := benchCluster(2, 4)
	bare := nodeInfo("bare")
	for _, tc := range []struct {
		name  string
		nodes []fwk.NodeInfo
	}{
		{"at first", []fwk.NodeInfo{has[0], bare, has[1]}},
		{"a node has gone", []fwk.NodeInfo{bare, has[1]}},
		{"a node is back", []fwk.NodeInfo{has[1], has[0], bare}},
		{"none are left", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			state, asking := framework.NewCycleState(), pod("p", "1")
			if _, status := p.PreFilter(ctx, state, asking, tc.nodes); !status.IsSuccess() {
				t.Fatal(status)
			}
			for _, node := range []fwk.NodeInfo{has[0], has[1], bare} {
				want := node != bare
				for what, node := range map[string]fwk.NodeInfo{"node": node, "imagined node": node.Snapshot()} {
					name := node.Node().Name
					if status := p.Filter(ctx, state, asking, node); status.IsSuccess() != want {
						t.Errorf("Filter of %s %s = %v, want it to fit: %v", what, name, status, want)
					}
					if score, status := p.Score(ctx, state, asking, node); (score > 0) != want {
						t.Errorf("Score of %s %s = %d, %v, want some: %v", what, name, score, status, want)
					}
				}
			}
		})
	}
	if p.book.roster.of([]fwk.NodeInfo{bare}) {
		t.Error("the roster of one list passes for that of another")
	}
}
