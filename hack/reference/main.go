// Command reference writes the pages of docs/reference from what they are about: the CRDs, the chart's
// values, and the constants, metrics, flags and Events in the Go code. `make generate` runs it; `make
// lint` fails if a page would change.
//
//	go run ./hack/reference DIRECTORY [README of the chart]
package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// pages are the pages by their files' names.
var pages = map[string]func(t *tree, p *page) error{
	"crds.md":                   crds,
	"labels-and-annotations.md": keys,
	"metrics.md":                metrics,
	"events-and-conditions.md":  eventsAndConditions,
	"flags.md":                  flags,
	"chart-values.md":           chartValues,
}

func main() {
	if len(os.Args) != 2 && len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: reference DIRECTORY [README of the chart], in the root of the repository")
		os.Exit(2)
	}
	err := write(".", os.Args[1])
	if err == nil && len(os.Args) == 3 {
		err = (&tree{root: "."}).writePage(os.Args[2], chartReadme)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "reference: %v\n", err)
		os.Exit(1)
	}
}

func write(root, directory string) error {
	t, err := readTree(root)
	if err != nil {
		return fmt.Errorf("read the Go code: %w", err)
	}
	for _, name := range sortedKeys(pages) {
		if err := t.writePage(filepath.Join(directory, name), pages[name]); err != nil {
			return err
		}
	}
	return nil
}

func (t *tree) writePage(file string, fill func(t *tree, p *page) error) error {
	var p page
	if err := fill(t, &p); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(p.String()), 0o644)
}

// page is Markdown that grows.
type page struct{ strings.Builder }

// begin writes the title, what the page is made from, and paragraphs.
func (p *page) begin(title, from string, paragraphs ...string) {
	fmt.Fprintf(p, "# %s\n\n<!-- from %s, by `make generate` -->\n", title, from)
	for _, text := range paragraphs {
		p.paragraph(text)
	}
}

func (p *page) heading(level int, text string) {
	fmt.Fprintf(p, "\n%s %s\n", strings.Repeat("#", level), text)
}

func (p *page) paragraph(text string) { fmt.Fprintf(p, "\n%s\n", wrap(text, 100)) }

// table writes rows below a head. A column that is empty in all rows is left out.
func (p *page) table(head []string, rows [][]string) {
	var columns []int
	for i := range head {
		if slices.ContainsFunc(rows, func(row []string) bool { return row[i] != "" }) {
			columns = append(columns, i)
		}
	}
	line := func(row []string) {
		for _, i := range columns {
			p.WriteString("| " + cell(row[i]) + " ")
		}
		p.WriteString("|\n")
	}
	p.WriteString("\n")
	line(head)
	p.WriteString(strings.Repeat("|---", len(columns)) + "|\n")
	for _, row := range rows {
		line(row)
	}
}

// cell is a text in one line of a table.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}

// plain is a text that is not Markdown, such as a comment of Go code: what would be taken for HTML is escaped.
func plain(text string) string {
	parts := strings.Split(text, "`")
	for i := 0; i < len(parts); i += 2 {
		parts[i] = strings.NewReplacer("<", `\<`, "*", `\*`).Replace(parts[i])
	}
	return strings.Join(parts, "`")
}

// code is a text as code, "" for none.
func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

// sentence begins with a capital letter and ends with a full stop.
func sentence(text string) string {
	if text = strings.TrimSpace(text); text == "" {
		return ""
	}
	if !strings.HasSuffix(text, ".") && !strings.HasSuffix(text, ":") {
		text += "."
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

func wrap(text string, width int) string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return strings.Join(append(lines, line), "\n")
}

func sortedKeys[K cmp.Ordered, V any](of map[K]V) []K { return slices.Sorted(maps.Keys(of)) }
