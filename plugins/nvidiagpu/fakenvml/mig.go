package fakenvml

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
)

// profiles are what the mocks' GPUs can be partitioned into.
var profiles = []struct {
	id     int
	slices int    // of seven
	memory uint64 // of eight parts
	suffix string
}{
	{nvml.GPU_INSTANCE_PROFILE_1_SLICE, 1, 1, ""},
	{nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1, 1, 1, ".me"},
	{nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV2, 1, 2, ""},
	{nvml.GPU_INSTANCE_PROFILE_2_SLICE, 2, 2, ""},
	{nvml.GPU_INSTANCE_PROFILE_3_SLICE, 3, 4, ""},
	{nvml.GPU_INSTANCE_PROFILE_4_SLICE, 4, 4, ""},
	{nvml.GPU_INSTANCE_PROFILE_7_SLICE, 7, 8, ""},
}

// maxSlices is how many slices a GPU can have.
const maxSlices = 7

// slice is a MIG device: a GPU instance of go-nvml's mock with one compute instance.
type slice struct {
	mock.Device
	uuid     string
	profile  nvml.GpuInstanceProfileInfo
	place    nvml.GpuInstancePlacement
	instance nvml.GpuInstance
	lost     bool // NVML says which it is, and no more
}

// SliceUUID is that of the slice of a GPU that begins at a memory slice. One that is made again of the
// same profile has the same UUID.
func SliceUUID(index, profile int, start uint32) string {
	return fmt.Sprintf("MIG-fa4e0000-0000-4000-%04d-%06d%06d", index, profile, start)
}

// Label is short for the UUID of a GPU or a slice: "3", "3:4" for the slice of GPU 3 that begins at 4.
func Label(uuid string) string {
	var index, profile, start int
	if _, err := fmt.Sscanf(uuid, "MIG-fa4e0000-0000-4000-%04d-%06d%06d", &index, &profile, &start); err == nil {
		return fmt.Sprintf("%d:%d", index, start)
	}
	if _, err := fmt.Sscanf(uuid, "GPU-fa4e0000-0000-4000-8000-%d", &index); err == nil {
		return fmt.Sprint(index)
	}
	return uuid
}

// Slice switches the GPU to MIG mode and has it these slices, by NVIDIA's names of profiles as in
// resources, such as 1g.5gb or 1g.5gb.me, each where the first room for it is. Slices that it has and
// is to have stay; others are destroyed. After an error the GPU is as it was.
func (m *Machine) Slice(index int, names ...string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.gpus[index]
	var now []*slice
	taken := uint32(0)
	for _, name := range names {
		s, err := m.place(d, name, &taken)
		if err != nil {
			return err
		}
		now = append(now, s)
	}
	old := d.slices
	for i, s := range now {
		if j := slices.IndexFunc(old, func(o *slice) bool { return o.uuid == s.uuid }); j >= 0 {
			now[i] = old[j]
			continue
		}
		s.instance, _ = d.CreateGpuInstanceWithPlacement(&s.profile, &s.place)
	}
	for _, o := range old {
		if !slices.Contains(now, o) {
			o.instance.Destroy()
		}
	}
	slices.SortFunc(now, func(a, b *slice) int { return cmp.Compare(a.place.Start, b.place.Start) })
	d.slices = now
	d.SetMigMode(nvml.DEVICE_MIG_ENABLE)
	return nil
}

// LoseSlice has NVML fail for a slice of a GPU that answers, or answer again.
func (m *Machine) LoseSlice(index, slice int, lost bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gpus[index].slices[slice].lost = lost
}

// place finds room for a slice, which it takes.
func (m *Machine) place(d *gpu, name string, taken *uint32) (*slice, error) {
	known := []string{}
	for _, p := range profiles {
		gb := (p.memory*d.Config.MemoryMB/1024 + 4) / 8
		own := fmt.Sprintf("%dg.%dgb%s", p.slices, gb, p.suffix)
		if known = append(known, own); own != name {
			continue
		}
		info, _ := d.GetGpuInstanceProfileInfo(p.id)
		places, _ := d.GetGpuInstancePossiblePlacements(&info)
		for _, place := range places {
			bits := (uint32(1)<<place.Size - 1) << place.Start
			if *taken&bits == 0 {
				*taken |= bits
				s := m.newSlice(d, p.slices, p.memory*d.Config.MemoryMB/8)
				s.uuid, s.profile, s.place = SliceUUID(d.Index, p.id, place.Start), info, place
				return s, nil
			}
		}
		return nil, fmt.Errorf("GPU %d has no room for a slice %s", d.Index, name)
	}
	return nil, fmt.Errorf("GPU %d has no profile %q, but %s", d.Index, name, strings.Join(known, " "))
}

// overhead is what of a slice's memory the driver keeps.
const overhead = 128 // MiB

// newSlice returns one with so many of seven slices of the GPU, and so much memory.
func (m *Machine) newSlice(d *gpu, parts int, mib uint64) *slice {
	s := &slice{}
	s.GetUUIDFunc = func() (string, nvml.Return) { return s.uuid, m.sliceState(d, s) }
	s.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) {
		code := m.sliceState(d, s)
		m.mu.Lock()
		defer m.mu.Unlock()
		if s.lost {
			code = nvml.ERROR_UNKNOWN
		}
		return nvml.Memory{Total: (mib - overhead) << 20}, code
	}
	s.GetGpuInstanceIdFunc = func() (int, nvml.Return) {
		info, _ := s.instance.GetInfo()
		return int(info.Id), m.sliceState(d, s)
	}
	s.GetComputeInstanceIdFunc = func() (int, nvml.Return) { return 0, m.sliceState(d, s) }
	s.GetAttributesFunc = func() (nvml.DeviceAttributes, nvml.Return) {
		return nvml.DeviceAttributes{
			GpuInstanceSliceCount: uint32(parts), ComputeInstanceSliceCount: uint32(parts),
			MemorySizeMB: mib - overhead,
		}, m.sliceState(d, s)
	}
	return s
}

// sliceState is what NVML returns for the slice's handle.
func (m *Machine) sliceState(d *gpu, s *slice) nvml.Return {
	m.mu.Lock()
	gone := !slices.Contains(d.slices, s)
	m.mu.Unlock()
	if gone {
		return nvml.ERROR_INVALID_ARGUMENT
	}
	return m.state(d)
}

// mig gives the GPU NVML's functions of slices, which go-nvml's mock lacks.
func (m *Machine) mig(d *gpu) {
	find := func(fits func(*slice) bool) *slice {
		m.mu.Lock()
		defer m.mu.Unlock()
		if i := slices.IndexFunc(d.slices, fits); i >= 0 {
			return d.slices[i]
		}
		return nil
	}
	d.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return maxSlices, m.state(d) }
	d.GetMigDeviceHandleByIndexFunc = func(index int) (nvml.Device, nvml.Return) {
		s := find(func(s *slice) bool { return int(s.place.Start) == index }) // with gaps between
		if s == nil {
			return nil, nvml.ERROR_NOT_FOUND
		}
		return s, m.state(d)
	}
	d.GetGpuInstanceByIdFunc = func(id int) (nvml.GpuInstance, nvml.Return) {
		s := find(func(s *slice) bool {
			info, _ := s.instance.GetInfo()
			return int(info.Id) == id
		})
		if s == nil {
			return nil, nvml.ERROR_NOT_FOUND
		}
		return s.instance, m.state(d)
	}
}
