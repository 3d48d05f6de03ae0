package build

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

// The scheduler's benchmark is a module of its own that compiles Kubernetes and Kubeslot, too: what it shares with
// this one, in other versions, would be compiled and checked again, with all that imports it. And Kubernetes'
// modules are of one version: that of k8s.io/api.
func TestOneVersionOfEachModule(t *testing.T) {
	required := func(file string) map[string]string {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		mod, err := modfile.Parse(file, data, nil)
		if err != nil {
			t.Fatal(err)
		}
		versions := map[string]string{}
		for _, r := range mod.Require {
			versions[r.Mod.Path] = r.Mod.Version
		}
		return versions
	}
	ours, benchmarks := required("../../../go.mod"), required("../../perf/scheduler/go.mod")
	kubernetes := ours["k8s.io/api"]
	release := kubernetes[:strings.LastIndex(kubernetes, ".")+1]
	for module, version := range ours {
		other, both := benchmarks[module]
		if both && other != version && !strings.HasPrefix(module, "github.com/kubeslot/") {
			t.Errorf("%s is %s, and %s in test/perf/scheduler/go.mod: use one version", module, version, other)
		}
		if strings.HasPrefix(version, release) && version != kubernetes && strings.HasPrefix(module, "k8s.io/") {
			t.Errorf("%s is %s, and k8s.io/api %s: use one version", module, version, kubernetes)
		}
	}
}
