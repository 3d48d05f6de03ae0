package group

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/resource"
)

// FuzzFit takes whatever a user or a node can write. Nothing panics, and what
// fits stays within what the node has.
func FuzzFit(f *testing.F) {
	f.Add("gpu/0/cards 1\ngpugrp0/0/gpu/1/cards 2", "a gpu/x/cards 1 0\nb gpugrp0/0/gpu/1/cards 2 3")
	f.Add("gpu//cards -1\n// 3\n/gpu/0/ 9223372036854775807", "a gpu//cards 0 7\na // 3 -1\na /gpu/0/ 9223372036854775807 1")
	f.Add("a/b/c/d 1\na/b 2\nX 3", "a a/b/c/d 1 0\ni a/b 1 2\na X 2 3")
	f.Add("gpu/0/enum -9223372036854775808", "a gpu/0/enum 9223372036854775807 2\nb gpu/[^/]*/enum 1 1")
	f.Fuzz(func(t *testing.T, has, wants string) {
		node := types.NewNodeInfoWithName("n")
		for line := range strings.Lines(has) {
			name, count, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			n, _ := strconv.ParseInt(count, 10, 64)
			node.Allocatable[types.ResourceName(types.DeviceGroupPrefix+"/"+name)] = n
		}
		pod := types.NewPodInfo()
		for line := range strings.Lines(wants) {
			words := append(strings.Split(strings.TrimSuffix(line, "\n"), " "), "", "", "", "")
			containers := pod.RunningContainers
			if strings.HasPrefix(words[0], "i") {
				containers = pod.InitContainers
			}
			c := containers[words[0]]
			c = *types.FillContainerInfo(&c)
			name := types.ResourceName(types.DeviceGroupPrefix + "/" + words[1])
			c.DevRequests[name], _ = strconv.ParseInt(words[2], 10, 64)
			scorer, _ := strconv.ParseInt(words[3], 10, 32)
			c.Scorer[name], node.Scorer[name] = int32(scorer), int32(scorer>>4)
			containers[words[0]] = c
		}
		var s Scheduler
		fits, reasons, score := s.PodFitsDevice(node, pod, true)
		if !fits {
			if len(reasons) == 0 {
				t.Fatal("no reason")
			}
			_ = fmt.Sprint(s.PodAllocate(node, pod))
			return
		}
		if !(score >= 0 && score <= 1) {
			t.Fatalf("score %v", score)
		}
		if again, _, other := s.PodFitsDevice(node, pod, true); !again || other != score {
			t.Fatalf("the placement fits: %v, score %v, before %v", again, other, score)
		}
		if err := Take(node, pod); err != nil {
			t.Fatal(err)
		}
		for name, n := range node.Used {
			if n <= 0 || n > node.Allocatable[name] && node.Scorer[name] != resource.AlwaysFoundScorer {
				t.Fatalf("%d of %q is used, of %d", n, name, node.Allocatable[name])
			}
		}
		if err := Return(node, pod); err != nil || len(node.Used) > 0 {
			t.Fatalf("error %v, used %v", err, node.Used)
		}
	})
}
