package release

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubeslot/kubeslot/deploy/images"
)

// tree is this repository, v the version that it says, and hello the program of small ones.
const root = "../.."

var hello = images.Component{Name: "kubecri", Package: "./hello/kubecri", Title: "Says its version"}

// treeVersion is what this repository says.
func treeVersion(t *testing.T) string {
	t.Helper()
	chart := readFile(t, filepath.Join(root, "deploy/helm/kubeslot/Chart.yaml"))
	_, after, _ := strings.Cut(chart, "\nappVersion: ")
	v, _, _ := strings.Cut(after, "\n")
	if err := CheckVersions(root, v); err != nil {
		t.Fatal(err)
	}
	return v
}

// smallRepository is a repository with the chart and the pages of this one, and programs that
// are built in a moment.
func smallRepository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"hello/kubecri/main.go": `package main
import "os"
import "github.com/kubeslot/kubeslot/version"
func main() { os.Stdout.WriteString(version.String() + "\n") }
`,
		"version/version.go": `package version
var version, commit string
func String() string { return "Kubeslot " + version + " (commit " + commit + ")" }
`,
		".gitignore": "/_output/\n*.orig\n",
	} {
		writeFile(t, filepath.Join(dir, name), text)
	}
	for _, p := range places {
		if !strings.HasPrefix(p.file, "deploy/helm/") {
			writeFile(t, filepath.Join(dir, p.file), readFile(t, filepath.Join(root, p.file)))
		}
	}
	goVersion, err := exec.CommandContext(t.Context(), "go", "env", "GOVERSION").Output()
	if err != nil {
		t.Fatal(err)
	}
	writeFile(
		t,
		filepath.Join(dir, "go.mod"),
		"module github.com/kubeslot/kubeslot\n\ngo "+strings.TrimPrefix(strings.TrimSpace(string(goVersion)), "go")+
			"\n\n// It does not require github.com/kubeslot/kubeslot/types "+treeVersion(t)+"\n",
	)
	writeFile(t, filepath.Join(dir, "LICENSE"), readFile(t, filepath.Join(root, "LICENSE")))
	const chart = "deploy/helm/kubeslot"
	if err := os.CopyFS(filepath.Join(dir, chart), os.DirFS(filepath.Join(root, chart))); err != nil {
		t.Fatal(err)
	}
	run(t, dir, "git init --quiet --initial-branch=main . && git add --all")
	commit(t, dir)
	return dir
}

// commit commits what is changed, at a time that is not now.
func commit(t *testing.T, dir string) {
	t.Helper()
	run(t, dir, "git add --all && GIT_AUTHOR_DATE='@1700000000 +0100' GIT_COMMITTER_DATE='@1700000000 +0100' "+
		"git -c user.name=releaser -c user.email=releaser@example.com commit --quiet --message=x")
}

// config is one for the repository's release, of few programs.
func config(t *testing.T, repository string) Config {
	t.Helper()
	return Config{
		Root:       repository,
		Out:        filepath.Join(repository, "_output/release"),
		Version:    treeVersion(t),
		Builder:    ByHand,
		Repository: Repository,
		Components: []images.Component{
			hello,
		},
		Architectures: []string{"amd64", "arm64"},
		Plugin:        hello.Package,
		Progress:      io.Discard,
	}
}

// run runs a line in a shell, and returns what it prints.
func run(t *testing.T, dir, line string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", line)
	var out, said bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &said
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", line, err, &out, &said)
	}
	return out.String()
}

func readFile(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func writeFile(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// readFolder returns the folder's files.
func readFolder(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, e := range entries {
		files[e.Name()] = readFile(t, filepath.Join(dir, e.Name()))
	}
	return files
}
