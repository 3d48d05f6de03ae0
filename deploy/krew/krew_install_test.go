package krew

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/kubeslot/kubeslot/test/cluster"
)

// krew itself installs the plugin from the manifest and the archive, refuses an archive
// with another checksum, and takes the plugin away again.
func TestKrewInstallsIt(t *testing.T) {
	if testing.Short() {
		t.Skip("builds krew: make test-all")
	}
	if os.Getenv("KUBESLOT_E2E") == "" {
		t.Skip("builds krew: run make test-e2e")
	}
	program, err := cluster.BuildKrew(t.Context(), "../..", os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	built := filepath.Join(dir, "built")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w -X github.com/kubeslot/kubeslot/version.version=v0.1.0", "-o", built, "./kubectl-kubeslot/cmd/kubectl-kubeslot")
	build.Dir, build.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	executable, err := os.ReadFile(built)
	if err != nil {
		t.Fatal(err)
	}
	here := Platform{OS: "linux", Arch: runtime.GOARCH}
	archive, err := Pack(here, executable, []byte("license"))
	if err != nil {
		t.Fatal(err)
	}
	release := Release{Version: "v0.1.0", URL: "https://example.com/v0.1.0", Homepage: "https://example.com", Sums: map[Platform]string{}}
	for _, p := range Platforms {
		release.Sums[p] = Sum(archive)
	}
	manifest, err := Manifest(release)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"kubeslot.yaml": manifest, here.Archive(): archive, "other.tar.gz": append(bytes.Clone(archive), 0)}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	root := filepath.Join(dir, "krew")
	// An index that krew takes for one that it has cloned.
	if err := os.MkdirAll(filepath.Join(root, "index", "default", ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	krew := func(args ...string) (string, error) {
		cmd := exec.Command(program, args...)
		// krew looks for updates of itself unless told not to.
		cmd.Env = append(os.Environ(), "KREW_ROOT="+root, "KREW_NO_UPGRADE_CHECK=1", "HOME="+dir)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	from := func(archive string) []string {
		return []string{"install", "--manifest=" + filepath.Join(dir, "kubeslot.yaml"), "--archive=" + filepath.Join(dir, archive)}
	}

	if out, err := krew(from("other.tar.gz")...); err == nil || !strings.Contains(out, "checksum does not match") {
		t.Errorf("of an archive with another checksum krew says: %v\n%s", err, out)
	}
	if out, err := krew(from(here.Archive())...); err != nil || !strings.Contains(out, "Installed plugin: kubeslot") {
		t.Fatalf("krew install: %v\n%s", err, out)
	}
	// krew installs a plugin kubeslot as kubectl-kubeslot, which kubectl finds on the PATH.
	out, err := exec.Command(filepath.Join(root, "bin", "kubectl-kubeslot"), "--version").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "v0.1.0") {
		t.Errorf("what krew installed says: %v\n%s", err, out)
	}
	if out, err := krew("list"); err != nil || !strings.Contains(out, "kubeslot") {
		t.Errorf("krew list: %v\n%s", err, out)
	}
	if out, err := krew("uninstall", "kubeslot"); err != nil {
		t.Errorf("krew uninstall: %v\n%s", err, out)
	}
	if _, err := os.Lstat(filepath.Join(root, "bin", "kubectl-kubeslot")); !os.IsNotExist(err) {
		t.Errorf("krew uninstall leaves the plugin: %v", err)
	}
}
