package group

import (
	"maps"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/resource"
)

func list(words ...any) types.ResourceList {
	l := types.ResourceList{}
	for i := 0; i < len(words); i += 2 {
		types.AddGroupResource(l, words[i].(string), int64(words[i+1].(int)))
	}
	return l
}

// TestFillKeepsSlots: the pod's slots are in the same AllocateFrom.
func TestFillKeepsSlots(t *testing.T) {
	node := &types.NodeInfo{Name: "n", Allocatable: list("gpu/0/cards", 1)}
	pod := &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{"c": {
		DevRequests:  list("gpu/a/cards", 1),
		AllocateFrom: types.ResourceLocation{"akri.sh/cam/0": "cam-1-0"},
	}}}
	var s Scheduler
	if err := s.PodAllocate(node, pod); err != nil {
		t.Fatal(err)
	}
	want := types.ResourceLocation{"akri.sh/cam/0": "cam-1-0", "resource/group/gpu/a/cards": "resource/group/gpu/0/cards"}
	if got := pod.RunningContainers["c"].AllocateFrom; !maps.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	if err := s.TakePodResources(node, pod); err != nil {
		t.Fatal(err)
	}
	if want := list("gpu/0/cards", 1); !maps.Equal(node.Used, want) {
		t.Fatalf("used %v, want %v", node.Used, want)
	}
	Clear(pod)
	if got := pod.RunningContainers["c"].AllocateFrom; !maps.Equal(got, types.ResourceLocation{"akri.sh/cam/0": "cam-1-0"}) {
		t.Fatalf("cleared: %v", got)
	}
}

// TestNodeChanges: what is in the NodeInfo counts, whatever AddNode saw.
func TestNodeChanges(t *testing.T) {
	pod := func() *types.PodInfo {
		return &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{"c": {DevRequests: list("gpu/a/cards", 1)}}}
	}
	var s Scheduler
	s.AddNode("n", &types.NodeInfo{Name: "n", Allocatable: list("gpu/0/cards", 1)})
	for name, c := range map[string]struct {
		node *types.NodeInfo
		fits bool
	}{
		"as added":        {&types.NodeInfo{Name: "n", Allocatable: list("gpu/0/cards", 1)}, true},
		"another one":     {&types.NodeInfo{Name: "m", Allocatable: list("gpu/0/cards", 1)}, true},
		"less":            {&types.NodeInfo{Name: "n", Allocatable: list("gpu/0/cards", 0)}, false},
		"gone":            {&types.NodeInfo{Name: "n"}, false},
		"another device":  {&types.NodeInfo{Name: "n", Allocatable: list("gpu/1/cards", 1)}, true},
		"another scorer":  {&types.NodeInfo{Name: "n", Allocatable: list("gpu/0/cards", 2), Scorer: types.ResourceScorer{"resource/group/gpu/0/cards": resource.EnumScorer}}, false},
		"used":            {&types.NodeInfo{Name: "n", Allocatable: list("gpu/0/cards", 1), Used: list("gpu/0/cards", 1)}, false},
		"used, negative":  {&types.NodeInfo{Name: "n", Allocatable: list("gpu/0/cards", 0), Used: list("gpu/0/cards", -1)}, false},
		"used, not there": {&types.NodeInfo{Name: "n", Allocatable: list("gpu/0/cards", 1), Used: list("gpu/1/cards", 1)}, true},
	} {
		p := pod()
		fits, _, _ := s.PodFitsDevice(c.node, p, true)
		if fits != c.fits {
			t.Errorf("%s: fits %v", name, fits)
		}
		for want, from := range p.RunningContainers["c"].AllocateFrom {
			if _, ok := c.node.Allocatable[from]; !ok {
				t.Errorf("%s: %s gets %s, which the node does not have", name, want, from)
			}
		}
	}
	s.RemoveNode("n")
	if len(s.trees) != 0 {
		t.Error("the node is remembered")
	}
}

