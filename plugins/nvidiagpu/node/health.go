package node

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// harmless are the XIDs that a program can cause: the GPU works on for the next
// one. See https://docs.nvidia.com/deploy/xid-errors.
var harmless = map[uint64]bool{
	13:  true, // graphics engine exception
	31:  true, // memory page fault
	43:  true, // the program's channel was reset
	45:  true, // its channels were removed
	68:  true, // video processor exception
	109: true, // context switch timeout
}

// health remembers which GPUs reported an error. There is nothing that says that
// a GPU is well again, so that one stays out until the plugin starts anew.
type health struct {
	lib    nvml.Interface
	events nvml.EventSet
	sick   map[string]string // by UUID: why
	known  map[string]bool   // whose events are watched, by UUID
}

// watch listens to the errors of a GPU that it does not listen to yet. A GPU
// that cannot report them is found out when a call fails.
func (h *health) watch(gpus []found) {
	if h.events == nil {
		set, code := h.lib.EventSetCreate()
		if code != nvml.SUCCESS {
			return
		}
		h.events, h.known = set, map[string]bool{}
	}
	for _, g := range gpus {
		if h.known[g.UUID] {
			continue
		}
		if all, code := g.handle.GetSupportedEventTypes(); code == nvml.SUCCESS {
			const want = nvml.EventTypeXidCriticalError | nvml.EventTypeDoubleBitEccError
			if g.handle.RegisterEvents(all&want, h.events) == nvml.SUCCESS {
				h.known[g.UUID] = true
			}
		}
	}
}

// maxEvents are read at a time: more of them say nothing new.
const maxEvents = 1000

// listen reads what was reported since, without waiting.
func (h *health) listen() {
	for range maxEvents {
		if h.events == nil {
			return
		}
		event, code := h.events.Wait(0)
		if code != nvml.SUCCESS { // a timeout: nothing more
			return
		}
		uuid, code := event.Device.GetUUID()
		if code != nvml.SUCCESS {
			continue // it is lost: reading it fails
		}
		switch {
		case event.EventType == nvml.EventTypeDoubleBitEccError:
			h.sick[uuid] = "an uncorrectable memory error (double-bit ECC)"
		case event.EventType == nvml.EventTypeXidCriticalError && !harmless[event.EventData]:
			h.sick[uuid] = fmt.Sprintf("XID %d", event.EventData)
		}
	}
}

// close forgets the event set, as when NVML is initialised anew.
func (h *health) close() {
	if h.events != nil {
		h.events.Free()
	}
	h.events, h.known = nil, nil
}
