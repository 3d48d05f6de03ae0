package group

import (
	"math"
	"math/bits"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/resource"
)

// The values of types.ResourceScorer. The first three are KubeDevice's.
const (
	// DefaultScorer is EnumScorer for enum resources, else LeftoverScorer.
	DefaultScorer int32 = 0
	// LeftoverScorer counts units: what is asked for must be left over. The
	// score is the used share.
	LeftoverScorer int32 = 1
	// EnumScorer reads amounts as sets of bits, such as the types that a device
	// can be: one of the bits asked for must be there. Nothing is used up.
	EnumScorer int32 = 2
	// AlwaysFoundScorer counts units, but more than there are may be taken: for
	// what is a preference. The score is 1 when all is used, and falls to both
	// sides. KubeDevice has the function, but no number that selects it.
	AlwaysFoundScorer int32 = 3
)

// scorerOf returns the scorer that a number selects for a resource. A number
// that nobody defined selects the default.
func scorerOf(name types.ResourceName, number int32) int32 {
	switch {
	case number >= LeftoverScorer && number <= AlwaysFoundScorer:
		return number
	case resource.IsEnumResource(name):
		return EnumScorer
	}
	return LeftoverScorer
}

// held is how much of a leaf is in use. For an enum leaf, pod is the set of bits
// that the pod asked for and the others are 0.
type held struct {
	node      int64 // by all pods, this one included
	pod       int64 // by this pod
	container int64 // by the container that is being placed
}

// take returns what is in use once the container also has n, and whether the
// scorer lets it.
func take(scorer int32, capacity int64, h held, n int64, init bool) (held, bool) {
	if scorer == EnumScorer {
		h.pod = capacity & (h.pod | n)
		return h, n == 0 || capacity&n != 0
	}
	h.container = addCapped(h.container, n)
	before := h.pod
	if init {
		h.pod = max(h.pod, h.container)
	} else {
		h.pod = addCapped(h.pod, n)
	}
	h.node = addCapped(h.node, h.pod-before)
	// A capped sum is no true one: it never fits, whatever the capacity.
	fits := h.node <= capacity && h.node < math.MaxInt64 && h.container < math.MaxInt64
	return h, fits || scorer == AlwaysFoundScorer
}

// score rates a leaf from 0 (untouched) to 1 (used up).
func score(scorer int32, capacity int64, h held) float64 {
	if scorer == EnumScorer {
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
	if scorer == AlwaysFoundScorer {
		return 1 - math.Abs(max(left, -1))
	}
	return min(1-left, 1)
}

// addCapped adds counts that are not negative.
func addCapped(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
