package group

import (
	"math"
	"math/bits"

	"github.com/kubeslot/kubeslot/types/resource"
)

// held is how much of a leaf is in use. For an enum leaf, pod is the set of bits
// that the pod asked for and the others are 0.
type held struct {
	node      int64 // by all pods, this one included
	pod       int64 // by this pod
	container int64 // by the container that is being placed
}

// take returns what is in use once the container also has n, and whether the
// scorer lets it. A counted leaf is not given for 0: whoever is assigned it gets
// the device.
func take(scorer int32, capacity int64, h held, n int64, init bool) (held, bool) {
	if scorer == resource.EnumScorer {
		h.pod = capacity & (h.pod | n)
		return h, n == 0 || capacity&n != 0
	}
	h.container = resource.AddCapped(h.container, n)
	before := h.pod
	if init {
		h.pod = max(h.pod, h.container)
	} else {
		h.pod = resource.AddCapped(h.pod, n)
	}
	h.node = resource.AddCapped(h.node, h.pod-before)
	// A capped sum is no true one: it never fits, whatever the capacity.
	fits := n > 0 && h.node <= capacity && h.node < math.MaxInt64 && h.container < math.MaxInt64
	return h, fits || scorer == resource.AlwaysFoundScorer
}

// score rates a leaf from 0 (untouched) to 1 (used up).
func score(scorer int32, capacity int64, h held) float64 {
	if scorer == resource.EnumScorer {
		if capacity == 0 {
			return 0
		}
		all := float64(bits.OnesCount64(uint64(capacity)))
		return 1 - (all-float64(bits.OnesCount64(uint64(h.pod))))/all
	}
	if capacity <= 0 {
		return 0
	}
	left := float64(capacity-h.node) / float64(capacity)
	if scorer == resource.AlwaysFoundScorer {
		return 1 - math.Abs(max(left, -1))
	}
	return min(1-left, 1)
}
