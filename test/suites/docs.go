package main

import (
	"cmp"
	"fmt"
	"os"
	"strings"
)

// markers stand around the table in docs/testing.md.
const (
	tableBegins = "<!-- from test/suites/suites.txt, by `go run ./test/suites docs` -->\n"
	tableEnds   = "<!-- end -->\n"
)

// docs is the table as Markdown.
func (t *table) docs() string {
	var b strings.Builder
	b.WriteString("| suite | what it shows | `make test` | `make test-all` | why not all of it in `make test` |\n")
	b.WriteString("|---|---|---|---|---|\n")
	for _, s := range t.Suites {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", s.Name, s.what(), s.inTest(), s.inAll(), cmp.Or(s.Why, "all of it is"))
	}
	return b.String()
}

// what is what the suite shows, and its packages.
func (s *suite) what() string {
	if !s.hasPackages() {
		return s.What
	}
	return s.What + " (`" + strings.Join(append(s.Clusters, s.Packages...), "`, `") + "`)"
}

func (s *suite) inTest() string {
	switch {
	case len(s.Clusters) > 0 || strings.Contains(strings.Join(s.Test, " "), "SHORT=1"):
		return fmt.Sprintf("`-short`, %d min", s.TestMinutes)
	case len(s.Test) > 0:
		return fmt.Sprintf("%d min", s.TestMinutes)
	}
	return "no"
}

func (s *suite) inAll() string {
	if len(s.Asked) > 0 {
		return fmt.Sprintf("with `%s=1`, %d min", s.variable(), s.AllMinutes)
	}
	return fmt.Sprintf("%d min", s.AllMinutes)
}

// writeDocs writes the table into the page.
func (t *table) writeDocs(page string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	now, err := t.within(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	return os.WriteFile(page, []byte(now), 0o644)
}

// within returns the page's text with the table in its place.
func (t *table) within(text string) (string, error) {
	before, rest, begins := strings.Cut(text, tableBegins)
	_, after, ends := strings.Cut(rest, tableEnds)
	if !begins || !ends {
		return "", fmt.Errorf("there is no place for the table, between %q and %q", tableBegins, tableEnds)
	}
	return before + tableBegins + t.docs() + tableEnds + after, nil
}
