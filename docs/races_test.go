// Package docs checks what the documentation says of the repository.
package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestRacesAreTested checks that each test named in the table of races.md exists, and that the
// page says of each what it asserts: the comment of its source. UPDATE=1 writes that list.
func TestRacesAreTested(t *testing.T) {
	text, err := os.ReadFile("races.md")
	if err != nil {
		t.Fatal(err)
	}
	const heading = "\n## What each test asserts\n"
	page, listed, found := strings.Cut(string(text), heading)
	if !found {
		t.Fatalf("races.md has no heading %q", heading)
	}
	var names []string
	for _, line := range strings.Split(page, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || strings.HasPrefix(cells[1], " race") || strings.HasPrefix(cells[1], "---") {
			continue
		}
		tests := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[3], -1)
		if len(tests) == 0 {
			t.Errorf("%s: no test", cells[1])
		}
		for _, test := range tests {
			if err := exists(test[1]); err != "" {
				t.Errorf("%s: `%s`: %s", strings.TrimSpace(cells[1]), test[1], err)
			}
			names = append(names, withoutSubtest.ReplaceAllString(test[1], "$1"))
		}
	}
	if len(names) < 40 {
		t.Errorf("found only %d tests in the table", len(names))
	}
	slices.Sort(names)
	want := "\n"
	for _, name := range slices.Compact(names) {
		assertion := asserts(name)
		if assertion == "" {
			t.Errorf("`%s` has no comment that says what it asserts", name)
		}
		want += wrapped(fmt.Sprintf("- `%s`: %s", name, assertion))
	}
	if listed == want {
		return
	}
	if os.Getenv("UPDATE") == "" {
		t.Error("races.md does not say what each test asserts: UPDATE=1 go test ./docs")
	} else if err := os.WriteFile("races.md", []byte(page+heading+want), 0o644); err != nil {
		t.Error(err)
	}
}

// wrapped is an item of a list in lines that are not too long.
func wrapped(item string) string {
	words := strings.Fields(item)
	text, line := "", words[0]
	for _, word := range words[1:] {
		if utf8.RuneCountInString(line+" "+word) > columns {
			text, line = text+line+"\n", "  "+word
		} else {
			line += " " + word
		}
	}
	return text + line + "\n"
}

// withoutSubtest matches the name of a test with a subtest.
var withoutSubtest = regexp.MustCompile(`^(.*\bTest\w+)/.*$`)

// source of a test are the files that it may be in, and how it begins.
func source(test string) (files []string, begin *regexp.Regexp) {
	if strings.HasSuffix(test, ".txt") {
		return []string{filepath.Join("../device-scheduler/ledger/testdata/scenarios", test)}, regexp.MustCompile(`\A((?:#.*\n)+)`)
	}
	folder, name, ok := strings.Cut(test, ": ")
	if !ok {
		folder, name = "kube-scheduler/configurationresources", test
	}
	name, _, _ = strings.Cut(name, "/")
	files, _ = filepath.Glob(filepath.Join("..", folder, "*_test.go"))
	return files, regexp.MustCompile(`(?m)^((?://.*\n)*)func ` + name + `\(t \*testing\.T\)`)
}

// asserts is what the comment at the head of a test says.
func asserts(test string) string {
	files, begin := source(test)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if found := begin.FindSubmatch(text); found != nil {
			return strings.Join(strings.Fields(regexp.MustCompile(`(?m)^(//|#)`).ReplaceAllString(string(found[1]), "")), " ")
		}
	}
	return ""
}

// exists says what is wrong with "races/story.txt" or "folder: TestName/subtest".
func exists(test string) string {
	files, begin := source(test)
	_, name, isOther := strings.Cut(test, ": ")
	if !isOther {
		name = test
	}
	_, sub, _ := strings.Cut(name, "/")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err.Error()
		}
		if strings.HasSuffix(test, ".txt") {
			return ""
		}
		if !begin.Match(text) {
			continue
		}
		if sub != "" && !strings.Contains(string(text), `"`+sub+`"`) {
			return "no such subtest in " + file
		}
		return ""
	}
	return "there is none"
}
