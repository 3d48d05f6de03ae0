package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

// ranBy says for each command of the pages about installing which test runs it: the
// beginning of the command, the test's package and its name, and what stands in the test's
// source where it does. The tests of packages of test/ run with `make test-e2e`.
var ranBy = map[string][]struct{ begin, pkg, test, source string }{
	"docs/getting-started.md": {
		{"", "test/helm", "TestGettingStarted", `page(t, readFile(t, root, "docs/getting-started.md"))`}, // but for make push:
		{"make push", "test/docs", "TestMakePush", `"docs/getting-started.md"`},
	},
	"docs/install.md": {
		{"helm install", "test/helm", "TestChart", `"docs/install.md", "helm install"`},
		{"kubectl apply -k deploy/kubelet-identity/", "test/hostinstall", "TestInstall", `"apply", "-k", filepath.Join(h.cluster.Config().RepoRoot, "deploy/kubelet-identity")`},
		{"kubectl apply -k deploy/", "test/cluster", "TestTwoClustersLiveAndDieApart", `"apply", "-k", u.cfg.RepoRoot`},
		{"./kubecri install", "test/hostinstall", "TestInstall", `"is installed"}, "install", "--yes"`},
		{"kubecri uninstall", "test/hostinstall", "TestInstall", `"nothing of it is left"}, "uninstall", "--yes"`},
	},
	"docs/helm.md": {
		{"kubectl label namespace", "test/helm", "TestChart", `"docs/helm.md", "kubectl label namespace"`},
		{"helm upgrade", "test/helm", "TestChart", `"docs/helm.md", "helm upgrade"`},
		{"helm rollback", "test/helm", "TestChart", `"docs/helm.md", "helm rollback"`},
		{"helm uninstall", "test/helm", "TestChart", `"docs/helm.md", "helm uninstall"`},
		{"kubectl delete crd", "test/helm", "TestChartWithOtherValues", `"docs/helm.md", "kubectl delete crd"`},
		{"kubectl kubeslot doctor", "test/helm", "TestChart", `"docs/helm.md", "kubectl kubeslot doctor"`},
		{"kubectl -n kubeslot-system logs", "test/helm", "TestChart", `"docs/helm.md", "kubectl -n kubeslot-system logs"`},
		{"make push", "test/docs", "TestMakePush", `"docs/helm.md"`},
	},
	"docs/kubeadm.md": {
		{"cat > /etc/kubernetes/scheduler-patch.yaml", "test/hostinstall", "TestKubeadmUpgrade", `"docs/kubeadm.md", "cat > "`},
		{"kubectl -n kube-system get configmap kubeadm-config", "test/hostinstall", "TestKubeadmUpgrade", `"docs/kubeadm.md", "cat > "`},
		{"kubeadm init phase", "test/hostinstall", "TestKubeadmUpgrade", `"docs/kubeadm.md", "cat > "`},
		{"kubeadm upgrade apply", "test/hostinstall", "TestKubeadmUpgrade", `"docs/kubeadm.md", "kubeadm upgrade apply"`},
		{"kubeadm upgrade node", "test/hostinstall", "TestKubeadmUpgrade", `"docs/kubeadm.md", "kubeadm upgrade node"`},
	},
}

func TestEveryCommandIsRun(t *testing.T) {
	for page, entries := range ranBy {
		commands, err := Commands(root, page)
		if err != nil || len(commands) < 5 {
			t.Errorf("%s has %d commands: %v", page, len(commands), err)
		}
		used := map[string]bool{}
		for _, command := range commands {
			found := false
			for _, e := range entries {
				if strings.HasPrefix(command, e.begin) {
					found, used[e.begin] = true, true
				}
			}
			if !found {
				t.Errorf("%s: no test runs the command\n%s", page, command)
			}
		}
		for _, e := range entries {
			if !used[e.begin] {
				t.Errorf("%s has no command that begins with %q", page, e.begin)
			}
			sources, err := filepath.Glob(filepath.Join(root, e.pkg, "*.go"))
			if err != nil {
				t.Fatal(err)
			}
			text := ""
			for _, source := range sources {
				data, err := os.ReadFile(source)
				if err != nil {
					t.Fatal(err)
				}
				text += string(data)
			}
			if !strings.Contains(text, "func "+e.test+"(t *testing.T)") || !strings.Contains(text, e.source) {
				t.Errorf("%s: %s of %s does not run %q: there is no %s in it", page, e.test, e.pkg, e.begin, e.source)
			}
		}
	}
}

// What `make push` runs with the pages' arguments is the program that deploy/images tests.
func TestMakePush(t *testing.T) {
	for _, page := range []string{"docs/getting-started.md", "docs/helm.md"} {
		commands, err := Commands(root, page)
		if err != nil {
			t.Fatal(err)
		}
		for _, command := range commands {
			if !strings.HasPrefix(command, "make ") {
				continue
			}
			out := dryRun(t, strings.Fields(command)[1:])
			for _, want := range []string{"go run ./deploy/images/cmd/images -push -registry=registry.example/kubeslot ", "-version=v0.1.0"} {
				if !strings.Contains(out, want) {
					t.Errorf("%s: %s runs %s, want %s", page, command, out, want)
				}
			}
			if strings.Contains(command, "PLUGINS=1") != strings.Contains(out, " -plugins") {
				t.Errorf("%s: %s runs %s", page, command, out)
			}
		}
	}
}

// dryRun returns what make would run.
func dryRun(t *testing.T, args []string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "make", append([]string{"-C", root, "--dry-run"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("make --dry-run %v: %v\n%s", args, err, out)
	}
	return string(out)
}
