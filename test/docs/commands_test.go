package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const root = "../.."

func TestCommands(t *testing.T) {
	const page = "# Install\n\nRun `kubectl get\nnodes`, then `helm upgrade` it, and look at `spec.capacity` or `make`:\n\n" +
		"    helm upgrade x \\\n      --wait     # soon\n    echo no\n\n" +
		"| `kubecri cleanup --yes` | `./kubecri install` |\n\n" +
		"```yaml\nmake: none\nhelm install: none\n```\n\n" +
		"1. In a list:\n\n       kubectl get nodes\n       ok    runtime\n\n" +
		"```\nkubeadm reset\n```\n\nAt last `go run ./x`."
	want := []string{"kubectl get nodes", "helm upgrade x --wait", "kubecri cleanup --yes", "kubecri install", "kubeadm reset", "go run ./x"}
	if diff := cmp.Diff(want, commands(page)); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "page.md"), []byte(page+"\n\n    kubectl get nodesets\n    kubectl get pods -A\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := Command(dir, "page.md", "kubectl get nodes"); err != nil || c != "kubectl get nodes" {
		t.Errorf("%q %v", c, err)
	}
	objects, err := Objects(dir, "page.md")
	if diff := cmp.Diff([]string{"make: none\nhelm install: none\n"}, objects); err != nil || diff != "" {
		t.Errorf("objects (-want +got): %v\n%s", err, diff)
	}
	for begin, want := range map[string]string{"kubectl get": "has 3 commands", "kubectl delete": "has 0 commands"} {
		if c, err := Command(dir, "page.md", begin); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q %v, want %q", begin, c, err, want)
		}
	}
}

// notRun are commands that pages name and do not ask for here, and why no test runs them.
var notRun = map[string]string{
	"kubeadm join --control-plane": "needs a second control plane of kubeadm; it takes the patches as kubeadm init does",
	"kubeadm reset":                "the page says what it needs, not to run it",
	"go mod init":                  "for plugins that have no go.mod, and to be named after them",
}

// Each command of these pages is run by a test, which reads it there.
func TestEveryCommandIsRun(t *testing.T) {
	run, err := typedByTests(root)
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, page := range []string{"README.md", "docs/getting-started.md", "docs/install.md", "docs/helm.md", "docs/kubeadm.md", "docs/migrate-from-kubedevice.md", "docs/release.md"} {
		commands, err := Commands(root, page)
		if err != nil || len(commands) < 4 {
			t.Errorf("%s has %d commands: %v", page, len(commands), err)
		}
		for _, command := range commands {
			if notRun[command] != "" {
				named[command] = true
			} else if !run.has(command) {
				t.Errorf("%s: no test runs the command\n%s\nHave one read it with docs.Command, and run that.", page, command)
			}
		}
	}
	for command := range notRun {
		if !named[command] {
			t.Errorf("no page has %q any more", command)
		}
	}
}

// The pages' make commands run the programs that other tests try.
func TestMake(t *testing.T) {
	runs := func(page, begin string, want ...string) {
		t.Helper()
		command, err := Command(root, page, begin)
		if err != nil {
			t.Fatal(err)
		}
		out := dryRun(t, strings.Fields(command)[1:])
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("%s: %s runs\n%s\nwant %s", page, command, out, w)
			}
		}
		if strings.Contains(command, "PLUGINS=1") != strings.Contains(out, " -plugins") {
			t.Errorf("%s: %s runs\n%s", page, command, out)
		}
	}
	const push = "go run ./deploy/images/cmd/images -push -registry=registry.example/kubeslot "
	runs("README.md", "make push", push, "-version=v")
	runs("docs/getting-started.md", "make push", push, "-version=v")
	runs("docs/helm.md", "make push", push, "-version=v")
	runs("docs/helm.md", "make images", "go run ./deploy/images/cmd/images -ldflags")
	runs("docs/install.md", "make build", "./kubecri/cmd/kubecri")
	runs("docs/versions.md", "make test-skew", "KUBESLOT_SKEW=1", "./test/skew")
	runs("docs/migrate-from-kubedevice.md", "make plugin-builder PLUGIN=/src/dongle/scheduler", "go run ./plugins/builder", "/src/dongle/scheduler")
	runs("docs/migrate-from-kubedevice.md", "make plugin-builder PLUGIN=/src/dongle/device", "go run ./plugins/builder", "/src/dongle/device")
	const release = "go run ./deploy/release/cmd/release -version=v"
	runs("docs/release.md", "make release-version", release, " -set")
	runs("docs/release.md", "make release REGISTRY=ghcr.io/kubeslot PUSH=0", release, "-registry=ghcr.io/kubeslot ", " -push=false")
	runs("docs/release.md", "make release REGISTRY=registry.example/kubeslot KEY=cosign.key", release, "-registry=registry.example/kubeslot ", "-key='cosign.key'")
	runs("docs/release.md", "make test-release", "KUBESLOT_RELEASE=1 go test")
	runs("docs/release.md", "make test-all", "go run ./test/suites test-all")
	runs("README.md", "make demo KEEP=1", "hack/preflight.sh root go gcc disk:4 memory:3 cluster:demo",
		"go run ./test/cluster/cmd/build demo", "_output/cluster/demo")
	runs("README.md", "make demo-helm", "_output/cluster/demo -helm", "cluster:demo")
	runs("README.md", "make demo NAME=other", "cluster:other", "_output/cluster/demo -name=other")
	runs("README.md", "make demo-down", "cluster down --name other")
	runs("README.md", "make demo-load", "cluster load --name demo")
	runs("README.md", "make test", "hack/lint.sh", "hack/race-packages.sh", "KUBESLOT_E2E=1 go test")
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
