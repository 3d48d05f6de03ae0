package cluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"
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
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	t, err := newTarget(prometheus, repoRoot, cache)
	if err != nil {
		return "", err
	}
	if !t.built() {
		fmt.Fprintf(out, "building %s %s (once for %s)\n", t.dir, t.version, t.out)
		begin := time.Now()
		if err := t.build(ctx); err != nil {
			return "", fmt.Errorf("build %s %s: %w", t.dir, t.version, err)
		}
		fmt.Fprintf(out, "built %s in %s\n", t.dir, time.Since(begin).Round(time.Second))
	}
	return t.out, nil
}
