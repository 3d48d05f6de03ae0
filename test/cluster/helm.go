package cluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Helm is built for those alone who ask for it.
var (
	helm = upstream{
		dir: "helm", module: "helm.sh/helm/v4",
		programs: map[string]string{"helm": "helm.sh/helm/v4/cmd/helm"},
		ldflags:  "-X helm.sh/helm/v4/internal/version.version=%s",
	}
	helm3 = upstream{
		dir: "helm3", module: "helm.sh/helm/v3",
		programs: map[string]string{"helm": "helm.sh/helm/v3/cmd/helm"},
		ldflags:  "-X helm.sh/helm/v3/internal/version.version=%s",
	}
)

// Helm returns the path of the helm program, which is built if that has not been done.
func (c *Cluster) Helm(ctx context.Context) (string, error) {
	return BuildHelm(ctx, c.cfg.RepoRoot, 4, c.cfg.Out)
}

// BuildHelm returns the path of helm 3 or 4, which is built if that has not been done.
func BuildHelm(ctx context.Context, repoRoot string, major int, out io.Writer) (string, error) {
	program := map[int]upstream{3: helm3, 4: helm}[major]
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	t, err := newTarget(program, repoRoot, cache)
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
	return filepath.Join(t.out, "helm"), nil
}
