// Command lint runs the checks of go vet and of staticcheck over the Go modules in the directories
// that are its arguments, with their tests. It compiles nothing: what a package imports is read from
// source, for its types and for the facts that the checks need. The file of -clean remembers the
// packages without findings, by a hash of all that they are made of: they are not checked again.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/tools/go/packages"
)

func main() {
	clean := flag.String("clean", "", "the file that remembers packages without findings")
	flag.Parse()
	if flag.NArg() == 0 || *clean == "" {
		fmt.Fprintln(os.Stderr, "usage: lint -clean <file> <directory of a module>...")
		os.Exit(2)
	}
	found, err := findings(*clean, flag.Args())
	if err != nil {
		fmt.Fprintf(os.Stderr, "lint: %v\n", err)
		os.Exit(2)
	}
	for _, f := range found {
		fmt.Printf("%s: %s\n", f.position, f.message)
	}
	if len(found) > 0 {
		os.Exit(1)
	}
}

// findings returns what is wrong in the modules, and rewrites the file of clean packages.
func findings(clean string, modules []string) ([]finding, error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(clean)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	known := strings.Fields(string(text))
	loaded, err := load(modules)
	if err != nil {
		return nil, err
	}
	g, err := newGraph(root)
	if err != nil {
		return nil, err
	}
	var roots []*unit
	for _, packages := range loaded {
		units, err := g.add(packages)
		if err != nil {
			return nil, err
		}
		roots = append(roots, units...)
	}
	for _, u := range roots {
		u.check = !slices.Contains(known, u.key)
	}
	g.run(roots)

	var found []finding
	var keys strings.Builder
	for _, u := range roots {
		found = append(found, u.findings...)
		if len(u.findings) == 0 {
			fmt.Fprintln(&keys, u.key)
		}
	}
	slices.SortFunc(found, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.position.Filename, b.position.Filename), cmp.Compare(a.position.Offset, b.position.Offset),
			cmp.Compare(a.message, b.message))
	})
	if err := os.MkdirAll(filepath.Dir(clean), 0o755); err != nil {
		return nil, err
	}
	return slices.Compact(found), os.WriteFile(clean, []byte(keys.String()), 0o644)
}

// load asks the go command which packages each module has, and which they import.
func load(modules []string) ([][]*packages.Package, error) {
	together, err := workspace()
	if err != nil {
		return nil, err
	}
	loaded, errs := make([][]*packages.Package, len(modules)), make([]error, len(modules))
	var group sync.WaitGroup
	for i, module := range modules {
		group.Go(func() {
			var env []string // nil is ours
			if dir, err := filepath.Abs(module); err != nil || !slices.Contains(together, dir) {
				env = append(os.Environ(), "GOWORK=off")
			}
			loaded[i], errs[i] = packages.Load(&packages.Config{
				Env: env,
				Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles |
					packages.NeedImports | packages.NeedDeps | packages.NeedModule,
				Dir:   module,
				Tests: true,
				// cgo names the folder of the source in what it writes, and with -trimpath the go command takes
				// this from its cache for another clone of the repository, too.
				BuildFlags: []string{"-trimpath=false"},
			}, "./...")
		})
	}
	group.Wait()
	for i, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("load %s: %w", modules[i], err)
		}
	}
	return loaded, nil
}

// workspace returns the directories of the modules in the go.work that holds here.
func workspace() ([]string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return nil, fmt.Errorf("list the modules of the workspace: %w", err)
	}
	return strings.Fields(string(out)), nil
}
