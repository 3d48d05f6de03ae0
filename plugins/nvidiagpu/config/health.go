package config

import (
	"strconv"
	"strings"
)

// programs are the XIDs that a program can cause: the GPU works on for the next one. See
// https://docs.nvidia.com/deploy/xid-errors.
var programs = map[uint64]bool{
	13:  true, // graphics engine exception
	31:  true, // memory page fault
	43:  true, // the program's channel was reset
	45:  true, // its channels were removed
	68:  true, // video processor exception
	109: true, // context switch timeout
}

// Health says which XIDs leave a GPU healthy. Its zero value is the default.
type Health struct {
	// Off is DP_DISABLE_HEALTHCHECKS=all: no event makes a GPU unhealthy, but for the XIDs of
	// DP_ENABLE_HEALTHCHECKS.
	Off  bool
	xids map[uint64]bool // named in a variable: whether it is ignored
}

// Ignores reports whether a GPU that reports the XID stays healthy.
func (h Health) Ignores(xid uint64) bool {
	if ignored, ok := h.xids[xid]; ok {
		return ignored
	}
	return h.Off || programs[xid]
}

// health reads DP_DISABLE_HEALTHCHECKS and DP_ENABLE_HEALTHCHECKS, which goes first: "all", or
// XIDs with commas between them.
func health(getenv func(string) string) (Health, []string) {
	h := Health{xids: map[uint64]bool{}}
	var warnings []string
	for _, variable := range []string{"DP_DISABLE_HEALTHCHECKS", "DP_ENABLE_HEALTHCHECKS"} {
		disable := variable == "DP_DISABLE_HEALTHCHECKS"
		for word := range strings.SplitSeq(getenv(variable), ",") {
			word = strings.ToLower(strings.TrimSpace(word))
			xid, err := strconv.ParseUint(word, 10, 64)
			switch {
			case word == "":
			case word == "all" || word == "xids":
				h.Off = disable
			case err != nil:
				warnings = append(warnings, variable+": "+strconv.Quote(word)+" is no XID")
			default:
				h.xids[xid] = disable
			}
		}
	}
	return h, warnings
}
