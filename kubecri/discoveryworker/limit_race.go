//go:build race

package discoveryworker

import "math"

// MaxMemory is no limit: the race detector alone takes more than any.
const MaxMemory = math.MaxUint64
