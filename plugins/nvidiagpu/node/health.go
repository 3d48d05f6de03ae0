package node

import (
	"encoding/binary"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/config"
)

// health remembers which GPUs and slices reported a fault, until NVML says that they are well again.
type health struct {
	lib    nvml.Interface
	rules  config.Health
	events nvml.EventSet
	known  map[string]bool   // whose events are watched, by UUID
	faults map[string]*fault // by the UUID of the GPU or slice
	seen   map[string]bool   // GPUs, by UUID
}

// fault is what a GPU or slice reported.
type fault struct {
	why    string
	errors uint64 // that its GPU counted then; 0 if it does not count them
	absent bool   // that NVML has not answered for it since
}

// condition is what NVML says of a GPU now.
type condition struct {
	answers bool // for the GPU, and for the slice if a slice has the fault
	// recovery is what the driver wants done about faults; drivers before R560 do not say.
	recovery      nvml.DeviceGpuRecoveryAction
	recoveryKnown bool
	errors        uint64 // uncorrectable memory errors since the driver or the GPU was reset
	remapping     bool   // memory is to be replaced by spare rows at the next reset
}

// healed reports whether the GPU or slice is well again. A driver that knows says so: with no recovery action
// a GPU "can be immediately used again", see https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt. Of
// others it is known by their reset: NVML did not answer meanwhile, or the counts that are volatile
// (NVML_VOLATILE_ECC in nvml.h) are back at 0.
func (f *fault) healed(now condition) bool {
	switch {
	case !now.answers:
		f.absent = true
		return false
	case now.recoveryKnown:
		return usable(now.recovery)
	case now.remapping || now.errors > 0:
		return false
	default:
		return f.absent || f.errors > 0
	}
}

// heal forgets the faults of what is well again. It is called before listen, so
// that the driver has had a look's time to say what is to be done.
func (h *health) heal(gpus []found) {
	for uuid, f := range h.faults {
		var now condition
		if g, _ := find(gpus, uuid); g != nil {
			now = conditionOf(g.handle)
		}
		if f.healed(now) {
			delete(h.faults, uuid)
		}
	}
}

func conditionOf(handle nvml.Device) condition {
	now := condition{answers: true, errors: memoryErrors(handle)}
	values := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	if handle.GetFieldValues(values) == nvml.SUCCESS && nvml.Return(values[0].NvmlReturn) == nvml.SUCCESS {
		now.recoveryKnown = true
		now.recovery = nvml.DeviceGpuRecoveryAction(binary.NativeEndian.Uint32(values[0].Value[:4]))
	}
	if _, _, pending, _, code := handle.GetRemappedRows(); code == nvml.SUCCESS {
		now.remapping = pending
	}
	return now
}

// memoryErrors returns how many uncorrectable errors the GPU counts, 0 if none.
func memoryErrors(handle nvml.Device) uint64 {
	n, code := handle.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
	if code != nvml.SUCCESS {
		return 0
	}
	return n
}

// why returns what is wrong with the GPU, or with the slice of it.
func (h *health) why(gpu, slice string) string {
	for _, uuid := range []string{gpu, slice} {
		if f := h.faults[uuid]; f != nil {
			return f.why
		}
	}
	return ""
}

// inherit looks at GPUs that are seen for the first time. The driver may ask for the recovery of one that failed
// before this process began: its slices are out with it, for which of them failed is not known.
func (h *health) inherit(gpus []found) {
	for _, g := range gpus {
		if h.seen[g.UUID] {
			continue
		}
		h.seen[g.UUID] = true
		if now := conditionOf(g.handle); now.recoveryKnown && !usable(now.recovery) && !h.rules.Off {
			h.faults[g.UUID] = &fault{why: fmt.Sprintf("the driver has asked for its recovery since before it was "+
				"looked at (action %d, see GPU Recovery Action in nvidia-smi -q)", now.recovery)}
		}
	}
}

// usable reports whether a GPU of which the driver asks this can be used. The IMEX domain is about the memory
// of other machines' GPUs.
func usable(action nvml.DeviceGpuRecoveryAction) bool {
	return action == nvml.GPU_RECOVERY_ACTION_NONE || action == nvml.GPU_RECOVERY_ACTION_RECOVER_IMEX_DOMAIN
}

// watch listens to the errors of a GPU that it does not listen to yet, which one that did not answer
// meanwhile is again. A GPU that cannot report them is found out when a call fails.
func (h *health) watch(gpus []found) {
	if h.events == nil {
		set, code := h.lib.EventSetCreate()
		if code != nvml.SUCCESS {
			return
		}
		h.events = set
	}
	known := map[string]bool{}
	for _, g := range gpus {
		known[g.UUID] = h.known[g.UUID] || h.register(g.handle)
	}
	h.known = known
}

func (h *health) register(handle nvml.Device) bool {
	const want = nvml.EventTypeXidCriticalError | nvml.EventTypeDoubleBitEccError
	all, code := handle.GetSupportedEventTypes()
	return code == nvml.SUCCESS && handle.RegisterEvents(all&want, h.events) == nvml.SUCCESS
}

// maxEvents are read at a time: more of them say nothing new.
const maxEvents = 1000

// listen reads what was reported since, without waiting.
func (h *health) listen(gpus []found) {
	for range maxEvents {
		if h.events == nil {
			return
		}
		event, code := h.events.Wait(0)
		switch code {
		case nvml.SUCCESS:
		case nvml.ERROR_TIMEOUT: // nothing more
			return
		default: // as while one of the GPUs is lost: begin anew with those that answer
			h.close()
			h.watch(gpus)
			return
		}
		uuid, code := event.Device.GetUUID()
		if code != nvml.SUCCESS {
			continue // it is lost: reading it fails
		}
		why := ""
		switch {
		case event.EventType == nvml.EventTypeDoubleBitEccError && !h.rules.Off:
			why = "an uncorrectable memory error (double-bit ECC)"
		case event.EventType == nvml.EventTypeXidCriticalError && !h.rules.Ignores(event.EventData):
			why = fmt.Sprintf("XID %d", event.EventData)
		default:
			continue
		}
		h.faults[affected(gpus, uuid, event)] = &fault{why: why, errors: memoryErrors(event.Device)}
	}
}

// affected returns the UUID of the slice that an event is attributed to, else the
// GPU's. Events that are not attributed have instance ids that no slice has.
func affected(gpus []found, uuid string, event nvml.EventData) string {
	if g, _ := find(gpus, uuid); g != nil && event.EventType == nvml.EventTypeXidCriticalError {
		for _, s := range g.slices {
			if uint32(s.gpuInstance) == event.GpuInstanceId && uint32(s.computeInstance) == event.ComputeInstanceId {
				return s.uuid
			}
		}
	}
	return uuid
}

// close forgets the event set, as when NVML is initialised anew.
func (h *health) close() {
	if h.events != nil {
		h.events.Free()
	}
	h.events, h.known = nil, nil
}
