package release

import (
	"encoding/json"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/kubeslot/kubeslot/deploy/sbom"
	"github.com/kubeslot/kubeslot/test/docs"
	"github.com/kubeslot/kubeslot/test/need"
)

// Two clones in two folders, compiled anew in each, make the same release; and its files are
// as the page says, whose commands check it.
func TestRelease(t *testing.T) {
	first := smallRepository(t)
	second := filepath.Join(t.TempDir(), "somewhere", "else")
	run(t, first, "git clone --quiet . "+second)
	writeFile(t, filepath.Join(first, "deploy/helm/kubeslot/values.yaml.orig"),
		"ignored by git, and no part of the chart")
	keyFile := filepath.Join(t.TempDir(), "cosign.key")
	run(
		t,
		filepath.Dir(keyFile),
		"openssl ecparam -name prime256v1 -genkey -noout -out cosign.key && openssl ec -in cosign.key -pubout "+
			"-out cosign.pub 2>/dev/null",
	)
	var made []map[string]string
	for _, repository := range []string{first, second} {
		c := config(t, repository)
		c.Key = keyFile
		if repository == second && !testing.Short() {
			t.Setenv("GOCACHE", t.TempDir())
		}
		if err := Make(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if left, _ := filepath.Glob(filepath.Join(c.Out, ".*")); len(left) > 0 {
			t.Errorf("%v is left behind", left)
		}
		made = append(made, readFolder(t, filepath.Join(c.Out, c.Version)))
	}
	for name, text := range made[0] {
		if made[1][name] != text {
			t.Errorf("%s is another in the second clone", name)
		}
	}
	dir := filepath.Join(first, "_output/release", treeVersion(t))
	t.Run("Files", func(t *testing.T) { wantFiles(t, made[0]) })
	t.Run("SBOMs", func(t *testing.T) { wantSBOMs(t, made[0]) })
	t.Run("Chart", func(t *testing.T) { wantChart(t, dir, made[0]["images.txt"]) })
	t.Run("Page", func(t *testing.T) {
		writeFile(t, filepath.Join(dir, "cosign.pub"), readFile(t, filepath.Join(filepath.Dir(keyFile), "cosign.pub")))
		typePage(t, dir)
	})
}

func wantFiles(t *testing.T, files map[string]string) {
	t.Helper()
	chart := "kubeslot-" + strings.TrimPrefix(treeVersion(t), "v") + ".tgz"
	want := []string{
		"SHA256SUMS",
		"SHA256SUMS.sig",
		"SHA256SUMS.sigstore.json",
		"provenance.intoto.json",
		"provenance.intoto.json.sig",
		"provenance.intoto.json.sigstore.json",
		"images.txt",
		"kubeslot.yaml",
	}
	for _, f := range []string{"kubecri_linux_amd64.tar.gz", "kubecri_linux_arm64.tar.gz", "kubecri-image.tar", chart,
		"kubectl-kubeslot_linux_amd64.tar.gz", "kubectl-kubeslot_linux_arm64.tar.gz", "kubectl-kubeslot_darwin_amd64.tar.gz",
		"kubectl-kubeslot_darwin_arm64.tar.gz", "kubectl-kubeslot_windows_amd64.zip", "kubectl-kubeslot_windows_arm64.zip"} {
		want = append(want, f, f+".spdx.json")
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(files))); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if n := strings.Count(files["SHA256SUMS"], "\n"); n != len(want)-6 {
		t.Errorf("SHA256SUMS has %d files, want all %d but itself, the provenance and signatures", n, len(want)-6)
	}
}

// Each SBOM is of its file, and has a namespace of its own.
func wantSBOMs(t *testing.T, files map[string]string) {
	t.Helper()
	namespaces := map[string]string{}
	for name, text := range files {
		artifact, ok := strings.CutSuffix(name, ".spdx.json")
		if !ok {
			continue
		}
		var bill sbom.Document
		if err := json.Unmarshal([]byte(text), &bill); err != nil {
			t.Fatal(err)
		}
		if other := namespaces[bill.Namespace]; other != "" {
			t.Errorf("%s and %s have one namespace", name, other)
		}
		namespaces[bill.Namespace] = name
		of := bill.Packages[0]
		if of.Name != artifact || !strings.Contains(files["SHA256SUMS"], of.Checksums[0].Value+"  "+artifact+"\n") ||
			bill.Creation.Created != "2023-11-14T22:13:20Z" {
			t.Errorf("%s is of %+v, made at %s", name, of, bill.Creation.Created)
		}
		contains := map[string]string{}
		for _, p := range bill.Packages {
			contains[p.Name] = p.Version
		}
		if !strings.HasSuffix(artifact, ".tgz") &&
			(contains["github.com/kubeslot/kubeslot"] != treeVersion(t) || contains["stdlib"] == "") {
			t.Errorf("%s lists %v", name, contains)
		}
		if strings.HasSuffix(artifact, ".tgz") && !strings.HasPrefix(contains["kubecri"], "sha256:") {
			t.Errorf("%s lists %v, want the image", name, contains)
		}
	}
}

