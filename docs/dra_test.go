package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What dra.md quotes is in the examples, which tests apply.
func TestExamplesOfDRA(t *testing.T) {
	files, err := filepath.Glob("../examples/dra/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var examples strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		examples.Write(text)
	}
	page, err := os.ReadFile("dra.md")
	if err != nil {
		t.Fatal(err)
	}
	quotes := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(quotes) < 8 {
		t.Errorf("dra.md quotes only %d parts of examples", len(quotes))
	}
	for _, quote := range quotes {
		if !strings.Contains(examples.String(), quote[1]) {
			t.Errorf("dra.md quotes what no file of examples/dra has:\n%s", quote[1])
		}
	}
}
