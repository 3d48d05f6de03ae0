package group

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/resource"
)

// TestScenarios runs the stories in testdata/scenarios. Names are without
// "resource/group/" in them. Commands:
//
//	node                 lines "gpu/dev0 cards=1 memory=80[@scorer]": start anew with this node
//	set                  lines "leaf count": change what the node has
//	schedule pod=p       lines "[init] container gpu/0 cards=1[@scorer]": place, allocate and take
//	fits pod=p           the same, but take nothing
//	allocate pod=p       place what an earlier "schedule" or "fits" of p stands for, again
//	remove pod=p         the pod is gone
//	used                 what the node's pods hold
//
// A scorer is its number. "schedule" and "fits" have translate=(a/b,c/d): lift
// the requests to stage a over b, then c over d.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		s := &story{pods: map[string]*types.PodInfo{}}
		datadriven.RunTest(t, path, s.run)
	})
}

type story struct {
	Scheduler
	node *types.NodeInfo
	pods map[string]*types.PodInfo
}

func (s *story) run(t *testing.T, d *datadriven.TestData) string {
	name := ""
	d.MaybeScanArgs(t, "pod", &name)
	switch d.Cmd {
	case "node":
		s.node = types.NewNodeInfoWithName("node")
		for _, words := range inputWords(d) {
			counts(t, words[0], words[1:], s.node.Allocatable, s.node.Scorer)
		}
		s.AddNode(s.node.Name, s.node)
		return ""
	case "set":
		for _, words := range inputWords(d) {
			counts(t, "", words, s.node.Allocatable, s.node.Scorer)
		}
		return ""
	case "schedule", "fits":
		s.pods[name] = s.pod(t, name, d)
		out, ok := s.place(name)
		if ok && d.Cmd == "schedule" {
			if err := s.TakePodResources(s.node, s.pods[name]); err != nil {
				return "error: " + err.Error()
			}
		}
		return out
	case "allocate":
		out, _ := s.place(name)
		return out
	case "remove":
		if err := s.ReturnPodResources(s.node, s.pods[name]); err != nil {
			return "error: " + err.Error()
		}
		return ""
	case "used":
		return showList(s.node.Used)
	}
	t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
	return ""
}

func (s *story) pod(t *testing.T, name string, d *datadriven.TestData) *types.PodInfo {
	pod := types.NewPodInfo()
	pod.Name = name
	for _, words := range inputWords(d) {
		containers := pod.RunningContainers
		if words[0] == "init" {
			containers, words = pod.InitContainers, words[1:]
		}
		c := containers[words[0]]
		c = *types.FillContainerInfo(&c)
		if len(words) > 1 {
			counts(t, words[1], words[2:], c.DevRequests, c.Scorer)
		}
		containers[words[0]] = c
	}
	for _, arg := range d.CmdArgs {
		if arg.Key != "translate" {
			continue
		}
		for _, stages := range arg.Vals {
			this, next, _ := strings.Cut(stages, "/")
			for _, containers := range []map[string]types.ContainerInfo{pod.InitContainers, pod.RunningContainers} {
				for name, c := range containers {
					_, c.DevRequests = resource.TranslateResource(s.node.Allocatable, c.DevRequests, this, next)
					containers[name] = c
				}
			}
		}
	}
	return pod
}

// place asks twice, first as Filter does, then as Reserve does.
func (s *story) place(name string) (string, bool) {
	pod := s.pods[name]
	before := fmt.Sprint(pod)
	fits, reasons, first := s.PodFitsDevice(s.node, pod, false)
	if after := fmt.Sprint(pod); before != after {
		return "changed the pod: " + before + " to " + after, false
	}
	if !fits {
		var out []string
		for _, r := range reasons {
			line := r.GetReason()
			if _, requested, used, capacity := r.GetInfo(); requested >= 0 {
				line += fmt.Sprintf(": requested %d, used %d of %d", requested, used, capacity)
			}
			out = append(out, strings.ReplaceAll(line, types.DeviceGroupPrefix+"/", ""))
		}
		return "does not fit\n" + strings.Join(out, "\n"), false
	}
	if err := s.PodAllocate(s.node, pod); err != nil {
		return "error: " + err.Error(), false
	}
	if _, _, again := s.PodFitsDevice(s.node, pod, true); again != first {
		return fmt.Sprintf("score %f, of the same placement %f", first, again), false
	}
	return fmt.Sprintf("score %.5f\n", first) + showPlaces(pod), true
}

// showPlaces has a line a container and device: "main: gpu/0 from gpu/dev4".
func showPlaces(pod *types.PodInfo) string {
	var out []string
	for role, containers := range map[string]map[string]types.ContainerInfo{"": pod.RunningContainers, "init ": pod.InitContainers} {
		for name, c := range containers {
			for want, from := range c.AllocateFrom {
				w, f := short(want), short(from)
				wantLeaf, fromLeaf := w[strings.LastIndexByte(w, '/')+1:], f[strings.LastIndexByte(f, '/')+1:]
				if wantLeaf == fromLeaf && w != wantLeaf {
					w, f = strings.TrimSuffix(w, "/"+wantLeaf), strings.TrimSuffix(f, "/"+fromLeaf)
				}
				out = append(out, fmt.Sprintf("%s%s: %s from %s", role, name, w, f))
			}
		}
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), "\n")
}

func showList(list types.ResourceList) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(list)) {
		out = append(out, fmt.Sprintf("%s %d", short(name), list[name]))
	}
	if len(out) == 0 {
		return "nothing"
	}
	return strings.Join(out, "\n")
}

func short(name types.ResourceName) string {
	return strings.TrimPrefix(string(name), types.DeviceGroupPrefix+"/")
}

// counts reads "leaf=count[@scorer]" words of the group.
func counts(t *testing.T, group string, words []string, list types.ResourceList, scorers types.ResourceScorer) {
	for _, word := range words {
		leaf, count, _ := strings.Cut(word, "=")
		count, scorer, ok := strings.Cut(count, "@")
		n, err := strconv.ParseInt(count, 0, 64)
		if err != nil {
			t.Fatalf("%q: %v", word, err)
		}
		if group != "" {
			leaf = group + "/" + leaf
		}
		name := types.ResourceName(types.DeviceGroupPrefix + "/" + leaf)
		list[name] = n
		if ok {
			number, err := strconv.ParseInt(scorer, 10, 32)
			if err != nil {
				t.Fatalf("%q: %v", word, err)
			}
			scorers[name] = int32(number)
		}
	}
}

func inputWords(d *datadriven.TestData) (lines [][]string) {
	for line := range strings.Lines(d.Input) {
		if words := strings.Fields(line); len(words) > 0 {
			lines = append(lines, words)
		}
	}
	return lines
}
