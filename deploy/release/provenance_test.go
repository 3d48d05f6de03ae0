package release

import (
	"encoding/json"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/kubeslot/kubeslot/deploy/gobuild"
)

func TestDirHash(t *testing.T) {
	// The example of in-toto's DigestSet.
	got, err := dirHash("h1:Khu2En+0gcYPZ2kuIihfswbzxv/mIHXgzPZ018Oty48=")
	if want := "2a1bb6127fb481c60f67692e22285fb306f3c6ffe62075e0ccf674d7c3adcb8f"; err != nil || got != want {
		t.Errorf("dirHash() = %s, %v, want %s", got, err, want)
	}
	for _, bad := range []string{"", "h1:*", "Khu2En+0gcYPZ2kuIihfswbzxv/mIHXgzPZ018Oty48="} {
		if _, err := dirHash(bad); err == nil {
			t.Errorf("dirHash(%q): no error", bad)
		}
	}
}

// The provenance has each module of a program with the hash of go.sum.
func TestProvenance(t *testing.T) {
	program := filepath.Join(t.TempDir(), "krew")
	build := gobuild.Program{Root: root, Package: "./deploy/krew/cmd/krew", OS: "linux", Architecture: runtime.GOARCH}
	if err := build.Build(t.Context(), program); err != nil {
		t.Fatal(err)
	}
	r := &release{
		Config: Config{
			Version:    "v1.2.3",
			Repository: Repository,
			Builder:    "https://example.com/builder",
			Registry:   "reg.example/k",
		},
		source:    source{commit: "abc"},
		materials: materials{},
		files:     []File{{"kubecri.tar.gz", "00"}},
		images: []image{
			{
				component: "kubecri",
				ref:       "reg.example/k/kubecri:v1.2.3",
				digest:    v1.Hash{Algorithm: "sha256", Hex: "11"},
			},
		},
		chart: chart{manifest: []byte("{}")},
	}
	if err := r.materials.add([]byte(readFile(t, program))); err != nil {
		t.Fatal(err)
	}
	text, err := r.provenance()
	if err != nil {
		t.Fatal(err)
	}
	var s statement
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	if s.Type != "https://in-toto.io/Statement/v1" || s.PredicateType != "https://slsa.dev/provenance/v1" ||
		s.Predicate.RunDetails.Builder.ID != "https://example.com/builder" {
		t.Errorf("it is\n%s", text)
	}
	var subjects []string
	for _, d := range s.Subject {
		subjects = append(subjects, d.Name+" "+d.Digest["sha256"])
	}
	want := "kubecri.tar.gz 00, reg.example/k/kubecri:v1.2.3 11, reg.example/k/charts/kubeslot:1.2.3 44136fa"
	if got := strings.Join(subjects, ", "); !strings.HasPrefix(got, want) {
		t.Errorf("subjects %s, want %s…", got, want)
	}
	definition := s.Predicate.BuildDefinition
	if definition.ExternalParameters["registry"] != "reg.example/k" ||
		definition.ExternalParameters["version"] != "v1.2.3" ||
		!strings.HasPrefix(definition.InternalParameters["go"], "go1.") {
		t.Errorf("parameters %v, %v", definition.ExternalParameters, definition.InternalParameters)
	}
	sum := readFile(t, root+"/go.sum")
	if first := definition.ResolvedDependencies[0]; first.URI != "git+"+Repository+"@refs/tags/v1.2.3" ||
		first.Digest["gitCommit"] != "abc" {
		t.Errorf("the source is %+v", first)
	}
	if len(definition.ResolvedDependencies) < 2 {
		t.Errorf("only %d sources", len(definition.ResolvedDependencies))
	}
	for _, d := range definition.ResolvedDependencies[1:] {
		module := strings.Replace(strings.TrimPrefix(d.URI, "pkg:golang/"), "@", " ", 1)
		_, after, found := strings.Cut(sum, "\n"+module+" h1:")
		hash, _, _ := strings.Cut(after, "\n")
		if want, err := dirHash("h1:" + hash); !found || err != nil || d.Digest["dirHash"] != want {
			t.Errorf("%s has %v, and go.sum %s %v", d.URI, d.Digest, want, err)
		}
	}
}
