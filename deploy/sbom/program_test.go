package sbom

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/kubeslot/kubeslot/deploy/gobuild"
)

// A program's modules have their versions, and those of the repository itself the release's.
func TestAddProgram(t *testing.T) {
	file := filepath.Join(t.TempDir(), "program")
	build := gobuild.Program{
		Root:         "../..",
		Package:      "./deploy/sbom/testdata/program",
		OS:           "linux",
		Architecture: runtime.GOARCH,
	}
	if err := build.Build(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	d := New("program", time.Time{})
	if _, err := d.AddProgram(d.ID, "DESCRIBES", "v1.2.3", program); err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, p := range d.Packages {
		versions[p.Name] = p.Version
	}
	for _, module := range []string{"github.com/kubeslot/kubeslot", "github.com/kubeslot/kubeslot/types"} {
		if versions[module] != "v1.2.3" {
			t.Errorf("%s has version %q, want v1.2.3: %v", module, versions[module], versions)
		}
	}
	if _, err := d.AddProgram(d.ID, "DESCRIBES", "v1.2.3", []byte("no program")); err == nil {
		t.Error("of what is no program: no error")
	}
}
