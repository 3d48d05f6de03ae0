package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Make knows the targets of CONTRIBUTING, the packages and files that it names are there, and
// something reads each variable of its table.
func TestContributing(t *testing.T) {
	const page = "CONTRIBUTING.md"
	commands, err := Commands(root, page)
	if err != nil || len(commands) < 10 {
		t.Fatalf("%s has %d commands: %v", page, len(commands), err)
	}
	for _, command := range commands {
		words := strings.Fields(command)
		if words[0] == "make" { // without the list of packages, which takes seconds
			if out := dryRun(t, append(words[1:], "UNIT=")); strings.TrimSpace(out) == "" {
				t.Errorf("%s does nothing", command)
			}
			continue
		}
		for _, word := range words {
			if folder, ok := strings.CutPrefix(word, "./"); ok {
				if _, err := os.Stat(filepath.Join(root, folder)); err != nil {
					t.Errorf("%s: %v", command, err)
				}
			}
		}
	}
	text := read(t, page)
	for _, m := range regexp.MustCompile("`([a-z0-9-]+/[A-Za-z0-9_./-]+|[A-Za-z_]+_test\\.go)`").FindAllStringSubmatch(text, -1) {
		if strings.HasSuffix(m[1], "_test.go") && !strings.Contains(m[1], "/") {
			m[1] = "plugins/example/widget/" + m[1] // beside the package that the sentence names
		}
		if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
			t.Error(err)
		}
	}
	readers := read(t, "Makefile") + read(t, "test/e2e/main_test.go")
	variables := regexp.MustCompile("(?m)^\\| `([A-Z0-9]+)=").FindAllStringSubmatch(text, -1)
	if len(variables) < 6 {
		t.Errorf("found only %d variables", len(variables))
	}
	for _, m := range variables {
		if !strings.Contains(readers, "$("+m[1]+")") && !strings.Contains(readers, `Getenv("`+m[1]+`")`) {
			t.Errorf("nothing reads %s", m[1])
		}
	}
	rig := ""
	for _, file := range []string{"rig_test.go", "path_test.go", "main_test.go", "slots_test.go"} {
		rig += read(t, "test/e2e/"+file)
	}
	for _, name := range []string{"TestTwoCameras", "newRig", "debugEcho", "newPod", "create", "agree", "await", "testAll"} {
		if !strings.Contains(text, name) {
			t.Errorf("%s no longer has %s", page, name)
		}
		if !regexp.MustCompile(`(?m)^func (\(r \*rig\) )?` + name + `\(`).MatchString(rig) {
			t.Errorf("test/e2e no longer has %s", name)
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
