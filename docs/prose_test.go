package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// columns is how long a line of prose may be.
const columns = 100

var (
	target    = regexp.MustCompile(`\]\([^()\s]*\)|https?://[^\s)]+`)
	reference = regexp.MustCompile(`^\[[^]]+\]: `)
)

// pages returns the paths of all Markdown files of the repository.
func pages(t *testing.T) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "_output", "testdata", "node_modules", "vendor", "shared"}, entry.Name()):
			return filepath.SkipDir
		case strings.HasSuffix(path, ".md"):
			found = append(found, path)
		}
		return nil
	})
	if err != nil || len(found) < 30 {
		t.Fatalf("found only %d pages: %v", len(found), err)
	}
	return found
}

// long returns the numbers of the page's lines that are too long. Tables, code, and the targets
// of links do not count: they cannot be wrapped.
func long(page string) []int {
	var numbers []int
	fenced, code, blank := false, false, true
	for i, line := range strings.Split(page, "\n") {
		text := strings.TrimSpace(line)
		if strings.HasPrefix(text, "```") {
			fenced = !fenced
			continue
		}
		code = !fenced && strings.HasPrefix(line, "    ") && (blank || code) || code && text == ""
		blank = text == ""
		if fenced || code || strings.HasPrefix(text, "|") || reference.MatchString(text) {
			continue
		}
		if utf8.RuneCountInString(target.ReplaceAllString(line, "]")) > columns {
			numbers = append(numbers, i+1)
		}
	}
	return numbers
}

// No line of prose is longer than a terminal of 100 columns shows. UPDATE=1 wraps the pages.
func TestLinesAreShort(t *testing.T) {
	for _, path := range pages(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if os.Getenv("UPDATE") != "" && len(long(string(text))) > 0 {
			text = []byte(wrap(string(text)))
			if err := os.WriteFile(path, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for _, number := range long(string(text)) {
			t.Errorf(
				"%s:%d: longer than %d columns: UPDATE=1 go test ./docs",
				strings.TrimPrefix(path, "../"),
				number,
				columns,
			)
		}
	}
}

// What cannot be wrapped may be long, and nothing else.
func TestLong(t *testing.T) {
	word := strings.Repeat("x", columns)
	for page, want := range map[string][]int{
		word:                                     nil,
		word + "x":                               {1},
		strings.Repeat("é", columns):             nil,
		"| " + word + " |":                       nil,
		"- [a](" + word + ".md), " + word:        {1},
		"[a](" + word + ".md)":                   nil,
		"[a]: " + word:                           nil,
		"see https://example.com/" + word:        nil,
		"```\n" + word + "x\n```\n" + word + "x": {4},
		"a\n\n    " + word + "\n\n    " + word:   nil,
		"- a\n    " + word:                       {2},
	} {
		if got := long(page); !slices.Equal(got, want) {
			t.Errorf("%q: lines %v, want %v", page, got, want)
		}
	}
}
