package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestArchitectureIsThere checks that each file, package and test that architecture.md names exists.
func TestArchitectureIsThere(t *testing.T) {
	page, err := os.ReadFile("architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, row := range strings.Split(string(page), "\n") {
		if !strings.HasPrefix(row, "|") {
			continue
		}
		folder := "../kube-scheduler/configurationresources"
		for _, m := range regexp.MustCompile("`([^` ]+(: Test\\w+)?)`").FindAllStringSubmatch(row, -1) {
			name := strings.TrimSuffix(m[1], "/…")
			switch {
			case strings.Contains(name, "Test"):
				if err := exists(name); err != "" {
					t.Errorf("%s: %s", name, err)
				}
			case strings.Contains(name, "/"):
				if _, err := os.Stat(filepath.Join("..", name)); err != nil {
					t.Error(err)
				}
				folder = filepath.Join("..", filepath.Dir(name))
			case strings.HasSuffix(name, ".go"): // beside the file named before
				if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
					t.Error(err)
				}
			default:
				continue
			}
			named++
		}
	}
	if named < 30 {
		t.Errorf("found only %d names in the tables", named)
	}
}
