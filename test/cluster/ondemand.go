package cluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"
)

// buildOnDemand returns the folder of programs that only some tests need. They are built
// if that has not been done; out gets a line then.
func buildOnDemand(ctx context.Context, u upstream, repoRoot string, out io.Writer) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	t, err := newTarget(u, repoRoot, cache)
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
