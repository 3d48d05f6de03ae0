package nvidiagpu

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kubeslot/kubeslot/device-scheduler/host"
	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/fakenvml"
	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/gpu"
	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/node"
	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/schedule"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
)

// Whatever pods come and go, whatever they ask for, and whatever becomes of the
// GPUs: no GPU is in two containers that run at a time, each container gets as
// many as it asked for, and a pod that asks for no groups is placed whenever as
// many GPUs are free.
func TestNoGPUTwice(t *testing.T) {
	names := slices.Sorted(maps.Keys(fakenvml.Layouts))
	rapid.Check(t, func(t *rapid.T) {
		layout := fakenvml.Layouts[rapid.SampledFrom(names).Draw(t, "layout")]
		machine := fakenvml.New(layout)
		device := node.NewDevice(machine, func() error { return nil })
		h, err := host.New([]devicescheduler.DeviceScheduler{schedule.Scheduler{}}, host.Options{})
		if err != nil {
			t.Fatal(err)
		}
		tell := func() {
			info := types.NewNodeInfo()
			if err := device.UpdateNodeInfo(info); err != nil {
				t.Fatal(err)
			}
			if err := h.AddNode("node", info); err != nil {
				t.Fatal(err)
			}
		}
		tell()
		runs := map[string][]string{} // the GPUs of the pods that run
		for step := range 12 {
			switch rapid.IntRange(0, 3).Draw(t, "action") {
			case 0:
				if len(runs) > 0 {
					uid := rapid.SampledFrom(slices.Sorted(maps.Keys(runs))).Draw(t, "goes")
					delete(runs, uid)
					if err := h.Return("node", uid); err != nil {
						t.Fatal(err)
					}
				}
				continue
			case 1:
				if layout.GPUs > 0 {
					machine.Lose(rapid.IntRange(0, layout.GPUs-1).Draw(t, "gpu"), rapid.Bool().Draw(t, "lost"))
					tell()
				}
				continue
			}
			pod, sum, simple := drawPod(t)
			uid := fmt.Sprint(step)
			info := h.Node("node").Info()
			free := len(gpu.Free(info.Allocatable, info.Used, gpu.DefaultKind))
			got, err := h.Allocate(h.Node("node"), pod)
			if err != nil {
				if simple && sum <= free {
					t.Fatalf("%d GPUs are free, and %d are not placed: %v", free, sum, err)
				}
				continue
			}
			if err := h.Take("node", uid, got); err != nil {
				t.Fatal(err)
			}
			var own []string
			for name, c := range got.RunningContainers {
				own = append(own, visible(t, device, c, wants(pod.RunningContainers[name]))...)
			}
			for name, c := range got.InitContainers {
				uuids := visible(t, device, c, wants(pod.InitContainers[name]))
				for _, u := range uuids {
					inUse(t, runs, u)
				}
			}
			slices.Sort(own)
			if len(slices.Compact(slices.Clone(own))) != len(own) {
				t.Fatalf("a GPU twice in a pod: %v", own)
			}
			for _, u := range own {
				inUse(t, runs, u)
			}
			runs[uid] = own
		}
	})
}

func inUse(t *rapid.T, runs map[string][]string, uuid string) {
	for other, has := range runs {
		if slices.Contains(has, uuid) {
			t.Fatalf("%s is given to a second pod; pod %s has it", uuid, other)
		}
	}
}

func wants(c types.ContainerInfo) int { return int(c.KubeRequests[gpu.Resource]) }

func visible(t *rapid.T, device *node.Device, c types.ContainerInfo, want int) []string {
	_, _, env, err := device.Allocate(nil, &c)
	if err != nil {
		t.Fatal(err)
	}
	var uuids []string
	if env["NVIDIA_VISIBLE_DEVICES"] != "" {
		uuids = strings.Split(env["NVIDIA_VISIBLE_DEVICES"], ",")
	}
	if len(uuids) != want {
		t.Fatalf("%d GPUs, asked for %d: %v", len(uuids), want, c)
	}
	return uuids
}

// drawPod draws a pod, how many GPUs it needs, and whether it leaves it to us
// which.
func drawPod(t *rapid.T) (pod *types.PodInfo, sum int, simple bool) {
	pod, simple = types.NewPodInfo(), true
	most := 0
	for _, part := range []struct {
		containers map[string]types.ContainerInfo
		n          int
		init       bool
	}{{pod.RunningContainers, rapid.IntRange(1, 2).Draw(t, "running"), false}, {pod.InitContainers, rapid.IntRange(0, 1).Draw(t, "init"), true}} {
		for i := range part.n {
			c := *types.NewContainerInfo()
			n := rapid.IntRange(0, 4).Draw(t, "gpus")
			if n > 0 {
				c.KubeRequests[gpu.Resource] = int64(n)
			}
			switch rapid.IntRange(0, 5).Draw(t, "topology") {
			case 0:
				c.Requests[gpu.Topology] = 0
				simple = simple && n == 0
			case 1:
				c.Requests[gpu.Topology] = 1
			case 2:
				if n > 1 {
					simple = false
					c.Requests["resource/group/gpugrp0/0/gpu/0/cards"], c.Requests["resource/group/gpugrp0/0/gpu/1/cards"] = 1, 1
				}
			}
			part.containers[fmt.Sprintf("c%d", i)] = c
			most = max(most, n)
			if !part.init {
				sum += n
			}
		}
	}
	return pod, max(sum, most), simple
}
