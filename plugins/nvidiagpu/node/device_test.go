package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
	"github.com/google/go-cmp/cmp"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/fakenvml"
	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/gpu"
	"github.com/kubeslot/kubeslot/plugins/plugintest/overgrpc"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/device"
)

func noLoad() error { return nil }

// hosting gives the device as a host has it.
type hosting func(testing.TB, device.Device) device.Device

func loaded(_ testing.TB, d device.Device) device.Device { return d }

// eachHost runs the test for a device that is loaded, and for one over gRPC.
func eachHost(t *testing.T, test func(*testing.T, hosting)) {
	for name, host := range map[string]hosting{"loaded": loaded, "over gRPC": overgrpc.Device} {
		t.Run(name, func(t *testing.T) { test(t, host) })
	}
}

func started(t *testing.T, host hosting, m nvml.Interface, cdiFolders ...string) device.Device {
	t.Helper()
	d := NewDevice(m, noLoad)
	d.cdiFolders = cdiFolders
	hosted := host(t, d)
	if err := errors.Join(hosted.New(), hosted.Start()); err != nil {
		t.Fatal(err)
	}
	return hosted
}

func update(t *testing.T, d device.Device) *types.NodeInfo {
	t.Helper()
	info := types.NewNodeInfo()
	if err := d.UpdateNodeInfo(info); err != nil {
		t.Fatal(err)
	}
	return info
}

// given is a container that was assigned the GPUs.
func given(uuids ...string) *types.ContainerInfo {
	c := types.NewContainerInfo()
	for i, u := range uuids {
		for _, leaf := range []string{gpu.Cards, gpu.Bytes} {
			want := gpu.Name{Node: "0", Clique: "0", GPU: fmt.Sprint(i), Leaf: leaf}.Resource()
			c.AllocateFrom[want] = gpu.GPU{UUID: u, Node: "7", Clique: "7"}.Leaf(leaf)
		}
	}
	return c
}

// The names and amounts are KubeGPU's.
func TestUpdateNodeInfo(t *testing.T) { eachHost(t, testUpdateNodeInfo) }

func testUpdateNodeInfo(t *testing.T, host hosting) {
	info := update(t, started(t, host, fakenvml.New(fakenvml.Layouts["mixed"])))
	want := types.ResourceList{}
	for i, group := range []string{"0/gpugrp0/0", "0/gpugrp0/0", "0/gpugrp0/1", "1/gpugrp0/2", "1/gpugrp0/2", "1/gpugrp0/3"} {
		name := types.ResourceName("resource/group/gpugrp1/" + group + "/gpu/" + fakenvml.UUID(i))
		want[name+"/cards"], want[name+"/memory"] = 1, 40<<30
		if i == 5 {
			want[name+"/memory"] = 20 << 30
		}
	}
	if diff := cmp.Diff(want, info.Allocatable) + cmp.Diff(want, info.Capacity); diff != "" {
		t.Error(diff)
	}
	if six := (types.ResourceList{gpu.Resource: 6}); !cmp.Equal(six, info.KubeCap) || !cmp.Equal(six, info.KubeAlloc) {
		t.Error(info.KubeCap, info.KubeAlloc)
	}
}

