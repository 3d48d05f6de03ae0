package images

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/json"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/kubeslot/kubeslot/deploy/sbom"
	"github.com/kubeslot/kubeslot/test/need"
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

func TestImageOfAProgram(t *testing.T) {
	index := build(t)
	t.Run("Build", func(t *testing.T) { wantPause(t, index) })
	t.Run("ArchiveAndRegistry", func(t *testing.T) { wantInArchiveAndRegistry(t, index) })
}

func wantPause(t *testing.T, index v1.ImageIndex) {
	t.Helper()
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
	var bill sbom.Document
	if err := json.Unmarshal(files["usr/share/sbom/pause.spdx.json"], &bill); err != nil {
		t.Fatal(err)
	}
	if len(bill.Packages) < 2 || bill.Packages[0].Name != "github.com/kubeslot/kubeslot" || bill.Packages[0].Version != "v1.2.3" || bill.Packages[1].Name != "stdlib" {
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

func wantInArchiveAndRegistry(t *testing.T, index v1.ImageIndex) {
	t.Helper()
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
	if err == nil || !strings.Contains(err.Error(), "build ./test/images/no-such for amd64") {
		t.Errorf("Build() of a package that is not there = %v", err)
	}
	if _, err := SBOM(Program{Name: "x", Binary: []byte("not a program")}); err == nil || !strings.Contains(err.Error(), "modules of x") {
		t.Errorf("SBOM() of no program = %v", err)
	}
}

// The image with plugins runs by itself, wherever its files are unpacked.
func TestBuildWithPlugins(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("chroot needs root")
	}
	host := Component{Name: "host", Package: "./deploy/images/testdata/host", User: nobody, Title: "Loads a plugin",
		Plugins: []string{"./deploy/images/testdata/part/device"}, PluginFolder: "/plugins"}
	source := Source{Root: "../..", Version: "v1.2.3", Revision: "abc", Architectures: []string{runtime.GOARCH, "riscv64"}}
	index, leftOut, err := BuildWithPlugins(t.Context(), source, host, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"riscv64 for want of riscv64-linux-gnu-gcc"}, leftOut); diff != "" {
		t.Errorf("left out (-want +got):\n%s", diff)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	image, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	unpack(t, image, root)
	cmd := exec.CommandContext(t.Context(), "/host")
	cmd.Dir, cmd.Env, cmd.SysProcAttr = "/", []string{}, &syscall.SysProcAttr{Chroot: root}
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "hello from the plugin\n" {
		t.Errorf("in the image's files /host says %q, %v", out, err)
	}
	var bill sbom.Document
	text, err := os.ReadFile(filepath.Join(root, SBOMFolder, "host.spdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &bill); err != nil {
		t.Fatal(err)
	}
	if last := bill.Packages[len(bill.Packages)-1]; last.Name != "glibc" || !strings.HasPrefix(last.Version, "2.") {
		t.Errorf("the SBOM ends with %+v, want glibc and its version", last)
	}

	again, _, err := BuildWithPlugins(t.Context(), source, host, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	first, _ := index.Digest()
	if second, err := again.Digest(); err != nil || first != second {
		t.Errorf("built again its digest is %s, %v, and was %s", second, err, first)
	}

	source.Architectures = []string{"riscv64"}
	if _, _, err := BuildWithPlugins(t.Context(), source, host, t.TempDir()); err == nil || !strings.Contains(err.Error(), "no C compiler for any of riscv64") {
		t.Errorf("BuildWithPlugins() for an architecture of no compiler = %v", err)
	}
}

// Where there is a compiler for arm64, the image for it has nothing of this machine's.
func TestBuildWithPluginsForAnotherArchitecture(t *testing.T) {
	if runtime.GOARCH == "arm64" {
		t.Skip("it is this machine's architecture")
	}
	need.Program(t, "apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross", compiler("arm64"))
	host := Component{Name: "host", Package: "./deploy/images/testdata/host", User: nobody, Title: "Loads a plugin",
		Plugins: []string{"./deploy/images/testdata/part/device"}, PluginFolder: "/plugins"}
	index, _, err := BuildWithPlugins(t.Context(), Source{Root: "../..", Version: "v1", Revision: "abc", Architectures: []string{"arm64"}}, host, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	image, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if p := manifest.Manifests[0].Platform; p == nil || p.Architecture != "arm64" {
		t.Errorf("the image is for %v", p)
	}
	root, seen := t.TempDir(), 0
	unpack(t, image, root)
	for _, name := range []string{"host", "plugins/part.so", "lib/libc.so.6", "lib/ld-linux-aarch64.so.1"} {
		f, err := elf.Open(filepath.Join(root, name))
		if err != nil {
			t.Error(err)
			continue
		}
		if f.Machine != elf.EM_AARCH64 {
			t.Errorf("%s is for %s", name, f.Machine)
		}
		seen++
		_ = f.Close()
	}
	if seen != 4 {
		t.Errorf("%d of 4 files are there", seen)
	}
}

// unpack writes the image's files as a runtime does.
func unpack(t *testing.T, image v1.Image, root string) {
	t.Helper()
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		content, err := l.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "tar", "--extract", "--directory="+root)
		cmd.Stdin = content
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("unpack a layer: %v\n%s", err, out)
		}
		_ = content.Close()
	}
}

func TestLibCVersion(t *testing.T) {
	for text, want := range map[string]string{
		"GNU C Library (Debian GLIBC 2.36-9+deb12u14) stable release version 2.36.\nCompiled by GNU CC version 12.2.0.": "2.36-9+deb12u14",
		"GNU C Library (Ubuntu GLIBC 2.39-0ubuntu8) stable release version 2.39.":                                       "2.39-0ubuntu8",
		"GNU C Library (GNU libc) stable release version 2.40.":                                                         "2.40",
		"musl libc": "",
	} {
		if got, err := libcVersion([]byte("\x00" + text + "\x00")); got != want || (err == nil) != (want != "") {
			t.Errorf("libcVersion(%s) = %q, %v, want %q", text, got, err, want)
		}
	}
}
