package group

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/resource"
)

// TestHistories schedules and removes random pods on a random node. Every
// placement is what the plain rules say, and the node's account stays true.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{node: drawNode(t), pods: map[int]*types.PodInfo{}}
		w.AddNode(w.node.Name, w.node)
		t.Repeat(map[string]func(*rapid.T){
			"schedule": w.schedule,
			"remove":   w.remove,
			"":         w.check,
		})
		for i, pod := range w.pods {
			delete(w.pods, i)
			if err := w.ReturnPodResources(w.node, pod); err != nil {
				t.Fatal(err)
			}
		}
		if len(w.node.Used) > 0 {
			t.Fatalf("all pods are gone, but %v is used", w.node.Used)
		}
	})
}

type world struct {
	Scheduler
	node *types.NodeInfo
	pods map[int]*types.PodInfo
	next int
}

func (w *world) schedule(t *rapid.T) {
	pod := drawPod(t, w.node)
	before, after := clone(t, pod), clone(t, pod)
	fits, reasons, score := w.PodFitsDevice(w.node, pod, false)
	if !reflect.DeepEqual(pod, before) {
		t.Fatal("PodFitsDevice without fillAllocateFrom changed the pod")
	}
	wantScore, want, wantFits := plainFit(w.node, pod)
	if fits != wantFits {
		t.Fatalf("fits: %v, by the plain rules %v; %v", fits, wantFits, reasons)
	}
	// clone made the maps anew, so that their order is another one.
	allocateErr := w.PodAllocate(w.node.Clone(), after)
	if !fits {
		if len(reasons) == 0 || score != 0 || allocateErr == nil {
			t.Fatalf("no place, but reasons %v, score %v, PodAllocate's error %v", reasons, score, allocateErr)
		}
		if !reflect.DeepEqual(after, before) {
			t.Fatal("PodAllocate changed a pod that does not fit")
		}
		return
	}
	if allocateErr != nil {
		t.Fatal(allocateErr)
	}
	if score != wantScore || score < 0 || score > 1 {
		t.Fatalf("score %v, by the plain rules %v", score, wantScore)
	}
	for name, c := range allContainers(after) {
		if !maps.Equal(c.AllocateFrom, want[name]) {
			t.Fatalf("container %s gets %v, by the plain rules %v", name, c.AllocateFrom, want[name])
		}
	}
	if _, _, again := w.PodFitsDevice(w.node, after, true); again != score {
		t.Fatalf("score %v, of the placement that it made %v", score, again)
	}

	used := maps.Clone(w.node.Used)
	if err := w.TakePodResources(w.node, after); err != nil {
		t.Fatal(err)
	}
	other := w.node.Clone()
	if err := w.ReturnPodResources(other, after); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(other.Used, used) {
		t.Fatalf("taken and returned, %v is used, before %v", other.Used, used)
	}
	w.next++
	w.pods[w.next] = after
}

func (w *world) remove(t *rapid.T) {
	if len(w.pods) == 0 {
		t.Skip("no pods")
	}
	i := rapid.SampledFrom(slices.Sorted(maps.Keys(w.pods))).Draw(t, "pod")
	if err := w.ReturnPodResources(w.node, w.pods[i]); err != nil {
		t.Fatal(err)
	}
	delete(w.pods, i)
}

// check recomputes what the pods hold: at no moment of its life does a pod hold
// more than it took, and all pods together do not hold more than there is.
func (w *world) check(t *rapid.T) {
	sum := types.ResourceList{}
	for _, pod := range w.pods {
		peak := types.ResourceList{}
		for _, c := range pod.RunningContainers {
			for want, from := range c.AllocateFrom {
				peak[from] += c.DevRequests[want]
			}
		}
		for _, c := range pod.InitContainers {
			during := types.ResourceList{}
			for want, from := range c.AllocateFrom {
				during[from] += c.DevRequests[want]
			}
			for from, n := range during {
				peak[from] = max(peak[from], n)
			}
		}
		for from, n := range peak {
			if resource.Scorer(from, w.node.Scorer[from]) != resource.EnumScorer && n > 0 {
				sum[from] += n
			}
		}
	}
	if !maps.Equal(sum, w.node.Used) {
		t.Fatalf("used is %v, pods hold %v", w.node.Used, sum)
	}
	for from, n := range sum {
		if n > w.node.Allocatable[from] && w.node.Scorer[from] != resource.AlwaysFoundScorer {
			t.Fatalf("%d of %s is given out, of %d", n, from, w.node.Allocatable[from])
		}
	}
}

