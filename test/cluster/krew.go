package cluster

import (
	"context"
	"io"
	"path/filepath"

	"github.com/kubeslot/kubeslot/test/cluster/build"
)

// krew is kubectl's plugin manager, for the test that installs our plugin with it.
var krew = build.Module{Dir: "krew", Module: "sigs.k8s.io/krew", Packages: []string{"sigs.k8s.io/krew/cmd/krew"}}

// BuildKrew returns the path of the krew program, which is built if that has not been done.
func BuildKrew(ctx context.Context, repoRoot string, out io.Writer) (string, error) {
	dir, err := krew.Build(ctx, repoRoot, out)
	return filepath.Join(dir, "krew"), err
}
