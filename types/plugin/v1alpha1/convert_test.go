package v1alpha1

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/kubeslot/kubeslot/types"
)

// each returns lists of which no two are equal.
func each() func() types.ResourceList {
	n := int64(0)
	return func() types.ResourceList { n++; return types.ResourceList{"r": n} }
}

// Nothing is lost on the way to a plugin and back, and no two fields are confused.
func TestThereAndBack(t *testing.T) {
	list := each()
	node := &types.NodeInfo{Name: "n", Capacity: list(), Allocatable: list(), Used: list(),
		Scorer: types.ResourceScorer{"s": 7}, KubeCap: list(), KubeAlloc: list()}
	if diff := cmp.Diff(node, over(t, NodeInfoOf(node), &NodeInfo{}).Info()); diff != "" {
		t.Errorf("NodeInfo (-was +is):\n%s", diff)
	}
	state := node.Clone()
	state.Name, state.Used = "", types.ResourceList{} // are not the node's half's to say
	if diff := cmp.Diff(state, over(t, NodeStateOf(node), &NodeState{}).Info()); diff != "" {
		t.Errorf("NodeState (-was +is):\n%s", diff)
	}
	container := func() types.ContainerInfo {
		return types.ContainerInfo{KubeRequests: list(), Requests: list(), DevRequests: list(),
			AllocateFrom: types.ResourceLocation{"want": "from"}, Scorer: types.ResourceScorer{"s": 8}}
	}
	pod := &types.PodInfo{Name: "p", Namespace: "ns", UID: "uid", NodeName: "n", Requests: list(),
		InitContainers:    map[string]types.ContainerInfo{"i": container()},
		RunningContainers: map[string]types.ContainerInfo{"c": container()}}
	if diff := cmp.Diff(pod, over(t, PodInfoOf(pod), &PodInfo{}).Info()); diff != "" {
		t.Errorf("PodInfo (-was +is):\n%s", diff)
	}
	before := pod.Clone()
	for _, containers := range []map[string]types.ContainerInfo{before.InitContainers, before.RunningContainers} {
		for name, c := range containers {
			c.DevRequests, c.AllocateFrom, c.Scorer = nil, nil, nil
			containers[name] = c
		}
	}
	after, err := over(t, PodChangesOf(before, pod), &PodChanges{}).ChangeIn(before)
	if diff := cmp.Diff(pod, after); err != nil || diff != "" {
		t.Errorf("PodChanges (-was +is):\n%s, %v", diff, err)
	}
}

// over returns the message as it arrives.
func over[M proto.Message](t *testing.T, sent, got M) M {
	t.Helper()
	wire, err := proto.Marshal(sent)
	if err == nil {
		err = proto.Unmarshal(wire, got)
	}
	if err != nil {
		t.Fatal(err)
	}
	return got
}
