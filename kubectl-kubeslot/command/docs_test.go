package command

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

const docsPage = "../../docs/kubectl.md"

// Each output in the page is what the command prints, of the cluster in testdata/docs.txt.
// With -rewrite it is written there.
func TestDocs(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent")
	s := newStory()
	datadriven.RunTest(t, "testdata/docs.txt", func(t *testing.T, d *datadriven.TestData) string { return s.do(t, d) })
	text, err := os.ReadFile(docsPage)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(text), "\n```")
	shown := 0
	for i := 1; i < len(parts); i += 2 { // inside of a block
		lines := strings.SplitN(strings.TrimPrefix(parts[i], "\n"), "\n", 2)
		line, ours := strings.CutPrefix(lines[0], "$ kubectl kubeslot ")
		if !ours {
			continue
		}
		shown++
		printed := strings.ReplaceAll(s.run(t, "", words(line)...), "\n·\n", "\n\n")
		parts[i] = "\n" + lines[0] + "\n" + strings.TrimSuffix(printed, "\n")
	}
	if shown < 6 {
		t.Errorf("only %d commands are shown", shown)
	}
	want := strings.Join(parts, "\n```")
	if want == string(text) {
		return
	}
	if rewrite := flag.Lookup("rewrite"); rewrite != nil && rewrite.Value.String() == "true" {
		if err := os.WriteFile(docsPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s does not show what the commands print; go test ./kubectl-kubeslot/command -args -rewrite writes it", docsPage)
}

// words splits a line as a shell does, as far as single quotes.
func words(line string) []string {
	var all []string
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 { // quoted: it goes on with the word before
			all[len(all)-1] += part
			continue
		}
		all = append(all, strings.Fields(part)...)
	}
	return all
}
