package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"

	"github.com/kubeslot/kubeslot/test/cluster/build"
)

// prometheus is built for those alone who ask for it, without the service discovery of
// clouds: static targets, files and HTTP remain.
var prometheus = build.Module{
	Dir: "prometheus", Module: "github.com/prometheus/prometheus",
	Packages: []string{"github.com/prometheus/prometheus/cmd/prometheus", "github.com/prometheus/prometheus/cmd/promtool"},
	Tags:     "remove_all_sd",
	LDFlags:  "-X github.com/prometheus/common/version.Version=%s",
}

// BuildPrometheus returns the folder of prometheus and promtool, which are built if that
// has not been done.
func BuildPrometheus(ctx context.Context, repoRoot string, out io.Writer) (string, error) {
	return prometheus.Build(ctx, repoRoot, out)
}

// PrometheusOperatorCRDs returns the folder with the definitions of the Prometheus Operator,
// of the module that upstream/prometheus-operator pins.
func PrometheusOperatorCRDs(ctx context.Context, repoRoot string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", "github.com/prometheus-operator/prometheus-operator")
	cmd.Dir = filepath.Join(repoRoot, "test/cluster/upstream/prometheus-operator")
	cmd.Env = append(cmd.Environ(), "GOWORK=off", "GOFLAGS=")
	out, err := cmd.Output()
	var module struct{ Dir, Error string }
	if decodeErr := json.Unmarshal(out, &module); err != nil || decodeErr != nil || module.Dir == "" {
		return "", fmt.Errorf("download the Prometheus Operator's definitions: %v %v %s", err, decodeErr, module.Error)
	}
	return filepath.Join(module.Dir, "example/prometheus-operator-crd"), nil
}
