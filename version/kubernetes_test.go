package version

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
)

// The chart, the pages and the modules that others read say the versions that the constants say.
func TestKubernetesVersionsElsewhere(t *testing.T) {
	for _, c := range []struct {
		file, pattern string // with one group, a minor version
		want          int
	}{
		{"go.mod", `k8s.io/kubernetes v1\.(\d+)\.`, KubernetesMinor},
		{"test/perf/scheduler/go.mod", `k8s.io/kubernetes v1\.(\d+)\.`, KubernetesMinor},
		{"deploy/helm/kubeslot/Chart.yaml", `kubeVersion: ">=1\.(\d+)\.0-0"`, OldestKubernetesMinor},
		{"deploy/helm/kubeslot/templates/_helpers.tpl", `lt \$minor (\d+)\)`, KubernetesMinor},
		{"README.md", `Kubernetes 1\.(\d+) or newer`, OldestKubernetesMinor},
		{"docs/getting-started.md", `Kubernetes 1\.(\d+) or newer`, OldestKubernetesMinor},
		{"docs/helm.md", `Kubernetes 1\.(\d+) or newer`, OldestKubernetesMinor},
		{"docs/install.md", `Kubernetes 1\.(\d+) or newer`, OldestKubernetesMinor},
		{"docs/versions.md", `made of Kubernetes 1\.(\d+)`, KubernetesMinor},
		{"docs/versions.md", `Kubernetes 1\.(\d+) or newer`, OldestKubernetesMinor},
	} {
		text, err := os.ReadFile(filepath.Join("..", c.file))
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(c.pattern).FindAllSubmatch(text, -1)
		if len(found) == 0 {
			t.Errorf("%s has nothing like %s", c.file, c.pattern)
		}
		for _, groups := range found {
			if got := string(groups[1]); got != strconv.Itoa(c.want) {
				t.Errorf("%s: %s, want 1.%d", c.file, groups[0], c.want)
			}
		}
	}
}

// Each older version can be built, for make test-skew, and none is left that is not supported.
func TestOlderKubernetes(t *testing.T) {
	var folders []string
	for _, version := range OlderKubernetes() {
		folders = append(folders, "../test/cluster/upstream/kubernetes-"+version)
	}
	got, err := filepath.Glob("../test/cluster/upstream/kubernetes-*")
	if err != nil || !slices.Equal(got, folders) {
		t.Errorf("there are %q, %v, want %q", got, err, folders)
	}
	if want := fmt.Sprintf("1.%d", KubernetesMinor-1); !slices.Contains(OlderKubernetes(), want) ||
		len(OlderKubernetes()) != 3 {
		t.Errorf("older versions %q, want three, %s too", OlderKubernetes(), want)
	}
}
