package images

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// pause is a program of this repository that is built quickly.
var pause = Component{Name: "pause-image", Package: "./test/images/pause", User: nobody, Title: "Sleeps"}

func build(t *testing.T) v1.ImageIndex {
	t.Helper()
	index, err := Build(t.Context(), Source{Root: "../..", Version: "v1.2.3", Revision: "abc", Architectures: []string{"arm64", "amd64"}}, pause, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return index
}

func TestBuild(t *testing.T) {
	index := build(t)
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, m := range manifest.Manifests {
		platforms = append(platforms, m.Platform.String())
	}
	if diff := cmp.Diff([]string{"linux/amd64", "linux/arm64/v8"}, platforms); diff != "" {
		t.Errorf("platforms (-want +got):\n%s", diff)
	}
	image, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/pause"}, config.Config.Entrypoint); diff != "" || config.Config.User != nobody {
		t.Errorf("entry point %v, user %q", config.Config.Entrypoint, config.Config.User)
	}
	for label, want := range map[string]string{"org.opencontainers.image.version": "v1.2.3", "org.opencontainers.image.revision": "abc", "org.opencontainers.image.title": "pause-image"} {
		if got := config.Config.Labels[label]; got != want {
			t.Errorf("label %s is %q, want %q", label, got, want)
		}
	}
	files := read(t, image)
	if header := files["pause"]; header == nil || !bytes.HasPrefix(header, []byte("\x7fELF")) {
		t.Errorf("/pause begins with %q, want an ELF program", header[:min(4, len(header))])
	}
	var bill spdx
	if err := json.Unmarshal(files["usr/share/sbom/pause.spdx.json"], &bill); err != nil {
		t.Fatal(err)
	}
	if len(bill.Packages) < 2 || bill.Packages[0].Name != "github.com/kubeslot/kubeslot" || bill.Packages[1].Name != "stdlib" {
		t.Errorf("SBOM lists %+v, want this module, the standard library and more", bill.Packages)
	}

	first, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if second, err := build(t).Digest(); err != nil || second != first {
		t.Errorf("built again its digest is %s, %v, and was %s", second, err, first)
	}
}

// read returns the image's files by name.
func read(t *testing.T, image v1.Image) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		content, err := l.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		r := tar.NewReader(content)
		for {
			header, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if files[header.Name], err = io.ReadAll(r); err != nil {
				t.Fatal(err)
			}
		}
		_ = content.Close()
	}
	return files
}

func TestArchiveAndRegistry(t *testing.T) {
	index := build(t)
	dir := t.TempDir()
	archive := filepath.Join(dir, "pause.tar")
	if err := WriteArchive(archive, "kubeslot.test:5000/pause:v1", index); err != nil {
		t.Fatal(err)
	}
	once, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteArchive(archive, "kubeslot.test:5000/pause:v1", index); err != nil {
		t.Fatal(err)
	}
	if twice, err := os.ReadFile(archive); err != nil || !bytes.Equal(once, twice) {
		t.Errorf("the archive is not the same twice: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".oci-*")); len(left) > 0 {
		t.Errorf("%v is left behind", left)
	}
	if !bytes.Contains(once, []byte(`"org.opencontainers.image.ref.name":"v1"`)) {
		t.Error("the archive does not name the image's tag")
	}

	server := httptest.NewServer(registry.New())
	defer server.Close()
	ref, err := name.ParseReference(strings.TrimPrefix(server.URL, "http://") + "/kubeslot/pause:v1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(ref, index); err != nil {
		t.Fatal(err)
	}
	got, err := remote.Index(ref)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := index.Digest()
	if digest, err := got.Digest(); err != nil || digest != want {
		t.Errorf("the registry has %s, %v, want %s", digest, err, want)
	}
}

func TestBuildSaysWhatFailed(t *testing.T) {
	_, err := Build(t.Context(), Source{Root: "../..", Architectures: []string{"amd64"}}, Component{Name: "x", Package: "./test/images/no-such"}, t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "build x for amd64") {
		t.Errorf("Build() of a package that is not there = %v", err)
	}
	if _, err := SBOM("x", []byte("not a program")); err == nil || !strings.Contains(err.Error(), "modules of x") {
		t.Errorf("SBOM() of no program = %v", err)
	}
}