// TestParallelFilters: for the race detector.
func TestParallelFilters(t *testing.T) {
	node := &types.NodeInfo{Name: "n", Allocatable: list("gpu/0/cards", 1)}
	var s Scheduler
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			s.AddNode(node.Name, node)
			pod := &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{"c": {DevRequests: list("gpu/a/cards", 1)}}}
			if fits, _, _ := s.PodFitsDevice(node.Clone(), pod, true); !fits {
				t.Error("does not fit")
			}
			s.RemoveNode(node.Name)
		})
	}
	wg.Wait()
}

// TestBadAllocation: what no scheduler wrote is neither taken nor checked as if.
func TestBadAllocation(t *testing.T) {
	for name, c := range map[string]struct {
		container types.ContainerInfo
		want      string
	}{
		"not requested":  {types.ContainerInfo{AllocateFrom: types.ResourceLocation{"resource/group/gpu/a/cards": "resource/group/gpu/0/cards"}}, "does not request"},
		"negative":       {types.ContainerInfo{DevRequests: list("gpu/a/cards", -1), AllocateFrom: types.ResourceLocation{"resource/group/gpu/a/cards": "resource/group/gpu/0/cards"}}, "negative"},
		"not of a group": {types.ContainerInfo{DevRequests: list("gpu/a/cards", 1), AllocateFrom: types.ResourceLocation{"resource/group/gpu/a/cards": "cpu"}}, "no group resource"},
	} {
		for _, pod := range []*types.PodInfo{
			{Name: "p", RunningContainers: map[string]types.ContainerInfo{"c": c.container}},
			{Name: "p", InitContainers: map[string]types.ContainerInfo{"c": c.container}},
		} {
			node := &types.NodeInfo{Name: "n", Allocatable: list("gpu/0/cards", 1), Used: list("gpu/0/cards", 1)}
			for _, err := range []error{Take(node, pod), Return(node, pod)} {
				if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `container "c"`) {
					t.Errorf("%s: error %v", name, err)
				}
			}
			if !maps.Equal(node.Used, list("gpu/0/cards", 1)) {
				t.Errorf("%s: used %v", name, node.Used)
			}
		}
	}

	node := &types.NodeInfo{Name: "n", Allocatable: list("gpu/0/cards", 1)}
	for _, from := range []types.ResourceName{"resource/group/gpu/7/cards", "cpu", ""} {
		pod := &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{"c": {
			DevRequests:  list("gpu/a/cards", 1),
			AllocateFrom: types.ResourceLocation{"resource/group/gpu/a/cards": from},
		}}}
		if p, _ := NewTree(node).Fit(nil, pod); p != nil {
			t.Errorf("allocated from %q fits", from)
		}
	}
}

