package widget

import (
	"strings"
	"testing"

	"github.com/kubeslot/kubeslot/device-scheduler/host"
	"github.com/kubeslot/kubeslot/plugins/plugintest/overgrpc"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/device"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
)

// Both halves together, as the two binaries drive them, loaded and over gRPC: a pod gets widgets of
// one board, and its container is told which.
func TestPodGetsItsWidgets(t *testing.T) {
	t.Setenv(LayoutEnv, "2x3")
	t.Run("loaded", func(t *testing.T) {
		h, err := host.New([]devicescheduler.DeviceScheduler{Scheduler{}}, host.Options{})
		if err != nil {
			t.Fatal(err)
		}
		getsItsWidgets(t, h, &Device{})
	})
	t.Run("over gRPC", func(t *testing.T) {
		getsItsWidgets(t, overgrpc.Scheduler(t, Scheduler{}, string(Resource)), overgrpc.Device(t, &Device{}))
	})
}

func getsItsWidgets(t *testing.T, h *host.Host, dev device.Device) {
	if err := dev.Start(); err != nil {
		t.Fatal(err)
	}
	node := types.NewNodeInfo()
	if err := dev.UpdateNodeInfo(node); err != nil || node.KubeCap[Resource] != 6 {
		t.Fatal(node, err)
	}
	if err := h.AddNode("node", node); err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct{ uid, widgets string }{{"a", "1-4,1-5"}, {"b", "0-1,0-2"}, {"c", ""}} {
		pod := &types.PodInfo{Name: want.uid, RunningContainers: map[string]types.ContainerInfo{
			"main": {KubeRequests: types.ResourceList{Resource: 2}}, "sidecar": {}}}
		// One widget is free on each board then, but not two on one.
		if fit := h.Fits(h.Node("node"), pod); fit.OK != (want.widgets != "") {
			t.Fatalf("pod %s: %+v", want.uid, fit)
		} else if !fit.OK {
			continue
		}
		got, err := h.Allocate(h.Node("node"), pod)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Take("node", want.uid, got); err != nil {
			t.Fatal(err)
		}
		_, _, env, err := dev.Allocate(got, got.GetContainerInPod("main"))
		if err != nil || env["WIDGETS"] != want.widgets {
			t.Errorf("pod %s: %v, %v; want %s", want.uid, env, err, want.widgets)
		}
		if _, _, env, err := dev.Allocate(got, got.GetContainerInPod("sidecar")); err != nil || len(env) != 0 {
			t.Errorf("sidecar: %v, %v", env, err)
		}
	}
}

func TestBadInput(t *testing.T) {
	for _, layout := range []string{"many", "-1x2", "2x", "1000000000x1000000000"} {
		t.Setenv(LayoutEnv, layout)
		if err := (&Device{}).Start(); err == nil || !strings.Contains(err.Error(), LayoutEnv) {
			t.Errorf("%s: %v", layout, err)
		}
	}
	for _, n := range []int64{-1, 1 << 60} {
		pod := &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{"main": {Requests: types.ResourceList{Resource: n}}}}
		if ok, reasons, _ := (Scheduler{}).PodFitsDevice(nil, pod, false); ok || len(reasons) != 1 {
			t.Errorf("%d: %v %v", n, ok, reasons)
		}
	}
	prefix := types.ResourceName(types.DeviceGroupPrefix + "/")
	for _, from := range []string{"board/0/widget/7/cards", "board/0/widget/x/cards", "gpu/0/cards", ""} {
		c := &types.ContainerInfo{AllocateFrom: types.ResourceLocation{prefix + types.ResourceName(key(0, 0)): prefix + types.ResourceName(from)}}
		if _, _, env, err := (&Device{boards: 2, perBoard: 2}).Allocate(nil, c); err == nil {
			t.Errorf("%s: %v", from, env)
		}
	}
}
