package cluster

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"github.com/kubeslot/kubeslot/test/cluster/build"
)

var helm3 = build.Module{
	Dir: "helm3", Module: "helm.sh/helm/v3", Packages: []string{"helm.sh/helm/v3/cmd/helm"},
	LDFlags: "-X helm.sh/helm/v3/internal/version.version=%s",
}

// Helm returns the path of the helm program, which is built if that has not been done.
func (c *Cluster) Helm(ctx context.Context) (string, error) {
	return BuildHelm(ctx, c.cfg.RepoRoot, 4, c.cfg.Out)
}

// BuildHelm returns the path of helm 3 or 4, which is built if that has not been done.
func BuildHelm(ctx context.Context, repoRoot string, major int, out io.Writer) (string, error) {
	switch major {
	case 3:
		dir, err := helm3.Build(ctx, repoRoot, out)
		return filepath.Join(dir, "helm"), err
	case 4:
		built, err := build.Programs{Root: repoRoot, Packages: []string{build.Helm}, Out: out}.Run(ctx)
		return built[build.Helm], err
	default:
		return "", fmt.Errorf("helm %d: there are 3 and 4", major)
	}
}
