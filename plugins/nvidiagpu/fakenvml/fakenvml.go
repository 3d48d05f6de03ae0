// Package fakenvml is a fake of NVML, for tests and for trying out: go-nvml's mocks
// of DGX machines, with what they lack: NVLink, PCIe and NUMA topology, errors, MIG
// devices, and machines of other kinds. It has no GPUs, and containers get none.
package fakenvml

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
)

// Machine is an nvml.Interface with GPUs that fail when they are told to.
type Machine struct {
	*server.Server
	layout  Layout
	devices []*server.Device

	mu     sync.Mutex
	lost   map[int]bool
	errors map[int]uint64
	repair map[int]nvml.DeviceGpuRecoveryAction
	slices map[int][]*slice
	events []nvml.EventData
	// OnCount is called when the GPUs are about to be read; it may be nil.
	OnCount func()
}

// New returns a machine with the layout's GPUs. The UUID of a GPU says its index.
func New(layout Layout) *Machine {
	m := &Machine{Server: dgxa100.New(), layout: layout, lost: map[int]bool{}, errors: map[int]uint64{},
		repair: map[int]nvml.DeviceGpuRecoveryAction{}, slices: map[int][]*slice{}}
	for i := range layout.GPUs {
		m.devices = append(m.devices, m.device(i))
		m.Restore(i)
	}
	m.DeviceGetCountFunc = func() (int, nvml.Return) {
		if m.OnCount != nil {
			m.OnCount()
		}
		return len(m.devices), nvml.SUCCESS
	}
	m.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i < 0 || i >= len(m.devices) {
			return nil, nvml.ERROR_INVALID_ARGUMENT
		}
		return m.devices[i], m.state(i)
	}
	m.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) {
		return &mock.EventSet{
			FreeFunc: func() nvml.Return { return nvml.SUCCESS },
			WaitFunc: func(uint32) (nvml.EventData, nvml.Return) { return m.nextEvent() },
		}, nvml.SUCCESS
	}
	return m
}

// UUID is that of the GPU with the index.
func UUID(index int) string { return fmt.Sprintf("GPU-fa4e0000-0000-4000-8000-%012d", index) }

// Memory is how many bytes an A100 has, unless the layout says otherwise.
const Memory = 40 << 30

func (m *Machine) device(i int) *server.Device {
	d := m.layout.model(i)
	d.UUID, d.Config.Name = UUID(i), "Fake "+d.Config.Name
	if m.layout.Memory != nil {
		d.MemoryInfo.Total = m.layout.Memory(i)
	}
	d.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) {
		return nvml.PciInfo{Bus: uint32(i + 1), PciDeviceId: d.Config.PciDeviceId}, m.state(i)
	}
	memory := d.GetMemoryInfoFunc
	d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) {
		if code := m.state(i); code != nvml.SUCCESS {
			return nvml.Memory{}, code
		}
		return memory()
	}
	d.GetTopologyCommonAncestorFunc = func(other nvml.Device) (nvml.GpuTopologyLevel, nvml.Return) {
		return m.layout.Ancestor(i, other.(*server.Device).Index), nvml.SUCCESS
	}
	d.GetNvLinkStateFunc = func(link int) (nvml.EnableState, nvml.Return) {
		if link >= len(m.layout.nvlinks(i)) {
			return nvml.FEATURE_DISABLED, nvml.ERROR_INVALID_ARGUMENT
		}
		return nvml.FEATURE_ENABLED, nvml.SUCCESS
	}
	d.GetNvLinkRemoteDeviceTypeFunc = func(link int) (nvml.IntNvLinkDeviceType, nvml.Return) {
		if m.layout.nvlinks(i)[link] == nvswitch {
			return nvml.NVLINK_DEVICE_TYPE_SWITCH, nvml.SUCCESS
		}
		return nvml.NVLINK_DEVICE_TYPE_GPU, nvml.SUCCESS
	}
	d.GetNvLinkRemotePciInfoFunc = func(link int) (nvml.PciInfo, nvml.Return) {
		return nvml.PciInfo{Bus: uint32(m.layout.nvlinks(i)[link] + 1)}, nvml.SUCCESS
	}
	d.GetSupportedEventTypesFunc = func() (uint64, nvml.Return) {
		return nvml.EventTypeXidCriticalError | nvml.EventTypeDoubleBitEccError, m.state(i)
	}
	d.RegisterEventsFunc = func(uint64, nvml.EventSet) nvml.Return { return nvml.SUCCESS }
	m.faults(d)
	m.mig(d)
	return d
}