// TestChosenPlaces: what a plugin chose is kept, and what is asked for besides is
// placed around it, also for containers that come first by name.
func TestChosenPlaces(t *testing.T) {
	at := func(pairs ...types.ResourceName) types.ResourceLocation {
		l := types.ResourceLocation{}
		for i := 0; i < len(pairs); i += 2 {
			l["resource/group/"+pairs[i]] = "resource/group/" + pairs[i+1]
		}
		return l
	}
	node := &types.NodeInfo{Name: "n", Allocatable: list("gpu/0/cards", 1, "gpu/1/cards", 1, "gpu/2/cards", 1)}
	open := types.ContainerInfo{DevRequests: list("gpu/a/cards", 1)}
	chosen := types.ContainerInfo{DevRequests: list("gpu/a/cards", 1, "gpu/b/cards", 1), AllocateFrom: at("gpu/a/cards", "gpu/2/cards")}
	full := types.ContainerInfo{DevRequests: chosen.DevRequests, AllocateFrom: at("gpu/a/cards", "gpu/2/cards", "gpu/b/cards", "gpu/1/cards")}
	for name, c := range map[string]struct {
		running, init map[string]types.ContainerInfo
		want          map[string]types.ResourceLocation // nil: does not fit
	}{
		"of another container": {running: map[string]types.ContainerInfo{"a": open, "b": full},
			want: map[string]types.ResourceLocation{"a": at("gpu/a/cards", "gpu/0/cards"), "b": full.AllocateFrom}},
		"of the container itself": {running: map[string]types.ContainerInfo{"a": chosen},
			want: map[string]types.ResourceLocation{"a": full.AllocateFrom}},
		"of an init container": {init: map[string]types.ContainerInfo{"a": chosen},
			want: map[string]types.ResourceLocation{"a": full.AllocateFrom}},
		"of each init container": {init: map[string]types.ContainerInfo{"a": open, "b": full},
			want: map[string]types.ResourceLocation{"a": at("gpu/a/cards", "gpu/2/cards"), "b": full.AllocateFrom}},
		"twice": {running: map[string]types.ContainerInfo{"a": chosen, "b": chosen}},
	} {
		pod := &types.PodInfo{RunningContainers: c.running, InitContainers: c.init}
		p, _ := NewTree(node).Fit(nil, pod)
		if (p != nil) != (c.want != nil) {
			t.Errorf("%s: fits %v", name, p != nil)
		}
		if p == nil {
			continue
		}
		p.Fill(pod)
		for container, want := range c.want {
			if got := pod.GetContainerInPod(container).AllocateFrom; !maps.Equal(got, want) {
				t.Errorf("%s: container %s gets %v, want %v", name, container, got, want)
			}
		}
	}
}

// TestNotInAGroup: what has no index, or only begins like a group resource, is
// one leaf, which a request must name in full.
func TestNotInAGroup(t *testing.T) {
	names := []types.ResourceName{"resource/group", "resource/group/", "resource/group/a", "resource/group/a/0", "resource/groups/a/0/c", "resource/group2"}
	node := types.NewNodeInfo()
	for _, name := range names {
		node.Allocatable[name] = 1
	}
	tree := NewTree(node)
	fits := func(name types.ResourceName) bool {
		p, _ := tree.Fit(nil, &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{"c": {DevRequests: types.ResourceList{name: 1}}}})
		return p != nil
	}
	for _, name := range names {
		if !fits(name) {
			t.Errorf("%q does not fit", name)
		}
	}
	for _, name := range []types.ResourceName{"resource/group/b", "resource/group/a/1", "resource/groups/a/1/c", "resource/groups/b/0/c", "resource/group/a/0/c", "resource/group3"} {
		if fits(name) {
			t.Errorf("%q fits", name)
		}
	}
}

// TestDeepNames: an annotation holds 256 KiB, enough for a very deep name.
func TestDeepNames(t *testing.T) {
	deep := strings.Repeat("g/0/", 256<<10/4)
	node := &types.NodeInfo{Allocatable: list(deep+"cards", 1, deep+"memory", 1)}
	pod := &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{"c": {DevRequests: list(deep+"cards", 1)}}}
	start := time.Now()
	p, reasons := NewTree(node).Fit(nil, pod)
	if p == nil || p.Score != .5 {
		t.Fatal(p, len(reasons))
	}
	if took := time.Since(start); took > time.Minute {
		t.Fatalf("took %v", took)
	}
}

// TestNilContainers: a PodInfo and NodeInfo as JSON leaves them.
func TestNilContainers(t *testing.T) {
	var s Scheduler
	node, pod := &types.NodeInfo{}, &types.PodInfo{}
	s.AddNode("", node)
	if fits, reasons, score := s.PodFitsDevice(node, pod, true); !fits || reasons != nil || score != 0 {
		t.Fatal(fits, reasons, score)
	}
	if err := s.TakePodResources(node, pod); err != nil {
		t.Fatal(err)
	}
	if err := s.ReturnPodResources(&types.NodeInfo{}, pod); err != nil {
		t.Fatal(err)
	}
	Clear(pod)
	if !reflect.DeepEqual(pod, &types.PodInfo{}) {
		t.Fatal(pod)
	}
}
