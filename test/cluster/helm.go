package cluster

import (
	"context"
	"io"
	"path/filepath"
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
	folder, err := buildOnDemand(ctx, program, repoRoot, out)
	return filepath.Join(folder, "helm"), err
}