// Lose has the GPU fall off the bus, or come back.
func (m *Machine) Lose(index int, lost bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lost[index] = lost
}

// Partition switches the GPU's MIG mode, with no slices.
func (m *Machine) Partition(index int, mig bool) {
	m.Slice(index) // no slice fails
	if !mig {
		m.devices[index].SetMigMode(nvml.DEVICE_MIG_DISABLE)
	}
}

// Restore partitions the GPU as the layout says.
func (m *Machine) Restore(index int) {
	names := m.layout.slices(index)
	if names == nil {
		m.Partition(index, false)
	} else if err := m.Slice(index, names...); err != nil {
		panic(err) // the layout is wrong
	}
}

// anyInstance is NVML's id of an instance for events that are not of one.
const anyInstance = 0xFFFFFFFF

// Report has the GPU report an error, such as nvml.EventTypeXidCriticalError with
// the XID's number. A double-bit ECC error is counted.
func (m *Machine) Report(index int, event, data uint64) {
	m.report(index, nvml.EventData{
		EventType: event, EventData: data, GpuInstanceId: anyInstance, ComputeInstanceId: anyInstance,
	})
}

// ReportSlice has the GPU report an XID that is of its slice.
func (m *Machine) ReportSlice(index, slice int, xid uint64) {
	info, _ := m.slices[index][slice].instance.GetInfo()
	m.report(index, nvml.EventData{EventType: nvml.EventTypeXidCriticalError, EventData: xid, GpuInstanceId: info.Id})
}

func (m *Machine) report(index int, event nvml.EventData) {
	m.mu.Lock()
	defer m.mu.Unlock()
	event.Device = m.devices[index]
	m.events = append(m.events, event)
	if event.EventType == nvml.EventTypeDoubleBitEccError {
		m.errors[index]++
	}
}

// Recovery has the driver say what is to be done about the GPU, as drivers since
// R560 do.
func (m *Machine) Recovery(index int, action nvml.DeviceGpuRecoveryAction) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.repair[index] = action
}

// Reset sets back what the GPU counts.
func (m *Machine) Reset(index int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.errors[index] = 0
}

// faults gives the GPU NVML's functions that say whether it is well.
func (m *Machine) faults(d *server.Device) {
	d.GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.errors[d.Index], nvml.SUCCESS
	}
	d.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) {
		m.mu.Lock()
		defer m.mu.Unlock()
		return 0, int(m.errors[d.Index]), m.errors[d.Index] > 0, false, nvml.SUCCESS
	}
	d.GetFieldValuesFunc = func(values []nvml.FieldValue) nvml.Return {
		m.mu.Lock()
		defer m.mu.Unlock()
		action, says := m.repair[d.Index]
		for i := range values {
			values[i].NvmlReturn = uint32(nvml.ERROR_NOT_SUPPORTED)
			if says && values[i].FieldId == nvml.FI_DEV_GET_GPU_RECOVERY_ACTION {
				values[i].NvmlReturn = uint32(nvml.SUCCESS)
				binary.NativeEndian.PutUint32(values[i].Value[:], uint32(action))
			}
		}
		return nvml.SUCCESS
	}
}

func (m *Machine) nextEvent() (nvml.EventData, nvml.Return) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.events) == 0 {
		return nvml.EventData{}, nvml.ERROR_TIMEOUT
	}
	e := m.events[0]
	m.events = m.events[1:]
	return e, nvml.SUCCESS
}

func (m *Machine) state(i int) nvml.Return {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lost[i] {
		return nvml.ERROR_GPU_IS_LOST
	}
	return nvml.SUCCESS
}

// Blind has NVML know nothing of the GPU's connections, as in a virtual machine.
func (m *Machine) Blind(index int) {
	d := m.devices[index]
	d.GetNvLinkStateFunc = func(int) (nvml.EnableState, nvml.Return) {
		return nvml.FEATURE_DISABLED, nvml.ERROR_NOT_SUPPORTED
	}
	d.GetTopologyCommonAncestorFunc = func(nvml.Device) (nvml.GpuTopologyLevel, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }
}
