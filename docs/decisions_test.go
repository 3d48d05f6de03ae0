package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDecisions checks that the table of decisions/README.md has each record, with its title,
// status and date, and that a record has the headings of all, and at most 40 lines.
func TestDecisions(t *testing.T) {
	index, err := os.ReadFile("decisions/README.md")
	if err != nil {
		t.Fatal(err)
	}
	records, err := filepath.Glob("decisions/*.md")
	if err != nil {
		t.Fatal(err)
	}
	status := regexp.MustCompile(`^Status: (accepted|proposed|replaced by \[.+\]\(.+\)), (\d{4}-\d\d-\d\d)$`)
	for _, path := range records {
		name := filepath.Base(path)
		if name == "README.md" {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
		if len(lines) < 10 || len(lines) > 40 {
			t.Errorf("%s has %d lines, want at most 40", path, len(lines))
			continue
		}
		said := status.FindStringSubmatch(lines[2])
		if said == nil {
			t.Errorf("%s: line 3 is %q, want a status and a date", path, lines[2])
			continue
		}
		row := fmt.Sprintf("| [%s](%s) | %s | %s |\n", strings.TrimPrefix(lines[0], "# "), name, said[1], said[2])
		if !strings.Contains(string(index), row) {
			t.Errorf("decisions/README.md lacks the line %s", row)
		}
		for _, heading := range []string{"Context", "Decision", "Consequences"} {
			if !strings.Contains(string(text), "\n## "+heading+"\n") {
				t.Errorf("%s has no heading %s", path, heading)
			}
		}
	}
	if len(records) < 10 {
		t.Errorf("found only %d records", len(records))
	}
}
