package resource

import "github.com/kubeslot/kubeslot/types"

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

// Scorer returns the scorer that a number selects for a resource. A number
// that nobody defined selects the default.
func Scorer(name types.ResourceName, number int32) int32 {
	switch {
	case number >= LeftoverScorer && number <= AlwaysFoundScorer:
		return number
	case IsEnumResource(name):
		return EnumScorer
	}
	return LeftoverScorer
}
