package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// Pages ask for the Go that go.mod asks for: make refuses an older one.
func TestGoVersion(t *testing.T) {
	module, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`(?m)^go (\S+)$`).FindSubmatch(module)
	if want == nil {
		t.Fatal("go.mod names no version of Go")
	}
	asks := regexp.MustCompile(`\bGo(?:\]\(\S+\))?\s(1\.[0-9.]+)\sor\snewer`)
	for _, page := range []string{"README.md", "docs/getting-started.md", "docs/release.md"} {
		text, err := os.ReadFile(filepath.Join("..", page))
		if err != nil {
			t.Fatal(err)
		}
		found := asks.FindAllSubmatch(text, -1)
		if len(found) == 0 {
			t.Errorf("%s asks for no version of Go", page)
		}
		for _, m := range found {
			if string(m[1]) != string(want[1]) {
				t.Errorf("%s asks for Go %s, go.mod for %s", page, m[1], want[1])
			}
		}
	}
}
