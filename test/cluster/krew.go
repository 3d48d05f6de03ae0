package cluster

import (
	"context"
	"io"
	"path/filepath"
)

// krew is kubectl's plugin manager, for the test that installs our plugin with it.
var krew = upstream{
	dir: "krew", module: "sigs.k8s.io/krew",
	programs: map[string]string{"krew": "sigs.k8s.io/krew/cmd/krew"},
}

// BuildKrew returns the path of the krew program, which is built if that has not been done.
func BuildKrew(ctx context.Context, repoRoot string, out io.Writer) (string, error) {
	folder, err := buildOnDemand(ctx, krew, repoRoot, out)
	return filepath.Join(folder, "krew"), err
}
