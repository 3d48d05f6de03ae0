package docs

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// typed are the commands of pages that tests run.
type typed []string

// has reports whether a test runs the command, or one that it begins.
func (t typed) has(command string) bool {
	return slices.ContainsFunc(t, func(run string) bool { return Begins(command, run) })
}

// pagePath is how tests name a page.
var pagePath = regexp.MustCompile(`^(README|docs/.*)\.md$`)

// typedByTests finds the calls of tests that name a page and how a command of it begins, as
// docs.Command, and those of docs.Commands, which name a page of which all is run but make. A
// call that fits no command, or more than one, is an error: so is one in a package that no suite
// runs.
func typedByTests(root string) (typed, error) {
	suites, err := os.ReadFile(filepath.Join(root, "test/suites/suites.txt"))
	if err != nil {
		return nil, err
	}
	packages := ""
	for _, m := range regexp.MustCompile(`(?m)^(?:clusters|packages) (.*)$`).FindAllStringSubmatch(string(suites), -1) {
		packages += m[1]
	}
	var all typed
	var errs []error
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "_output" || entry.Name() == "testdata"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(source), `.md"`) {
			return err
		}
		commands, err := typedBy(root, path, source)
		if err != nil {
			errs = append(errs, err)
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err == nil && len(commands) > 0 && strings.HasPrefix(dir, "test/") && dir != "test/docs" && !slices.Contains(strings.Fields(packages), "./"+dir) {
			err = fmt.Errorf("%s runs commands of pages, and no suite of suites.txt has it", dir)
		}
		all = append(all, commands...)
		return err
	})
	return all, errors.Join(append(errs, err)...)
}

// typedBy returns the commands that a test file runs.
func typedBy(root, path string, source []byte) (typed, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, source, 0)
	if err != nil {
		return nil, err
	}
	var all typed
	var errs []error
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		name := call.Fun
		if s, ok := name.(*ast.SelectorExpr); ok {
			name = s.Sel
		}
		function, _ := name.(*ast.Ident)
		for i, arg := range call.Args {
			page := text(arg)
			if function == nil || !pagePath.MatchString(page) {
				continue
			}
			begin := ""
			if i+1 < len(call.Args) {
				begin = text(call.Args[i+1])
			}
			commands, err := commandsOf(root, function.Name, page, begin)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", files.Position(call.Pos()), err))
			}
			all = append(all, commands...)
		}
		return true
	})
	return all, errors.Join(errs...)
}

// commandsOf are those that a call of the function runs.
func commandsOf(root, function, page, begin string) ([]string, error) {
	switch {
	case function == "Commands":
		commands, err := Commands(root, page)
		return slices.DeleteFunc(commands, func(c string) bool { return Begins("make", c) }), err
	case begin == "":
		return nil, nil
	case function == "Block":
		block, err := Block(root, page, begin)
		return commands("    " + strings.ReplaceAll(block, "\n", "\n    ")), err
	}
	command, err := Command(root, page, begin)
	return []string{command}, err
}

// text is the string that an expression is, "" if it is none.
func text(e ast.Expr) string {
	literal, ok := e.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return ""
	}
	s, err := strconv.Unquote(literal.Value)
	if err != nil {
		return ""
	}
	return s
}

func TestTyped(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "README.md"), []byte("    make all\n    helm install x\n    helm test x\n\n    cat > a <<E\n    E\n    kubeadm init --config a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		source string
		want   typed
		err    string
	}{
		"one":          {`h.typeHelm("README.md", "helm install")`, typed{"helm install x"}, ""},
		"as the third": {`docs.Command(root, "README.md", "helm test", "--more")`, typed{"helm test x"}, ""},
		"a block":      {`docs.Block(root, "README.md", "cat > ")`, typed{"cat > a <<E", "kubeadm init --config a"}, ""},
		"all":          {`docs.Commands(root, "README.md")`, typed{"helm install x", "helm test x", "cat > a <<E", "kubeadm init --config a"}, ""},
		"none":         {`readFile("README.md")`, nil, ""},
		"gone":         {`command(t, "README.md", "helm upgrade")`, typed{""}, "x_test.go:2:12: README.md has 0 commands"},
		"several":      {`command(t, "README.md", "helm")`, typed{""}, "README.md has 2 commands"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := typedBy(dir, "x_test.go", []byte("package x\nfunc f() { "+tc.source+" }\n"))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("error %v, want %q", err, tc.err)
			}
		})
	}
	if run := (typed{"helm install x --wait"}); !run.has("helm install") || run.has("helm") == false || run.has("helm install y") || run.has("helm install x --wait --more") {
		t.Error("a command is run if it begins one that is, and only then")
	}
}
