package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"time"
)

// helm is built for those alone who ask for it.
var helm = upstream{
	dir: "helm", module: "helm.sh/helm/v4",
	programs: map[string]string{"helm": "helm.sh/helm/v4/cmd/helm"},
	ldflags:  "-X helm.sh/helm/v4/internal/version.version=%s",
}

// Helm returns the path of the helm program, which is built if that has not been done.
func (c *Cluster) Helm(ctx context.Context) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	t, err := newTarget(helm, c.cfg.RepoRoot, cache)
	if err != nil {
		return "", err
	}
	if !t.built() {
		fmt.Fprintf(c.cfg.Out, "building %s %s (once for %s)\n", t.dir, t.version, t.out)
		begin := time.Now()
		if err := t.build(ctx); err != nil {
			return "", fmt.Errorf("build %s %s: %w", t.dir, t.version, err)
		}
		fmt.Fprintf(c.cfg.Out, "built %s in %s\n", t.dir, time.Since(begin).Round(time.Second))
	}
	return filepath.Join(t.out, "helm"), nil
}
