package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	link    = regexp.MustCompile(`\]\(([^()\s:#]*)(?:#([^()\s]+))?\)`)
	fence   = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	// noLink is code that looks like a link, as patterns do.
	noLink = regexp.MustCompile("`[^`\n]*\\]\\([^`\n]*`")
)

// anchors are those that GitHub gives the headings of a page.
func anchors(page string) map[string]bool {
	found := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		text := regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`).ReplaceAllString(m[1], "$1")
		text = regexp.MustCompile(`[^\pL\pN _-]`).ReplaceAllString(strings.ToLower(text), "")
		found[strings.ReplaceAll(text, " ", "-")] = true
	}
	return found
}

// TestLinksLead checks that each link between pages leads to a file that is there, and to a
// heading that it has.
func TestLinksLead(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		return noLink.ReplaceAllString(fence.ReplaceAllString(string(text), ""), "")
	}
	followed := 0
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(read(page), -1) {
			to := filepath.Join(filepath.Dir(page), m[1])
			if m[1] == "" {
				to = page
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
				continue
			}
			if m[2] != "" && strings.HasSuffix(to, ".md") && !anchors(read(to))[m[2]] {
				t.Errorf("%s links to %s#%s: there is no such heading", page, m[1], m[2])
			}
			followed++
		}
	}
	if followed < 100 {
		t.Errorf("found only %d links", followed)
	}
}
