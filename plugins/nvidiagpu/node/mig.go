package node

import (
	"fmt"
	"math"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// slice is a MIG device of a GPU.
type slice struct {
	uuid            string
	profile         string // NVIDIA's name, as in resources: 1g.10gb, 1c.2g.20gb, 1g.10gb.me
	memory          int64  // bytes
	start           uint32 // where it is in the GPU's memory slices
	gpuInstance     int
	computeInstance int
	handle          nvml.Device
}

// partition returns the slices of a GPU in MIG mode, and those that cannot be given out.
func partition(g *found) (parts []slice, out []missing, err error) {
	// Its own memory, not g's: the sizes in profiles' names are parts of that.
	total, code := g.handle.GetMemoryInfo()
	if err := check("GetMemoryInfo", code); err != nil {
		return nil, nil, err
	}
	n, code := g.handle.GetMaxMigDeviceCount()
	if err := check("GetMaxMigDeviceCount", code); err != nil {
		return nil, nil, err
	}
	for i := range n {
		handle, code := g.handle.GetMigDeviceHandleByIndex(i)
		if code == nvml.ERROR_NOT_FOUND || code == nvml.ERROR_INVALID_ARGUMENT {
			continue // the indexes of slices can have gaps
		}
		name := fmt.Sprintf("slice %d of %s", i, g.UUID)
		err := check("GetMigDeviceHandleByIndex", code)
		var s slice
		if err == nil {
			s, err = describeSlice(g.handle, handle, total.Total)
		}
		if s.uuid != "" {
			name = s.uuid
		}
		if err != nil {
			out = append(out, missing{name, err.Error()})
			continue
		}
		parts = append(parts, s)
	}
	return parts, out, nil
}

func describeSlice(parent, handle nvml.Device, total uint64) (s slice, err error) {
	s.handle = handle
	if s.uuid, err = uuidOf(handle); err != nil {
		return s, err
	}
	if s.memory, err = memory(handle); err != nil {
		return s, err
	}
	var code nvml.Return
	if s.gpuInstance, code = handle.GetGpuInstanceId(); code != nvml.SUCCESS {
		return s, check("GetGpuInstanceId", code)
	}
	if s.computeInstance, code = handle.GetComputeInstanceId(); code != nvml.SUCCESS {
		return s, check("GetComputeInstanceId", code)
	}
	attributes, code := handle.GetAttributes()
	if err := check("GetAttributes", code); err != nil {
		return s, err
	}
	instance, code := parent.GetGpuInstanceById(s.gpuInstance)
	if err := check("GetGpuInstanceById", code); err != nil {
		return s, err
	}
	info, code := instance.GetInfo()
	if err := check("GpuInstance.GetInfo", code); err != nil {
		return s, err
	}
	s.start = info.Placement.Start
	s.profile = profileName(attributes, total, mediaSuffix(parent, info.ProfileId))
	return s, nil
}

// profileName is what NVIDIA's plugin calls a profile in resources, with its "+" as ".". The gigabytes
// are the GPU's by eighths, of which a slice has as many as its memory reaches into: see go-nvlib,
// pkg/nvlib/device/mig_profile.go.
func profileName(a nvml.DeviceAttributes, total uint64, suffix string) string {
	const gib = 1 << 30
	eighths := math.Ceil(float64(a.MemorySizeMB<<20) / float64(max(total, 1)) * 8)
	gb := math.Round(eighths / 8 * math.Ceil(float64(total)/gib))
	name := fmt.Sprintf("%dg.%.0fgb%s", a.GpuInstanceSliceCount, gb, suffix)
	if a.ComputeInstanceSliceCount != a.GpuInstanceSliceCount {
		name = fmt.Sprintf("%dc.%s", a.ComputeInstanceSliceCount, name)
	}
	return name
}

// suffixes are those of profiles that differ by their engines alone.
var suffixes = map[int]string{
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1:   ".me",
	nvml.GPU_INSTANCE_PROFILE_2_SLICE_REV1:   ".me",
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_ALL_ME: ".me.all",
	nvml.GPU_INSTANCE_PROFILE_2_SLICE_ALL_ME: ".me.all",
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_GFX:    ".gfx",
	nvml.GPU_INSTANCE_PROFILE_2_SLICE_GFX:    ".gfx",
	nvml.GPU_INSTANCE_PROFILE_4_SLICE_GFX:    ".gfx",
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_NO_ME:  "-me",
	nvml.GPU_INSTANCE_PROFILE_2_SLICE_NO_ME:  "-me",
}

// mediaSuffix returns the suffix of the profile with the id, which is the GPU's own number for it.
func mediaSuffix(parent nvml.Device, id uint32) string {
	for profile, suffix := range suffixes {
		if info, code := parent.GetGpuInstanceProfileInfo(profile); code == nvml.SUCCESS && info.Id == id {
			return suffix
		}
	}
	return ""
}

// uuidOf returns the UUID of a GPU or a slice, which is to be part of a resource's name.
func uuidOf(handle nvml.Device) (string, error) {
	uuid, code := handle.GetUUID()
	if err := check("GetUUID", code); err != nil {
		return "", err
	}
	if uuid == "" || strings.ContainsAny(uuid, "/, \t\n") {
		return "", fmt.Errorf("its UUID %q cannot be part of a resource's name", uuid)
	}
	return uuid, nil
}
