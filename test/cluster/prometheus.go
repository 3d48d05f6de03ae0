package cluster

import (
	"context"
	"io"
)

// prometheus is built for those alone who ask for it, without the service discovery of
// clouds: static targets, files and HTTP remain.
var prometheus = upstream{
	dir: "prometheus", module: "github.com/prometheus/prometheus",
	programs: map[string]string{
		"prometheus": "github.com/prometheus/prometheus/cmd/prometheus",
		"promtool":   "github.com/prometheus/prometheus/cmd/promtool",
	},
	tags:    "remove_all_sd",
	ldflags: "-X github.com/prometheus/common/version.Version=%s",
}

// BuildPrometheus returns the folder of prometheus and promtool, which are built if that
// has not been done.
func BuildPrometheus(ctx context.Context, repoRoot string, out io.Writer) (string, error) {
	return buildOnDemand(ctx, prometheus, repoRoot, out)
}
