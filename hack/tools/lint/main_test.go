package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The files of a module with one fault of each kind, on the lines that name it.
var faulty = map[string]string{
	"go.mod": "module example.com/faulty\n\ngo 1.26.0\n",
	"say/say.go": `// Package say prints.
package say

import "fmt"

func Say(format string, args ...any) { fmt.Printf(format, args...) }

// Old is old.
//
// Deprecated: use Say.
func Old() {}
`,
	"faulty.go": `package faulty

import (
	"strings"

	"example.com/faulty/say"
)

func F(on bool) {
	say.Say("%d", "x") // printf
	say.Old()          // SA1019
	if on == true {    // S1002
		strings.ToUpper("x") // SA4017
	}
}

func G() (error, int) { return nil, 0 } // ST1008

//lint:ignore ST1008 on purpose
func H() (error, int) { return nil, 0 }

//lint:ignore ST1008 nothing
func I() {}

func unused()   {} // U1000
func ofTests() {}
`,
	"faulty_test.go": `package faulty

import "testing"

func TestF(t *testing.T) {
	ofTests()
	t.Fatalf("%d", "x") // printf
}
`,
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The go command gives a clone what cgo made of another clone's files, which may be gone.
func TestCgoOfAnotherClone(t *testing.T) {
	t.Setenv("GOFLAGS", "-trimpath")
	for range 2 {
		clone := t.TempDir()
		t.Chdir(clone)
		write(t, "go.mod", "module example.com/cgo\n\ngo 1.26.0\n")
		write(t, "cgo.go", "// Package cgo calls C.\npackage cgo\n\nimport \"C\"\n\nfunc F() C.int { return 0 }\n")
		found, err := findings("_output/clean", []string{"."})
		if err != nil || len(found) > 0 {
			t.Fatalf("found %v, %v", found, err)
		}
		if err := os.RemoveAll(clone); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFindings(t *testing.T) {
	t.Chdir(t.TempDir())
	check := func() string {
		found, err := findings("_output/clean", []string{"."})
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, f := range found {
			lines = append(lines, fmt.Sprintf("%s:%d: %s", f.position.Filename, f.position.Line, f.message))
		}
		return strings.Join(lines, "\n")
	}
	for name, text := range faulty {
		write(t, name, text)
	}
	want := `faulty.go:10: example.com/faulty/say.Say format %d has arg "x" of wrong type string (printf)
faulty.go:11: example.com/faulty/say.Old is deprecated: use Say.  (SA1019)
faulty.go:12: should omit comparison to bool constant, can be simplified to on (S1002)
faulty.go:13: ToUpper doesn't have side effects and its return value is ignored (SA4017)
faulty.go:17: error should be returned as the last argument (ST1008)
faulty.go:22: lint:ignore ignores nothing here
faulty.go:25: func unused is unused (U1000)
faulty_test.go:7: (*testing.common).Fatalf format %d has arg "x" of wrong type string (printf)`
	// The second run knows of packages without findings.
	for range 2 {
		if got := check(); got != want {
			t.Errorf("found\n%s\nwant\n%s", got, want)
		}
	}

	// What is no longer printed by Printf is found out, although only the imported package has changed.
	write(t, "say/say.go", strings.Replace(faulty["say/say.go"], "fmt.Printf(format, args...)", "_ = fmt.Sprint(format)", 1))
	if got, want := check(), want[strings.Index(want, "\n")+1:]; got != want {
		t.Errorf("after a change of an import found\n%s\nwant\n%s", got, want)
	}

	write(t, "faulty_test.go", "package faulty\n\nfunc f() { undefined() }\n")
	if got := check(); !strings.Contains(got, "faulty_test.go:3: undefined: undefined") {
		t.Errorf("with a type error found\n%s", got)
	}
	write(t, "faulty_test.go", "package faulty\n")
	write(t, "faulty.go", "package faulty\n")
	if got := check(); got != "" {
		t.Errorf("without faults found\n%s", got)
	}
}
