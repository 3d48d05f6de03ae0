// Package docs checks what the documentation says of the repository.
package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestRacesAreTested checks that each test named in races.md exists.
func TestRacesAreTested(t *testing.T) {
	page, err := os.ReadFile("races.md")
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, line := range strings.Split(string(page), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || strings.HasPrefix(cells[1], " race") || strings.HasPrefix(cells[1], "---") {
			continue
		}
		tests := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[3], -1)
		if len(tests) == 0 {
			t.Errorf("%s: no test", cells[1])
		}
		for _, test := range tests {
			named++
			if err := exists(test[1]); err != "" {
				t.Errorf("%s: `%s`: %s", strings.TrimSpace(cells[1]), test[1], err)
			}
		}
	}
	if named < 40 {
		t.Errorf("found only %d tests in the table", named)
	}
}

// exists says what is wrong with "races/story.txt" or "folder: TestName/subtest".
func exists(test string) string {
	if strings.HasSuffix(test, ".txt") {
		if _, err := os.Stat(filepath.Join("../device-scheduler/ledger/testdata/scenarios", test)); err != nil {
			return err.Error()
		}
		return ""
	}
	folder, name, ok := strings.Cut(test, ": ")
	if !ok {
		folder, name = "kube-scheduler/configurationresources", test
	}
	name, sub, _ := strings.Cut(name, "/")
	files, _ := filepath.Glob(filepath.Join("..", folder, "*_test.go"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err.Error()
		}
		if !strings.Contains(string(text), "func "+name+"(t *testing.T)") {
			continue
		}
		if sub != "" && !strings.Contains(string(text), `"`+sub+`"`) {
			return "no such subtest in " + file
		}
		return ""
	}
	return "no such test in " + folder
}