// A machine without driver or GPUs starts, and says nothing of GPUs: somebody else
// may.
func TestNoDriver(t *testing.T) {
	real := NewDevice(nvml.New(nvml.WithLibraryPath("/none/libnvidia-ml.so.1")), func() error { return errors.New("cannot open shared object file") })
	unloaded := fakenvml.New(fakenvml.Layouts["dgx-a100"])
	unloaded.InitFunc = func() nvml.Return { return nvml.ERROR_DRIVER_NOT_LOADED }
	for name, d := range map[string]*Device{
		"no library": real,
		"no driver":  NewDevice(unloaded, noLoad),
		"no GPUs":    NewDevice(fakenvml.New(fakenvml.Layouts["none"]), noLoad),
	} {
		if err := d.Start(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if info := update(t, d); !cmp.Equal(info, types.NewNodeInfo()) {
			t.Errorf("%s: %v", name, info)
		}
		if _, _, _, err := d.Allocate(nil, given(fakenvml.UUID(0))); err == nil || !strings.Contains(err.Error(), fakenvml.UUID(0)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The driver comes.
	unloaded.InitFunc = func() nvml.Return { return nvml.SUCCESS }
	d := NewDevice(unloaded, noLoad)
	if n := update(t, d).KubeCap[gpu.Resource]; n != 8 {
		t.Errorf("%d GPUs after the driver came", n)
	}
	// And goes: what was advertised is taken back.
	unloaded.DeviceGetCountFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_UNINITIALIZED }
	if err := d.UpdateNodeInfo(types.NewNodeInfo()); err == nil || !strings.Contains(err.Error(), "DeviceGetCount") {
		t.Error(err)
	}
	unloaded.InitFunc = func() nvml.Return { return nvml.ERROR_DRIVER_NOT_LOADED }
	if n, ok := update(t, d).KubeCap[gpu.Resource]; n != 0 || !ok {
		t.Errorf("%d GPUs, %v, after the driver went", n, ok)
	}
}

// What NVML does not know of connections, as in a virtual machine, keeps no GPU
// from being advertised.
func TestNoTopology(t *testing.T) {
	m := fakenvml.New(fakenvml.Layouts["dgx-a100"])
	for i := range 8 {
		handle, _ := m.DeviceGetHandleByIndex(i)
		d := handle.(*server.Device)
		d.GetNvLinkStateFunc = func(int) (nvml.EnableState, nvml.Return) {
			return nvml.FEATURE_DISABLED, nvml.ERROR_NOT_SUPPORTED
		}
		d.GetTopologyCommonAncestorFunc = func(nvml.Device) (nvml.GpuTopologyLevel, nvml.Return) {
			return 0, nvml.ERROR_NOT_SUPPORTED
		}
	}
	groups := map[string]bool{}
	for _, g := range gpu.Free(update(t, started(t, loaded, m)).Allocatable, nil, gpu.DefaultKind) {
		groups[g.Node+"/"+g.Clique] = true
	}
	if len(groups) != 8 {
		t.Errorf("groups %v", groups)
	}
}

func TestHealth(t *testing.T) { eachHost(t, testHealth) }

func testHealth(t *testing.T, host hosting) {
	m := fakenvml.New(fakenvml.Layouts["two-cliques"])
	d := started(t, host, m)
	has := func(i int) bool {
		t.Helper()
		info := update(t, d)
		n := 0
		for _, g := range gpu.Free(info.Allocatable, nil, gpu.DefaultKind) {
			if g.UUID == fakenvml.UUID(i) {
				n++
			}
		}
		return n == 1
	}
	allocate := func(i int) error { _, _, _, err := d.Allocate(nil, given(fakenvml.UUID(i))); return err }

	m.Lose(0, true)
	if err := allocate(0); err == nil || !strings.Contains(err.Error(), "LOST") {
		t.Errorf("lost since the last look: %v", err)
	}
	if has(0) || !has(1) {
		t.Error("the GPU is lost")
	}
	if err := allocate(0); err == nil || !strings.Contains(err.Error(), "delete the pod") {
		t.Error(err)
	}
	m.Lose(0, false)
	if !has(0) || allocate(0) != nil {
		t.Error("the GPU is back")
	}

	m.Report(1, nvml.EventTypeXidCriticalError, 13)
	if !has(1) || allocate(1) != nil {
		t.Error("a program's error does no harm")
	}
	m.Report(1, nvml.EventTypeXidCriticalError, 79)
	if err := allocate(1); err == nil || !strings.Contains(err.Error(), "XID 79") {
		t.Error(err)
	}
	m.Report(2, nvml.EventTypeDoubleBitEccError, 0)
	if has(1) || has(2) || !has(3) {
		t.Error("a GPU with an error is out until it is known to be well")
	}

	m.Partition(3, true)
	if err := func() error { has(3); return allocate(3) }(); err == nil || !strings.Contains(err.Error(), "MIG") {
		t.Error(err)
	}
}

func TestAllocate(t *testing.T) { eachHost(t, testAllocate) }

func testAllocate(t *testing.T, host hosting) {
	d := started(t, host, fakenvml.New(fakenvml.Layouts["two-cliques"]))
	if own := d.(device.VariableOwner).OwnVariables(); !cmp.Equal(own, map[string]string{visibleDevices: "void"}) {
		t.Error(own)
	}
	zero, five := fakenvml.UUID(0), fakenvml.UUID(5)
	mounts, devices, env, err := d.Allocate(nil, given(five, zero))
	if err != nil || len(mounts)+len(devices) != 0 || env[visibleDevices] != zero+","+five {
		t.Error(mounts, devices, env, err)
	}
	if mounts, devices, env, err := d.Allocate(nil, types.NewContainerInfo()); err != nil || len(mounts)+len(devices)+len(env) != 0 {
		t.Error("asked for none, and gets", mounts, devices, env, err)
	}
	for name, c := range map[string]*types.ContainerInfo{
		"unknown":  given("GPU-none"),
		"no GPU":   {AllocateFrom: types.ResourceLocation{gpu.Name{Leaf: gpu.Cards}.Resource(): "resource/group/board/0/cards"}},
		"not this": {AllocateFrom: types.ResourceLocation{gpu.Name{Leaf: gpu.Cards}.Resource(): gpu.GPU{UUID: zero}.Leaf(gpu.Bytes)}},
	} {
		if _, _, env, err := d.Allocate(nil, c); err == nil {
			t.Errorf("%s: %v", name, env)
		}
	}
	// Another plugin's are none of ours.
	other := &types.ContainerInfo{AllocateFrom: types.ResourceLocation{"resource/group/board/0/cards": "resource/group/board/1/cards"}}
	if _, _, env, err := d.Allocate(nil, other); err != nil || env != nil {
		t.Error(env, err)
	}
	// After a restart, a container may come before anybody looked.
	fresh := NewDevice(fakenvml.New(fakenvml.Layouts["two-cliques"]), noLoad)
	fresh.cdiFolders = nil
	if _, _, env, err := fresh.Allocate(nil, given(five)); err != nil || env[visibleDevices] != five {
		t.Error(env, err)
	}
}

func writeSpec(t *testing.T, dir, file, uuid string) {
	t.Helper()
	spec := "cdiVersion: 0.6.0\nkind: nvidia.com/gpu\ndevices:\n- name: " + uuid + "\n"
	if err := os.WriteFile(filepath.Join(dir, file), []byte(spec), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAllocateCDI(t *testing.T) { eachHost(t, testAllocateCDI) }

func testAllocateCDI(t *testing.T, host hosting) {
	zero, one := fakenvml.UUID(0), fakenvml.UUID(1)
	dir := t.TempDir()
	for file, text := range map[string]string{
		"nvidia.yaml": "cdiVersion: 0.6.0\nkind: nvidia.com/gpu\ndevices:\n- name: all\n- name: " + zero + "\n  containerEdits:\n    deviceNodes:\n    - path: /dev/nvidia0\n",
		"other.json":  `{"cdiVersion":"0.6.0","kind":"example.com/gpu","devices":[{"name":"` + one + `"}]}`,
		"broken.yaml": "devices: [", "nvidia.txt": "kind: nvidia.com/gpu\ndevices: [{name: " + one + "}]\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d := started(t, host, fakenvml.New(fakenvml.Layouts["two-cliques"]), "/none", dir)
	if _, devices, env, err := d.Allocate(nil, given(zero)); err != nil || !cmp.Equal(devices, []string{"nvidia.com/gpu=" + zero}) || env[visibleDevices] != "void" {
		t.Error(devices, env, err)
	}
	// A slice is described by its own UUID.
	sliced := started(t, host, fakenvml.New(fakenvml.Layouts["mig-alike"]), dir)
	got := gpu.GPU{UUID: one, Slice: fakenvml.SliceUUID(1, nvml.GPU_INSTANCE_PROFILE_3_SLICE, 0)}
	writeSpec(t, dir, "mig.yaml", got.Slice)
	want := gpu.Name{Slice: "0", Leaf: "mig-3g.40gb"}.Resource()
	c := &types.ContainerInfo{AllocateFrom: types.ResourceLocation{want: got.Leaf("mig-3g.40gb")}}
	_, devices, env, err := sliced.Allocate(nil, c)
	if err != nil || !cmp.Equal(devices, []string{"nvidia.com/gpu=" + got.Slice}) || env[visibleDevices] != "void" {
		t.Error(devices, env, err)
	}
	// One is not described: all go the other way, for a container sees one or the
	// other.
	if _, devices, env, err := d.Allocate(nil, given(zero, one)); err != nil || devices != nil || env[visibleDevices] != zero+","+one {
		t.Error(devices, env, err)
	}
}
