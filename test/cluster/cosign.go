package cluster

import (
	"context"
	"io"
	"path/filepath"

	"github.com/kubeslot/kubeslot/test/cluster/build"
)

// cosign checks signatures, for the test of a release.
var cosign = build.Module{
	Dir:      "cosign",
	Module:   "github.com/sigstore/cosign/v3",
	Packages: []string{"github.com/sigstore/cosign/v3/cmd/cosign"},
}

// BuildCosign returns the path of the cosign program, which is built if that has not been done.
func BuildCosign(ctx context.Context, repoRoot string, out io.Writer) (string, error) {
	dir, err := cosign.Build(ctx, repoRoot, out)
	return filepath.Join(dir, "cosign"), err
}
