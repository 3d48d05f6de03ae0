package docs

import (
	"go/parser"
	"go/token"
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

// TestPackagesUseThoseAbove checks that each package of kube-scheduler in the table imports only
// those of the rows above its own.
func TestPackagesUseThoseAbove(t *testing.T) {
	page, err := os.ReadFile("architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	const scheduler = "github.com/kubeslot/kubeslot/kube-scheduler/"
	order := map[string]int{}
	for i, m := range regexp.MustCompile("(?m)^\\| `kube-scheduler/(\\w+)` \\|").FindAllSubmatch(page, -1) {
		order[string(m[1])] = i
	}
	if len(order) < 10 {
		t.Fatalf("found only %d packages in the table", len(order))
	}
	for name := range order {
		files, _ := filepath.Glob("../kube-scheduler/" + name + "/*.go")
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range file.Imports {
				used := strings.TrimPrefix(strings.Trim(i.Path.Value, `"`), scheduler)
				if at, listed := order[used]; listed && at >= order[name] {
					t.Errorf("%s imports %s, which the table has below it", path, used)
				}
			}
		}
	}
}
