package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

func theTable(t *testing.T) *table {
	t.Helper()
	table, err := parseTable(suitesText)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// repositoryMake runs make in the repository, as a person does.
func repositoryMake(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "make", append([]string{"-C", root, "--no-print-directory"}, args...)...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains([]string{"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "JSON", "SHORT", "E2E", "RUN"}, name)
	})
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("make %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// goFiles calls the function with each Go file of the repository, its path in it, and that of the module it is in.
func goFiles(t *testing.T, each func(file, module string, source []byte)) {
	t.Helper()
	modules := map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		file, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if slices.Contains([]string{".git", "_output", "testdata"}, entry.Name()) {
				return filepath.SkipDir
			}
			modules[file] = modules[filepath.Dir(file)]
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil {
				modules[file] = file
			}
			return nil
		}
		if !strings.HasSuffix(file, ".go") {
			return nil
		}
		source, err := os.ReadFile(path)
		if err == nil {
			each(file, modules[filepath.Dir(file)], source)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Each package with tests is run by one suite.
func TestEveryPackageIsInOneSuite(t *testing.T) {
	suites := theTable(t)
	unit := map[string]bool{}
	for _, p := range strings.Fields(repositoryMake(t, "--eval=unit-packages: ; @echo $(UNIT)", "unit-packages")) {
		unit[strings.TrimPrefix(p, "github.com/kubeslot/kubeslot/")] = true
	}
	dryUnit := repositoryMake(t, "--dry-run", "test-unit", "UNIT=") // without the list of packages, which takes a second
	folders := map[string]string{}                                  // module, by the folder of a package with tests
	goFiles(t, func(file, module string, source []byte) {
		if !strings.HasSuffix(file, "_test.go") {
			return
		}
		folder := filepath.Dir(file)
		folders[folder] = module
		owner := suites.owner(folder)
		if strings.Contains(string(source), `os.Getenv("KUBESLOT_`+`E2E")`) && (owner == nil || len(owner.Clusters) == 0) {
			t.Errorf("%s brings up a cluster, and no suite with clusters in suites.txt has its package", file)
		}
	})
	for folder, module := range folders {
		owner := suites.owner(folder)
		switch {
		case owner == nil && slices.Contains([]string{".", "types"}, module) && !unit[folder]:
			t.Errorf("./%s has tests, and neither make test-unit nor a suite of suites.txt runs them", folder)
		case owner == nil && !slices.Contains([]string{".", "types"}, module) && !strings.Contains(dryUnit, "go -C "+module+" test "):
			t.Errorf("./%s has tests, of module %s, and neither make test-unit nor a suite of suites.txt runs them", folder, module)
		case owner != nil && unit[folder]:
			t.Errorf("./%s is in suite %s, and make test-unit runs it too", folder, owner.Name)
		}
	}
	if len(folders) < 100 || len(unit) < 100 {
		t.Errorf("found only %d packages with tests, and %d in UNIT", len(folders), len(unit))
	}
	had := map[string]string{}
	for _, s := range suites.Suites {
		for _, p := range slices.Concat(s.Clusters, s.Packages) {
			folder := filepath.Clean(p)
			if _, there := folders[folder]; !there {
				t.Errorf("suite %s has %s, in which there are no tests", s.Name, p)
			}
			if had[folder] != "" {
				t.Errorf("%s is in suites %s and %s", p, had[folder], s.Name)
			}
			had[folder] = s.Name
		}
	}
}

// Each suite is run by make test or make test-all, by a target that runs its packages.
func TestEverySuiteIsRun(t *testing.T) {
	suites := theTable(t).Suites
	run := map[string]bool{}
	for _, all := range []bool{false, true} {
		for _, step := range plan(suites, all) {
			out := repositoryMake(t, append([]string{"--dry-run", "UNIT="}, step.Args...)...)
			for _, s := range step.Suites {
				run[s.Name] = true
				for _, p := range slices.Concat(s.Clusters, s.Packages) {
					module := "go -C " + strings.TrimPrefix(p, "./") + " test"
					if !slices.Contains(strings.Fields(out), p) && !strings.Contains(out, module) {
						t.Errorf("make %s does not test %s:\n%s", step.command(), p, out)
					}
				}
			}
			if strings.Contains(out, " -short") == all && (step.Name == "clusters" || step.Name == "unit") {
				t.Errorf("make %s, with all tests: %v, runs\n%s", step.command(), all, out)
			}
		}
	}
	for _, s := range suites {
		if !run[s.Name] {
			t.Errorf("nothing runs suite %s", s.Name)
		}
		if s.What == "" || s.AllMinutes == 0 || (s.inTest() != "no") != (s.TestMinutes != 0) {
			t.Errorf("suite %s is not described: %+v", s.Name, s)
		}
		if partly := !slices.Equal(s.Test, s.All) || s.hasPackages(); partly && (s.Why == "" || len(s.Code) == 0) {
			t.Errorf("make test does not run all of suite %s: it needs why, and code", s.Name)
		}
	}
}

// The files that suites.txt names are there.
func TestCodeIsThere(t *testing.T) {
	suites := theTable(t)
	paths := slices.Concat(suites.Everything, suites.Nothing)
	for _, s := range suites.Suites {
		paths = append(paths, s.Code...)
	}
	for _, p := range paths {
		info, err := os.Stat(filepath.Join(root, p))
		if err != nil || info.IsDir() != strings.HasSuffix(p, "/") {
			t.Errorf("suites.txt has %s: %v (a folder ends with /)", p, err)
		}
	}
}

// docs/testing.md has the table of suites.txt.
func TestPageHasTheTable(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/testing.md"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := theTable(t).within(string(page))
	if err != nil {
		t.Fatal(err)
	}
	if string(page) != want {
		t.Error("docs/testing.md has another table than suites.txt: go run ./test/suites docs")
	}
}

// clusterName is the name of a test's cluster.
var clusterName = regexp.MustCompile(`cluster\.Config\{Name: (?:cmp\.Or\(os\.Getenv\("CLUSTER"\), )?"([^"]+)"`)

// Packages that may run at the same time have clusters of their own: to bring one up takes down what has its name.
func TestNoTwoPackagesHaveOneCluster(t *testing.T) {
	packages := map[string]string{}
	goFiles(t, func(file, _ string, source []byte) {
		dir := filepath.Dir(file)
		for _, m := range clusterName.FindAllSubmatch(source, -1) {
			name := string(m[1])
			if other, ok := packages[name]; ok && other != dir {
				t.Errorf("%s and %s bring up the cluster %q", other, dir, name)
			}
			packages[name] = dir
		}
	})
	if len(packages) < 8 {
		t.Errorf("clusters are found in %v alone", packages)
	}
}

// A test that -short skips says where it runs, and CI runs it after a change to what it tests.
func TestShortSkipsSayWhereTheTestRuns(t *testing.T) {
	suites := theTable(t)
	skips := 0
	goFiles(t, func(file, _ string, source []byte) {
		if !strings.Contains(string(source), "testing.Short()") || strings.HasPrefix(file, "test/suites/") {
			return
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, source, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, reason := range shortSkips(parsed) {
			if skips++; !strings.HasSuffix(reason, "make test-all") {
				t.Errorf("%s: the test that -short skips says %q, want it to end with \"make test-all\"", file, reason)
			}
		}
		if suites.owner(filepath.Dir(file)) == nil && !begins(suites.find("unit").Code, file) {
			t.Errorf("%s has tests that -short skips, and suite unit of suites.txt has it not among its code", file)
		}
	})
	if skips == 0 {
		t.Error("found no test that -short skips")
	}
}

// A test that runs only where a variable is set falls out of all suites if no target sets it. Those that
// are run by hand stand in docs/testing.md.
func TestVariablesOfSkippedTestsAreSet(t *testing.T) {
	skip := regexp.MustCompile(`os\.Getenv\("(\w+)"\).*\n(?:.*\n)?.*\.Skip`)
	set := ""
	for _, file := range []string{"../../Makefile", "../../docs/testing.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		set += string(text)
	}
	found := 0
	goFiles(t, func(file, _ string, source []byte) {
		for _, variable := range skip.FindAllStringSubmatch(string(source), -1) {
			if found++; !strings.Contains(set, variable[1]+"=") {
				t.Errorf("%s skips a test where %s is not set, which no target of the Makefile does, nor does docs/testing.md say who runs it", file, variable[1])
			}
		}
	})
	if found < 5 {
		t.Errorf("found only %d", found)
	}
}

// shortSkips returns what the calls of t.Skip that stand in an if testing.Short() say, as far as it is a string.
func shortSkips(file *ast.File) []string {
	var reasons []string
	ast.Inspect(file, func(n ast.Node) bool {
		branch, ok := n.(*ast.IfStmt)
		if !ok || !calls(branch.Cond, "Short") {
			return true
		}
		ast.Inspect(branch.Body, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && (isCall(call, "Skip") || isCall(call, "Skipf")) {
				reasons = append(reasons, lastText(call.Args[0]))
			}
			return true
		})
		return true
	})
	return reasons
}

func calls(n ast.Node, name string) bool {
	found := false
	ast.Inspect(n, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		found = found || ok && isCall(call, name)
		return true
	})
	return found
}

func isCall(call *ast.CallExpr, name string) bool {
	s, ok := call.Fun.(*ast.SelectorExpr)
	return ok && s.Sel.Name == name
}

// lastText is the last string of an expression as why + ": make test-all".
func lastText(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		return lastText(e.Y)
	case *ast.BasicLit:
		s, _ := strconv.Unquote(e.Value)
		return s
	}
	return ""
}

func TestShortSkips(t *testing.T) {
	const source = `package x
func TestX(t *testing.T) {
	if testing.Short() {
		t.Skip("takes an hour: make test-all")
	}
	if runs := 5; !root || testing.Short() {
		t.Skipf("it takes %d", 5)
	}
	if testing.Short() {
		n = 10
	}
	if !root {
		t.Skip("not root")
	}
}
func long(t *testing.T, why string) {
	if testing.Short() {
		t.Skip(why + ": make test-all")
	}
}`
	parsed, err := parser.ParseFile(token.NewFileSet(), "x.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"takes an hour: make test-all", "it takes %d", ": make test-all"}
	if got := shortSkips(parsed); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
