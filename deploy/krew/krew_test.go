package krew

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// unpack returns the files of an archive with their modes.
func unpack(t *testing.T, p Platform, archive []byte) map[string]string {
	t.Helper()
	files := map[string]string{}
	if p.OS == "windows" {
		r, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range r.File {
			in, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(in)
			if err != nil {
				t.Fatal(err)
			}
			files[f.Name] = string(text)
		}
		return files
	}
	zipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(zipped); ; {
		header, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(text)
		if header.Name != "LICENSE" && header.Mode != 0o755 {
			t.Errorf("%s has mode %o, want 755", header.Name, header.Mode)
		}
	}
}

func TestPack(t *testing.T) {
	for _, p := range Platforms {
		archive, err := Pack(p, []byte("program"), []byte("license"))
		if err != nil {
			t.Fatal(err)
		}
		files := unpack(t, p, archive)
		if len(files) != 2 || files["LICENSE"] != "license" || files[p.Program()] != "program" {
			t.Errorf("%s has %v", p.Archive(), files)
		}
		if again, _ := Pack(p, []byte("program"), []byte("license")); !bytes.Equal(archive, again) {
			t.Errorf("%s is another each time", p.Archive())
		}
	}
}

// The manifest is one that krew takes: what krew-index's checks demand of it.
func TestManifest(t *testing.T) {
	r := Release{Version: "v0.1.0", URL: "https://example.com/v0.1.0/", Homepage: "https://example.com", Sums: map[Platform]string{}}
	if _, err := Manifest(r); err == nil || !strings.Contains(err.Error(), "no archive for linux/amd64") {
		t.Errorf("Manifest() without archives = %v", err)
	}
	for _, p := range Platforms {
		r.Sums[p] = Sum([]byte(p.OS + p.Arch))
	}
	text, err := Manifest(r)
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		APIVersion, Kind string
		Metadata         struct{ Name string }
		Spec             struct {
			Version, Homepage, ShortDescription, Description, Caveats string
			Platforms                                                 []struct {
				Selector         struct{ MatchLabels map[string]string }
				URI, SHA256, Bin string
				Files            []struct{ From, To string }
			}
		}
	}
	if err := yaml.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	if m.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || m.Kind != "Plugin" || m.Metadata.Name != "kubeslot" || m.Spec.Version != "v0.1.0" ||
		len(m.Spec.ShortDescription) > 50 || strings.HasSuffix(m.Spec.ShortDescription, ".") || m.Spec.Description == "" || m.Spec.Homepage == "" ||
		!strings.Contains(m.Spec.Caveats, "kubectl_complete-kubeslot") {
		t.Errorf("the manifest is\n%s", text)
	}
	seen := map[string]bool{}
	for _, p := range m.Spec.Platforms {
		os, arch := p.Selector.MatchLabels["os"], p.Selector.MatchLabels["arch"]
		seen[os+"/"+arch] = true
		if p.SHA256 != r.Sums[Platform{os, arch}] || !strings.HasPrefix(p.URI, "https://example.com/v0.1.0/kubectl-kubeslot_"+os+"_"+arch+".") || len(p.Files) != 2 || p.Files[0].From != p.Bin {
			t.Errorf("platform %+v", p)
		}
	}
	if len(seen) != len(Platforms) {
		t.Errorf("the manifest has %v", seen)
	}
	for name, bad := range map[string]Release{
		"no v": {Version: "0.1.0", URL: r.URL, Homepage: r.Homepage}, "half a version": {Version: "v0.1", URL: r.URL, Homepage: r.Homepage},
		"http": {Version: "v0.1.0", URL: "http://x", Homepage: r.Homepage}, "no page": {Version: "v0.1.0", URL: r.URL},
	} {
		bad.Sums = r.Sums
		if _, err := Manifest(bad); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
