package watch

import (
	"maps"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// maxGeneration bounds the devices that sharing remembers, in bytes of their ids and properties, twice: a node
// may list others all the time.
const maxGeneration = 32 << 20

// sharing has the slices of all nodes that see a shared device have its strings and properties once in memory.
// It remembers devices that slices have listed, the latest in two generations. Any number of goroutines may
// use it.
type sharing struct {
	mu            sync.Mutex
	bytes         int                        // of recent
	recent, older map[string]v1alpha1.Device // by Instance's name
}

func newSharing() *sharing { return &sharing{recent: map[string]v1alpha1.Device{}} }

// transform is the cache's for DeviceSlices. The slice is nobody else's yet.
func (s *sharing) transform(obj any) (any, error) {
	if slice, ok := obj.(*v1alpha1.DeviceSlice); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i := range slice.Spec.Devices {
			if d := &slice.Spec.Devices[i]; d.Shared { // others are on one node alone
				s.share(d)
			}
		}
	}
	return cache.TransformStripManagedFields()(obj)
}

// share takes of the device what is remembered of it, as far as that is equal, and remembers it.
func (s *sharing) share(d *v1alpha1.Device) {
	name := d.Instance()
	known, recent := s.recent[name]
	if !recent {
		known = s.older[name]
	}
	if known.ID == d.ID && known.Configuration == d.Configuration && known.Hash == d.Hash {
		d.ID, d.Configuration, d.Hash = known.ID, known.Configuration, known.Hash
		if maps.Equal(known.Properties, d.Properties) {
			d.Properties = known.Properties
		}
	}
	s.bytes += sizeOf(d)
	if recent {
		s.bytes -= sizeOf(&known)
	}
	if s.recent[name] = *d; s.bytes > maxGeneration {
		s.older, s.recent, s.bytes = s.recent, map[string]v1alpha1.Device{}, 0
	}
}

// sizeOf is about how many bytes a device takes.
func sizeOf(d *v1alpha1.Device) int {
	const each = 256 // of the device, and of a property
	n := each + len(d.ID)
	for key, value := range d.Properties {
		n += each/8 + len(key) + len(value)
	}
	return n
}
