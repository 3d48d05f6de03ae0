package configurationresources

import (
	"context"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"
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
				}
			}
			status := p.PreScore(ctx, state, asking, append(slices.Clone(tc.nodes), has[0].Snapshot()))
			if (len(tc.nodes) == 0) != status.IsSkip() {
				t.Fatal(status)
			}
			for _, node := range tc.nodes {
				if score, status := p.Score(ctx, state, asking, node); (score > 0) != (node != bare) {
					t.Errorf("Score of %s = %d, %v, want some: %v", node.Node().Name, score, status, node != bare)
				}
			}
		})
	}
}

// TestFilterOfWhatNodesAdvertise: what is left of it follows the node's pods and
// its status.
func TestFilterOfWhatNodesAdvertise(t *testing.T) {
	ctx := context.Background()
	p, nodes := benchCluster(1, 8)
	node := nodes[0].(*framework.NodeInfo)
	fits := func(what, quantity string, want bool) {
		t.Helper()
		state, asking := framework.NewCycleState(), pod("p", quantity)
		if _, status := p.PreFilter(ctx, state, asking, nodes); !status.IsSuccess() {
			t.Fatal(status)
		}
		for range 2 {
			if status := p.Filter(ctx, state, asking, node); status.IsSuccess() != want {
				t.Errorf("%s: Filter of a pod that asks for %s = %v, want it to fit: %v", what, quantity, status, want)
			}
		}
	}
	advertise := func(n string) {
		changed := node.Node().DeepCopy()
		changed.Status.Allocatable["akri.sh/cam"] = resource.MustParse(n)
		node.SetNode(changed)
	}
	advertise("4")
	fits("4 advertised", "4", true)
	fits("4 advertised", "5", false)
	using := pod("using", "2")
	node.AddPodInfo(must(framework.NewPodInfo(using)))
	fits("2 of 4 used", "3", false)
	fits("2 of 4 used", "2", true)
	advertise("1")
	fits("2 of 1 used", "1", false)
	advertise("100000")
	fits("2 of 100000 used", "8", true)
	check(node.RemovePod(klog.Background(), using))
	advertise("3")
	fits("3 advertised", "3", true)
	fits("3 advertised", "4", false)
}
