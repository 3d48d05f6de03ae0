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
	layout Layout

	mu    sync.Mutex
	gpus  []*gpu
	queue []nvml.EventData
}

// gpu is a GPU, and what NVML is to say of it.
type gpu struct {
	*server.Device
	lost   bool
	events nvml.EventSet // to which it reports
	errors uint64
	repair *nvml.DeviceGpuRecoveryAction // nil if the driver does not say
	slices []*slice
}

// New returns a machine with the layout's GPUs. The UUID of a GPU says its index.
func New(layout Layout) *Machine {
	if layout.Model == nil {
		layout.Model = dgxa100.NewDevice
	}
	if layout.Slices == nil {
		layout.Slices = func(int) []string { return nil }
	}
	m := &Machine{Server: dgxa100.New(), layout: layout}
	for i := range layout.GPUs {
		m.gpus = append(m.gpus, m.gpu(i))
		m.Restore(i)
	}
	m.DeviceGetCountFunc = func() (int, nvml.Return) { return len(m.gpus), nvml.SUCCESS }
	m.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i < 0 || i >= len(m.gpus) {
			return nil, nvml.ERROR_INVALID_ARGUMENT
		}
		return m.gpus[i].Device, m.state(m.gpus[i])
	}
	m.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) {
		set := &mock.EventSet{FreeFunc: func() nvml.Return { return nvml.SUCCESS }}
		set.WaitFunc = func(uint32) (nvml.EventData, nvml.Return) { return m.nextEvent(set) }
		return set, nvml.SUCCESS
	}
	return m
}

// UUID is that of the GPU with the index.
func UUID(index int) string { return fmt.Sprintf("GPU-fa4e0000-0000-4000-8000-%012d", index) }

// Memory is how many bytes an A100 has, unless the layout says otherwise.
const Memory = 40 << 30

func (m *Machine) gpu(i int) *gpu {
	d := &gpu{Device: m.layout.Model(i)}
	d.UUID, d.Config.Name = UUID(i), "Fake "+d.Config.Name
	if m.layout.Memory != nil {
		d.MemoryInfo.Total = m.layout.Memory(i)
	}
	d.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) {
		return nvml.PciInfo{Bus: uint32(i + 1), PciDeviceId: d.Config.PciDeviceId}, m.state(d)
	}
	memory := d.GetMemoryInfoFunc
	d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) {
		if code := m.state(d); code != nvml.SUCCESS {
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
		return nvml.EventTypeXidCriticalError | nvml.EventTypeDoubleBitEccError, m.state(d)
	}
	d.RegisterEventsFunc = func(_ uint64, set nvml.EventSet) nvml.Return {
		m.mu.Lock()
		defer m.mu.Unlock()
		d.events = set
		return nvml.SUCCESS
	}
	m.faults(d)
	m.mig(d)
	return d
}

// Lose has the GPU fall off the bus, or come back. While it is lost, NVML fails to wait for the events of
// the set that it is in; what it reports when it is back is to be registered for again.
func (m *Machine) Lose(index int, lost bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.gpus[index]
	if d.lost && !lost {
		d.events = nil
	}
	d.lost = lost
}

// Partition switches the GPU's MIG mode, with no slices.
func (m *Machine) Partition(index int, mig bool) {
	m.Slice(index) // no slice fails
	if !mig {
		m.gpus[index].SetMigMode(nvml.DEVICE_MIG_DISABLE)
	}
}

// Restore partitions the GPU as the layout says.
func (m *Machine) Restore(index int) {
	names := m.layout.Slices(index)
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
	info, _ := m.gpus[index].slices[slice].instance.GetInfo()
	m.report(index, nvml.EventData{EventType: nvml.EventTypeXidCriticalError, EventData: xid, GpuInstanceId: info.Id})
}

func (m *Machine) report(index int, event nvml.EventData) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.gpus[index]
	event.Device = d.Device
	if d.events != nil {
		m.queue = append(m.queue, event)
	}
	if event.EventType == nvml.EventTypeDoubleBitEccError {
		d.errors++
	}
}

// Recovery has the driver say what is to be done about the GPU, as drivers since
// R560 do.
func (m *Machine) Recovery(index int, action nvml.DeviceGpuRecoveryAction) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gpus[index].repair = &action
}

// Reset sets back what the GPU counts.
func (m *Machine) Reset(index int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gpus[index].errors = 0
}

// faults gives the GPU NVML's functions that say whether it is well.
func (m *Machine) faults(d *gpu) {
	d.GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) {
		m.mu.Lock()
		defer m.mu.Unlock()
		return d.errors, nvml.SUCCESS
	}
	d.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) {
		m.mu.Lock()
		defer m.mu.Unlock()
		return 0, int(d.errors), d.errors > 0, false, nvml.SUCCESS
	}
	d.GetFieldValuesFunc = func(values []nvml.FieldValue) nvml.Return {
		m.mu.Lock()
		defer m.mu.Unlock()
		for i := range values {
			values[i].NvmlReturn = uint32(nvml.ERROR_NOT_SUPPORTED)
			if d.repair != nil && values[i].FieldId == nvml.FI_DEV_GET_GPU_RECOVERY_ACTION {
				values[i].NvmlReturn = uint32(nvml.SUCCESS)
				binary.NativeEndian.PutUint32(values[i].Value[:], uint32(*d.repair))
			}
		}
		return nvml.SUCCESS
	}
}

func (m *Machine) nextEvent(set nvml.EventSet) (nvml.EventData, nvml.Return) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range m.gpus {
		if d.events == set && d.lost {
			return nvml.EventData{}, nvml.ERROR_GPU_IS_LOST
		}
	}
	if len(m.queue) == 0 {
		return nvml.EventData{}, nvml.ERROR_TIMEOUT
	}
	e := m.queue[0]
	m.queue = m.queue[1:]
	return e, nvml.SUCCESS
}

func (m *Machine) state(d *gpu) nvml.Return {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d.lost {
		return nvml.ERROR_GPU_IS_LOST
	}
	return nvml.SUCCESS
}