// The chart has the version, and the images' digests.
func wantChart(t *testing.T, dir, images string) {
	t.Helper()
	unpacked := t.TempDir()
	run(t, dir, "tar -xzf kubeslot-*.tgz -C "+unpacked)
	_, digest, _ := strings.Cut(strings.Split(images, "\n")[0], "@")
	values := readFile(t, filepath.Join(unpacked, "kubeslot/values.yaml"))
	if !strings.Contains(values, "\n  registry: \"\"\n") ||
		!strings.Contains(values, "\n  digests:\n    kubecri: "+digest+"\n") {
		t.Errorf("values.yaml begins with\n%s", values[:1000])
	}
	about := readFile(t, filepath.Join(unpacked, "kubeslot/Chart.yaml"))
	if version := treeVersion(t); !strings.Contains(about, "\nappVersion: "+version+"\n") ||
		!strings.Contains(about, "\nversion: "+version[1:]+"\n") {
		t.Errorf("Chart.yaml is\n%s", about)
	}
}

// notTyped are commands of the page that other tests type, or none.
var notTyped = map[string]string{
	"gh release":   "asks GitHub",
	"git push":     "to a repository with the tags",
	"git tag":      "is typed below",
	"git checkout": "is typed below",
	"diff":         "TestRelease in test/release",
	"cosign":       "TestRelease in test/release",
	"helm":         "TestRelease in test/release",
	"kubectl":      "the digests that pods run are seen on a cluster alone",
	"make":         "test/docs",
	"openssl ec":   "is typed above",
}

// typePage types the page's commands in the release's folder.
func typePage(t *testing.T, dir string) {
	for _, program := range []string{"openssl", "jq"} {
		need.Program(t, "apt-get install "+program, program)
	}
	commands, err := docs.Commands(root, "docs/release.md")
	if err != nil {
		t.Fatal(err)
	}
	typed := 0
	var out string
	for _, c := range commands {
		if slices.ContainsFunc(slices.Collect(maps.Keys(notTyped)),
			func(begin string) bool { return docs.Begins(begin, c) || strings.HasPrefix(c, begin) }) {
			continue
		}
		if c == "kubecri --version" {
			if runtime.GOARCH != "amd64" {
				continue
			}
			c = "./" + c
		}
		out += run(t, dir, c)
		typed++
	}
	head := strings.TrimSpace(run(t, dir, "git rev-parse HEAD"))
	for _, want := range []string{"Verified OK\nVerified OK\n", "kubecri_linux_amd64.tar.gz: OK\n", ByHand + "\n" + head + "\nKubeslot " + treeVersion(t) + " (commit " + head + ")\n",
		"github.com/kubeslot/kubeslot " + treeVersion(t) + "\nstdlib 1.", "kubeslot.local/kubecri:" + treeVersion(t) + "@sha256:"} {
		if !strings.Contains(out, want) {
			t.Errorf("the page's commands lack %q, and say\n%s", want, out)
		}
	}
	if typed < 10 {
		t.Errorf("only %d commands were typed of %q", typed, commands)
	}
	// What is not the releaser's is found.
	for _, file := range []string{"SHA256SUMS", "kubecri_linux_amd64.tar.gz"} {
		before := readFile(t, filepath.Join(dir, file))
		writeFile(t, filepath.Join(dir, file), before+"x")
		run(
			t,
			dir,
			"! openssl dgst -sha256 -verify cosign.pub -signature SHA256SUMS.der SHA256SUMS || ! sha256sum "+
				"--check --ignore-missing --strict SHA256SUMS 2>/dev/null",
		)
		writeFile(t, filepath.Join(dir, file), before)
	}
}

