package types

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The names are KubeDevice's: its plugins and tools read them.
func TestJSONIsKubeDevices(t *testing.T) {
	list := ResourceList{"r": 1}
	container := ContainerInfo{
		KubeRequests: list, Requests: list, DevRequests: list,
		AllocateFrom: ResourceLocation{"r": "from"}, Scorer: ResourceScorer{"r": 2},
	}
	const containerJSON = `{"requests":{"r":1},"devrequests":{"r":1},"allocatefrom":{"r":"from"},"scorer":{"r":2}}`
	for name, tc := range map[string]struct {
		value any
		want  string
	}{
		"pod": {
			value: PodInfo{Name: "p", NodeName: "n", Requests: list,
				InitContainers: map[string]ContainerInfo{"i": container}, RunningContainers: map[string]ContainerInfo{"c": container}},
			want: `{"podname":"p","nodename":"n","requests":{"r":1},"initcontainer":{"i":` + containerJSON + `},"runningcontainer":{"c":` + containerJSON + `}}`,
		},
		"node": {
			value: NodeInfo{Name: "n", Capacity: list, Allocatable: list, Used: list, Scorer: ResourceScorer{"r": 2}, KubeCap: list, KubeAlloc: list},
			want:  `{"name":"n","capacity":{"r":1},"allocatable":{"r":1},"used":{"r":1},"scorer":{"r":2}}`,
		},
		"empty pod":       {value: NewPodInfo(), want: `{}`},
		"empty node":      {value: NewNodeInfo(), want: `{}`},
		"empty container": {value: NewContainerInfo(), want: `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := json.Marshal(tc.value)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tc.want {
				t.Errorf("JSON %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestNodeInfoClone(t *testing.T) {
	original := NewNodeInfoWithName("n")
	original.Capacity["r"], original.KubeCap["k"] = 1, 2
	clone := original.Clone()
	if diff := cmp.Diff(original, clone); diff != "" {
		t.Errorf("Clone() (-original +clone):\n%s", diff)
	}
	clone.Capacity["r"], clone.KubeCap["k"], clone.Used["r"] = 9, 9, 9
	if original.Capacity["r"] != 1 || original.KubeCap["k"] != 2 || len(original.Used) != 0 {
		t.Errorf("a change of the clone reached the original: %+v", original)
	}
}

func TestPodInfoClone(t *testing.T) {
	original := &PodInfo{Name: "p", NodeName: "n", Requests: ResourceList{"r": 1},
		InitContainers:    map[string]ContainerInfo{"i": {AllocateFrom: ResourceLocation{"r": "from"}}},
		RunningContainers: map[string]ContainerInfo{"c": {}}}
	clone := original.Clone()
	clone.Requests["r"], clone.InitContainers["i"].AllocateFrom["r"] = 9, "elsewhere"
	c := clone.RunningContainers["c"]
	c.KubeRequests["r"], c.Requests["r"], c.DevRequests["r"], c.AllocateFrom["r"], c.Scorer["r"] = 1, 1, 1, "x", 1 // no map is nil
	clone.RunningContainers["other"] = c
	if original.Requests["r"] != 1 || original.InitContainers["i"].AllocateFrom["r"] != "from" || len(original.RunningContainers) != 1 {
		t.Errorf("a change of the clone reached the original: %+v", original)
	}
	if clone.Name != "p" || clone.NodeName != "n" {
		t.Errorf("Clone() = %+v", clone)
	}
}

func TestGetContainerInPod(t *testing.T) {
	pod := &PodInfo{
		InitContainers:    map[string]ContainerInfo{"i": {Requests: ResourceList{"r": 1}}},
		RunningContainers: map[string]ContainerInfo{"c": {Requests: ResourceList{"r": 2}}},
	}
	for name, want := range map[string]int64{"i": 1, "c": 2} {
		if c := pod.GetContainerInPod(name); c == nil || c.Requests["r"] != want {
			t.Errorf("GetContainerInPod(%q) = %+v", name, c)
		}
	}
	if c := pod.GetContainerInPod("ephemeral"); c != nil {
		t.Errorf("GetContainerInPod of none = %+v", c)
	}
}

func TestAddGroupResource(t *testing.T) {
	list := ResourceList{}
	AddGroupResource(list, "gpu/0/cards", 1)
	if list["resource/group/gpu/0/cards"] != 1 {
		t.Errorf("list %v", list)
	}
}

func TestFillContainerInfo(t *testing.T) {
	given := ResourceList{"r": 1}
	c := FillContainerInfo(&ContainerInfo{Requests: given})
	c.AllocateFrom["r"] = "x" // no map is nil
	c.Requests["r"] = 2
	if given["r"] != 2 {
		t.Error("the maps given are copied; KubeDevice shares them")
	}
}
