package docs

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestSecurityIsTested checks that each row of the tables in security.md that says what is
// tried names tests, and that they exist.
func TestSecurityIsTested(t *testing.T) {
	page, err := os.ReadFile("security.md")
	if err != nil {
		t.Fatal(err)
	}
	rows, tested := 0, false
	for _, line := range strings.Split(string(page), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			tested = false
			continue
		}
		last := strings.TrimSpace(cells[len(cells)-2])
		if last == "test" {
			tested = true
			continue
		}
		if !tested || strings.HasPrefix(last, "---") {
			continue
		}
		rows++
		tests := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(last, -1)
		if len(tests) == 0 {
			t.Errorf("%s: no test", strings.TrimSpace(cells[1]))
		}
		for _, test := range tests {
			if err := exists(test[1]); err != "" {
				t.Errorf("%s: `%s`: %s", strings.TrimSpace(cells[1]), test[1], err)
			}
		}
	}
	if rows < 25 {
		t.Errorf("found only %d rows", rows)
	}
}