// A registry has the images and the chart under the digests that images.txt says, and no
// version twice.
func TestPush(t *testing.T) {
	repository := smallRepository(t)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	c := config(t, repository)
	c.Plugin = ""
	c.Registry, c.Push, c.Insecure = strings.TrimPrefix(server.URL, "http://")+"/kubeslot", true, true
	for range 2 { // the second time all is there
		if err := Make(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(c.Out, c.Version)
	listed := strings.Fields(readFile(t, filepath.Join(dir, "images.txt")))
	if len(listed) != 2 || !strings.Contains(listed[1], "/kubeslot/charts/kubeslot:"+c.Version[1:]+"@sha256:") {
		t.Fatalf("images.txt has %q", listed)
	}
	for _, image := range listed {
		tagged, digest, _ := strings.Cut(image, "@")
		ref, err := name.ParseReference(tagged)
		if err != nil {
			t.Fatal(err)
		}
		there, err := remote.Head(ref)
		if err != nil || there.Digest.String() != digest {
			t.Errorf("the registry has %v, %v, want %s", there, err, image)
		}
	}
	values := run(t, dir, "tar -xzOf kubeslot-*.tgz kubeslot/values.yaml")
	if !strings.Contains(values, "\n  registry: \""+c.Registry+"\"\n") {
		t.Errorf("values.yaml begins with\n%s", values[:1000])
	}
	writeFile(t, filepath.Join(repository, "more"), "")
	commit(t, repository)
	want := "is complete, and not pushed: the registry has another " + c.Registry + "/kubecri:" + c.Version
	if err := Make(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Make() of another commit = %v", err)
	}
}

// What cannot be released is said before anything is built or written.
func TestRefused(t *testing.T) {
	readOnly := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			http.Error(w, `{"errors": [{"code": "DENIED"}]}`, http.StatusForbidden)
		}
	}))
	defer readOnly.Close()
	version := treeVersion(t)
	const hide = "git config status.showUntrackedFiles no && echo .DS_Store >> .git/info/exclude && " +
		"touch deploy/helm/kubeslot/.DS_Store" // as settings of the releaser's own do
	for name, tc := range map[string]struct {
		prepare string
		change  func(*Config)
		want    string
	}{
		"no version":           {"", func(c *Config) { c.Version = "" }, `version "": want one such as v1.2.3`},
		"half a version":       {"", func(c *Config) { c.Version = "v1.2" }, `version "v1.2": want`},
		"metadata":             {"", func(c *Config) { c.Version = version + "+a" }, `+a": want`},
		"another version":      {"", func(c *Config) { c.Version = "v99.0.0" }, "run `make release-version VERSION=v99.0.0`"},
		"a changed file":       {"echo >> LICENSE", nil, "the tree has changes, and a release is made of a commit:\nM LICENSE"},
		"a new file":           {"touch new", nil, "?? new"},
		"a hidden file":        {hide, nil, "?? deploy/helm/kubeslot/.DS_Store"},
		"a tag elsewhere":      {"git tag " + version + " && git -c user.name=x -c user.email=x commit --quiet --allow-empty --message=y", nil, "tag " + version + " is at commit"},
		"the types' elsewhere": {"git tag types/" + version + " && git -c user.name=x -c user.email=x commit --quiet --allow-empty --message=y", nil, "tag types/" + version + " is at commit"},
		"no clone":             {"rm -r .git", nil, "a release is made in a clone"},
		"no key":               {"", func(c *Config) { c.Key = "none" }, "the releaser's key: open none"},
		"no registry": {"", func(c *Config) {
			c.Registry, c.Push, c.Insecure = strings.TrimPrefix(readOnly.URL, "http://"), true, true
		}, "does not let you push"},
	} {
		t.Run(name, func(t *testing.T) {
			repository := smallRepository(t)
			if tc.prepare != "" {
				run(t, repository, tc.prepare)
			}
			c := config(t, repository)
			if tc.change != nil {
				tc.change(&c)
			}
			if err := Make(t.Context(), c); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Make() = %v, want %q", err, tc.want)
			}
			if _, err := os.Stat(c.Out); !os.IsNotExist(err) {
				t.Errorf("something is written: %v", err)
			}
		})
	}
}

// The tags that the page has are at the commit that is released.
func TestTagged(t *testing.T) {
	repository := smallRepository(t)
	commands, err := docs.Commands(root, "docs/release.md")
	if err != nil {
		t.Fatal(err)
	}
	run(
		t,
		repository,
		"git init --quiet --bare _output/origin.git && git config user.name x && git config user.email x && "+
			"git remote add origin ./_output/origin.git",
	)
	typed := ""
	for _, c := range commands {
		if docs.Begins("git tag", c) || docs.Begins("git push", c) {
			// The test has no key to sign with.
			typed += run(t, repository, strings.Replace(c, "--sign", "--message=x", 1))
		}
	}
	run(t, repository, "git checkout --quiet "+treeVersion(t))
	want := "refs/tags/types/" + treeVersion(t) + "\nrefs/tags/" + treeVersion(t) + "\n"
	if tags := run(t, repository, "git ls-remote --tags --refs origin | cut -f 2"); tags != want {
		t.Errorf("the page's commands push %q", tags)
	}
	if err := (&release{Config: config(t, repository)}).check(t.Context()); err != nil {
		t.Error(err)
	}
}
