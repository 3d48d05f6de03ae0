package release

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The tree says one version, wherever it says one, and can be made to say another.
func TestVersions(t *testing.T) {
	dir := t.TempDir()
	for _, p := range places {
		writeFile(t, filepath.Join(dir, p.file), readFile(t, filepath.Join(root, p.file)))
	}
	for _, version := range []string{"v9.10.11-rc.2", treeVersion(t)} {
		err := CheckVersions(dir, version)
		if version != treeVersion(t) &&
			(err == nil || !strings.Contains(err.Error(), "docs/release.md says "+treeVersion(t))) {
			t.Errorf("CheckVersions(%s) = %v", version, err)
		}
		if err := SetVersion(dir, version); err != nil {
			t.Fatal(err)
		}
		if err := CheckVersions(dir, version); err != nil {
			t.Errorf("it is not %s: %v", version, err)
		}
	}
	for _, p := range places {
		if readFile(t, filepath.Join(dir, p.file)) != readFile(t, filepath.Join(root, p.file)) {
			t.Errorf("%s is not as it was", p.file)
		}
	}
	if err := SetVersion(dir, "9.9"); err == nil {
		t.Error("SetVersion(9.9) is no error")
	}
	writeFile(t, filepath.Join(dir, "README.md"), "")
	if err := CheckVersions(dir, treeVersion(t)); err == nil ||
		!strings.Contains(err.Error(), "README.md says no version") {
		t.Errorf("without a version in README.md: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "README.md")); err != nil {
		t.Fatal(err)
	}
	if err := CheckVersions(dir, treeVersion(t)); err == nil {
		t.Error("without README.md: no error")
	}
}
