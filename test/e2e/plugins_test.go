package e2e

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/kubeslot/kubeslot/test/cluster"
)

// The cluster's binaries load every plugin of the tree, built as `make plugins`
// builds them.
func TestPluginsMatchTheBinaries(t *testing.T) {
	testAll(t, "builds plugins")
	root := shared.Config().RepoRoot
	sources, err := filepath.Glob(filepath.Join(root, "plugins/*/scheduler"))
	if err != nil || len(sources) == 0 {
		t.Fatalf("no plugins in %s: %v", root, err)
	}
	devices, _ := filepath.Glob(filepath.Join(root, "plugins/*/device"))
	buildPlugins(t, append(sources, devices...)...)
	for binary, folder := range map[string]string{cluster.Scheduler: "schedulers", cluster.Kubecri: "devices"} {
		out, err := exec.Command(filepath.Join(shared.BinDir(), binary), "plugin", "check", filepath.Join(shared.BinDir(), "plugins", folder)).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", binary, err, out)
		}
	}
}

// buildPlugins builds the plugins of the folders for the cluster's binaries, into
// plugins/{schedulers,devices} of their folder.
func buildPlugins(t *testing.T, sources ...string) {
	t.Helper()
	cmd := exec.Command("go", append([]string{"run", "./plugins/builder", "-binaries", shared.BinDir()}, sources...)...)
	cmd.Dir = shared.Config().RepoRoot
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
}