func drawNode(t *rapid.T) *types.NodeInfo {
	node := types.NewNodeInfoWithName("node")
	levels := rapid.IntRange(1, 3).Draw(t, "levels")
	prefixes := []string{""}
	for _, group := range []string{"gpugrp1", "gpugrp0", "gpu"}[3-levels:] {
		var deeper []string
		for i, p := range prefixes {
			for j := range rapid.IntRange(1, 3).Draw(t, "of "+group) {
				deeper = append(deeper, fmt.Sprintf("%s%s/%d%d/", p, group, i, j))
			}
		}
		prefixes = deeper
	}
	leaf := func(name string, count int) {
		types.AddGroupResource(node.Allocatable, name, int64(count))
		if n := rapid.IntRange(0, 20).Draw(t, "scorer of "+name); n < 4 {
			node.Scorer[types.ResourceName(types.DeviceGroupPrefix+"/"+name)] = int32(n)
		}
	}
	for _, p := range prefixes {
		leaf(p+"cards", rapid.IntRange(1, 3).Draw(t, "cards"))
		if rapid.Bool().Draw(t, "has memory") {
			leaf(p+"memory", rapid.IntRange(0, 4).Draw(t, "memory")*10)
		}
		if rapid.IntRange(0, 3).Draw(t, "has type") == 0 {
			leaf(p+"enumType", rapid.IntRange(0, 7).Draw(t, "type"))
		}
	}
	for _, name := range []string{"switch", "gpugrp1/00/link", "gpugrp1/01/link", "gpugrp0/00/link", "gpugrp0/01/link"} {
		if rapid.IntRange(0, 3).Draw(t, "has "+name) == 0 {
			leaf(name, 3)
		}
	}
	return node
}

func drawPod(t *rapid.T, node *types.NodeInfo) *types.PodInfo {
	pod := types.NewPodInfo()
	for i := range rapid.IntRange(1, 4).Draw(t, "containers") {
		c := types.NewContainerInfo()
		for j := range rapid.IntRange(0, 3).Draw(t, "devices") {
			name := rapid.SampledFrom([]string{"", "", "gpugrp0/A/", "gpugrp0/B/", "gpugrp1/0/gpugrp0/A/", "gpugrp1/0/gpugrp0/B/"}).Draw(t, "group") +
				fmt.Sprintf("gpu/%d/", j)
			types.AddGroupResource(c.DevRequests, name+"cards", rapid.Int64Range(0, 2).Draw(t, "cards"))
			if rapid.Bool().Draw(t, "wants memory") {
				types.AddGroupResource(c.DevRequests, name+"memory", rapid.Int64Range(0, 40).Draw(t, "memory"))
			}
			if rapid.IntRange(0, 5).Draw(t, "wants type") == 0 {
				types.AddGroupResource(c.DevRequests, name+"enumType", rapid.Int64Range(0, 7).Draw(t, "type"))
			}
		}
		for _, name := range []string{"switch", "gpugrp0/A/link", "gpugrp1/0/link"} {
			if rapid.IntRange(0, 7).Draw(t, "wants "+name) == 0 {
				types.AddGroupResource(c.DevRequests, name, rapid.Int64Range(0, 2).Draw(t, name))
			}
		}
		_, c.DevRequests = resource.TranslateResource(node.Allocatable, c.DevRequests, "gpugrp0", "gpu")
		_, c.DevRequests = resource.TranslateResource(node.Allocatable, c.DevRequests, "gpugrp1", "gpugrp0")
		for _, name := range slices.Sorted(maps.Keys(c.DevRequests)) {
			if n := rapid.IntRange(0, 30).Draw(t, "own scorer"); n < 5 {
				c.Scorer[name] = int32(n)
			}
		}
		if rapid.IntRange(0, 2).Draw(t, "init") == 0 {
			pod.InitContainers[fmt.Sprint("i", i)] = *c
		} else {
			pod.RunningContainers[fmt.Sprint("r", i)] = *c
		}
	}
	return pod
}

func allContainers(pod *types.PodInfo) map[string]types.ContainerInfo {
	all := maps.Clone(pod.RunningContainers)
	maps.Copy(all, pod.InitContainers)
	return all
}

func clone(t *rapid.T, pod *types.PodInfo) *types.PodInfo {
	text, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	to := types.NewPodInfo()
	if err := json.Unmarshal(text, to); err != nil {
		t.Fatal(err)
	}
	for _, containers := range []map[string]types.ContainerInfo{to.RunningContainers, to.InitContainers} {
		for name, c := range containers {
			containers[name] = *types.FillContainerInfo(&c)
		}
	}
	return to
}
