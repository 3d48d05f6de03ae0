// Package release makes a whole release in two clones, and checks it as docs/release.md says.
package release

import (
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"sigs.k8s.io/yaml"

	"github.com/kubeslot/kubeslot/deploy/images"
	"github.com/kubeslot/kubeslot/test/cluster"
	"github.com/kubeslot/kubeslot/test/docs"
)

const (
	root = "../.."
	page = "docs/release.md"
)

// The release of the last commit is the same from two clones, which compile it with a cache each;
// the registry has its images and its chart, and the page's commands check it. ARCH=amd64 makes
// it for that architecture alone.
func TestRelease(t *testing.T) {
	if os.Getenv("KUBESLOT_RELEASE") == "" {
		t.Skip("builds all programs for all platforms twice: make test-release")
	}
	server := httptest.NewServer(registry.New(
		registry.WithBlobHandler(registry.NewDiskBlobHandler(t.TempDir())),
		registry.Logger(log.New(io.Discard, "", 0)),
	))
	defer server.Close()
	to := strings.TrimPrefix(server.URL, "http://") + "/kubeslot"
	version := appVersion(t)
	parameters := []string{"release", "VERSION=" + version, "REGISTRY=" + to, "ARCH=" + os.Getenv("ARCH")}

	clones := t.TempDir()
	s := shell{t, clones, nil}
	s.run("git", "clone", "--quiet", absolute(t, root), "one")
	s.run("git", "clone", "--quiet", "one", "two/farther")
	s.run("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "cosign.key")
	s.run("make", append([]string{"-C", "one", "KEY=" + filepath.Join(clones, "cosign.key")}, parameters...)...)
	s.env = []string{"GOCACHE=" + filepath.Join(clones, "cache")}
	s.run("make", append([]string{"-C", "two/farther", "PUSH=0"}, parameters...)...)

	// What its user does, beside the second clone.
	dir := filepath.Join(clones, "two/farther")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(clones, "one/_output/release", version))); err != nil {
		t.Fatal(err)
	}
	user := shell{t, dir, nil}
	user.run("openssl", "ec", "-in", filepath.Join(clones, "cosign.key"), "-pubout", "-out", "cosign.pub")
	user.run("bash", "-c", command(t, page, "diff SHA256SUMS"))
	t.Run("Checksums", func(t *testing.T) {
		out := shell{t, dir, nil}.run("bash", "-c", command(t, page, "sha256sum --check"))
		if strings.Count(out, ": OK\n") < 3*len(images.Components()) {
			t.Errorf("the page's checksums are\n%s", out)
		}
	})
	t.Run("Cosign", func(t *testing.T) { wantCosign(t, dir) })
	t.Run("Programs", func(t *testing.T) { wantVersions(t, dir, version) })
	t.Run("Helm", func(t *testing.T) { wantChart(t, dir, to, version) })
}

// wantCosign has cosign check the signatures.
func wantCosign(t *testing.T, dir string) {
	program, err := cluster.BuildCosign(t.Context(), root, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	user := shell{t, dir, []string{"PATH=" + filepath.Dir(program) + ":" + os.Getenv("PATH"), "HOME=" + t.TempDir()}}
	const verify = "cosign verify-blob --key cosign.pub --insecure-ignore-tlog --bundle "
	for _, bundle := range []string{"SHA256SUMS.sigstore.json", "provenance.intoto.json.sigstore.json"} {
		begin := "cosign verify-blob --key cosign.pub --insecure-ignore-tlog --bundle " + bundle
		user.run("bash", "-c", command(t, page, begin))
	}
	user.run("bash", "-c", "! "+verify+"SHA256SUMS.sigstore.json provenance.intoto.json")
	user.run("bash", "-c", "mkdir keys && cd keys && COSIGN_PASSWORD=x "+command(t, page, "cosign generate-key-pair"))
}

// wantVersions has each program for this machine say the version.
func wantVersions(t *testing.T, dir, version string) {
	archives, err := filepath.Glob(filepath.Join(dir, "*_linux_"+runtime.GOARCH+".tar.gz"))
	if err != nil ||
		len(archives) != len(images.Components()) { // chart-hooks is an image alone, and there is kubectl-kubeslot
		t.Errorf("there are %q, %v", archives, err)
	}
	user := shell{t, t.TempDir(), nil}
	for _, archive := range archives {
		program, _, _ := strings.Cut(filepath.Base(archive), "_")
		user.run("tar", "-xzf", archive)
		if out := user.run("./"+program, "--version"); !strings.Contains(out, "Kubeslot "+version+" (commit ") {
			t.Errorf("%s says %s", program, out)
		}
	}
}

// wantChart has helm read the chart, from its file and from the registry.
func wantChart(t *testing.T, dir, registry, version string) {
	helm, err := cluster.BuildHelm(t.Context(), root, 4, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	user := shell{t, dir, []string{"HOME=" + t.TempDir()}}
	list, err := os.ReadFile(filepath.Join(dir, "images.txt"))
	if err != nil {
		t.Fatal(err)
	}
	listed := strings.Fields(string(list))
	chart, digest, _ := strings.Cut(listed[len(listed)-1], "@")
	repository := strings.TrimSuffix(chart, ":"+strings.TrimPrefix(version, "v"))
	user.run(helm, "pull", "--plain-http", "oci://"+repository+"@"+digest, "--destination", t.TempDir())
	install := strings.Fields(command(t, page, "helm install"))
	for _, c := range [][]string{
		append([]string{"template"}, install[2:]...), // of the file, with the page's registry
		{"template", "kubeslot", "oci://" + repository, "--version", strings.TrimPrefix(version, "v"), "--plain-http"},
	} {
		out := user.run(helm, append(c, "--kube-version", "1.37.2")...)
		for _, i := range []string{"kubecri", "kube-scheduler", "controller", "chart-hooks"} {
			_, after, _ := strings.Cut(string(list), "/"+i+":"+version+"@")
			digest, _, _ := strings.Cut(after, "\n")
			if want := "/" + i + ":" + version + "@" + digest + "\n"; digest == "" || !strings.Contains(out, want) {
				t.Errorf("helm %q has no image %s", c, want)
			}
		}
	}
}

func command(t *testing.T, page, begin string) string {
	t.Helper()
	c, err := docs.Command(root, page, begin)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func appVersion(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "deploy/helm/kubeslot/Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var chart struct{ AppVersion string }
	if err := yaml.Unmarshal(text, &chart); err != nil {
		t.Fatal(err)
	}
	return chart.AppVersion
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// shell runs programs in a directory, with more variables.
type shell struct {
	t   *testing.T
	dir string
	env []string
}

// run returns what the program prints.
func (s shell) run(program string, args ...string) string {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), program, args...)
	var out, said bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, &out, &said
	cmd.Env = append(os.Environ(), s.env...)
	if err := cmd.Run(); err != nil {
		s.t.Fatalf("%s %q: %v\n%s%s", program, args, err, &out, &said)
	}
	return out.String()
}
