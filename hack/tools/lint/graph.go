package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"hash"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/packages"
)

// A unit is a package with the files and imports that one build gives it: with its tests, or without.
type unit struct {
	*packages.Package
	key   string // hash of its files, of its imports' keys, and of the checks
	ours  bool   // the files are in this repository
	check bool   // report findings

	imports  map[string]*unit // by path in the source
	done     chan struct{}    // closed when types and facts are there
	types    *types.Package
	findings []finding
}

type finding struct {
	position token.Position
	message  string
}

// A graph is all packages that are checked, and all that they import. Packages of several modules with
// the same key are one.
type graph struct {
	root  string // of the repository
	basis string // what every key depends on: the checks, and the Go version and settings
	units map[string]*unit
	ids   map[*packages.Package]*unit
	fset  *token.FileSet
	sizes types.Sizes
	cores chan struct{}
	facts facts
}

func newGraph(root string) (*graph, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	self, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	settings, err := exec.Command("go", "env", "GOVERSION", "GOARCH", "GOOS", "CGO_ENABLED", "GOFLAGS").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	return &graph{
		root:  root + string(filepath.Separator),
		basis: fmt.Sprintf("%x\n%s", sha256.Sum256(self), settings),
		units: map[string]*unit{},
		ids:   map[*packages.Package]*unit{},
		fset:  token.NewFileSet(),
		sizes: types.SizesFor("gc", runtime.GOARCH),
		cores: make(chan struct{}, runtime.GOMAXPROCS(0)),
		facts: facts{
			objects:  map[reflect.Type]map[types.Object]analysis.Fact{},
			packages: map[reflect.Type]map[*types.Package]analysis.Fact{},
		},
	}, nil
}

// add adds a module's packages and all that they import, and returns the units that are to be checked:
// those with tests where there are any.
func (g *graph) add(loaded []*packages.Package) ([]*unit, error) {
	tested := map[string]bool{}
	for _, p := range loaded {
		if p.ID == p.PkgPath+" ["+p.PkgPath+".test]" {
			tested[p.PkgPath] = true
		}
	}
	var roots []*unit
	for _, p := range loaded {
		if strings.HasSuffix(p.ID, ".test") || p.ID == p.PkgPath && tested[p.PkgPath] {
			continue
		}
		u, err := g.unit(p)
		if err != nil {
			return nil, err
		}
		roots = append(roots, u)
	}
	return roots, nil
}

// unit returns the package's unit.
func (g *graph) unit(p *packages.Package) (*unit, error) {
	if u, ok := g.ids[p]; ok {
		return u, nil
	}
	u := &unit{
		Package: p, ours: strings.HasPrefix(p.Dir+string(filepath.Separator), g.root),
		imports: map[string]*unit{}, done: make(chan struct{}),
	}
	h := sha256.New()
	fmt.Fprintln(h, g.basis, p.ID, p.Errors)
	if p.Module != nil {
		fmt.Fprintln(h, p.Module.Path, p.Module.Version, p.Module.GoVersion)
	}
	for _, path := range slices.Sorted(maps.Keys(p.Imports)) {
		imported, err := g.unit(p.Imports[path])
		if err != nil {
			return nil, err
		}
		u.imports[path] = imported
		fmt.Fprintln(h, path, imported.key)
	}
	for _, file := range slices.Concat(p.CompiledGoFiles, p.OtherFiles, p.IgnoredFiles) {
		if err := g.hashFile(h, file); err != nil {
			return nil, err
		}
	}
	u.key = fmt.Sprintf("%x", h.Sum(nil))
	if same, ok := g.units[u.key]; ok {
		u = same
	}
	g.units[u.key], g.ids[p] = u, u
	return u, nil
}

// hashFile hashes a file of ours. Another's is known by its name: that of a module or of cgo's output
// has a hash or a version in it, and Go's own have the version of Go.
func (g *graph) hashFile(h hash.Hash, file string) error {
	fmt.Fprintln(h, file)
	if !strings.HasPrefix(file, g.root) {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	fmt.Fprintln(h, len(text))
	h.Write(text)
	return nil
}

// run checks the units that are to be checked.
func (g *graph) run(roots []*unit) {
	needed := map[*unit]bool{}
	var need func(u *unit)
	need = func(u *unit) {
		if needed[u] {
			return
		}
		needed[u] = true
		for _, imported := range u.imports {
			need(imported)
		}
	}
	for _, u := range roots {
		if u.check {
			need(u)
		}
	}
	var group sync.WaitGroup
	for u := range needed {
		group.Go(func() {
			defer close(u.done)
			for _, imported := range u.imports {
				<-imported.done
			}
			g.cores <- struct{}{}
			defer func() { <-g.cores }()
			g.analyze(u)
		})
	}
	group.Wait()
}

// analyze gives a unit its types and facts and, if it is to be checked, its findings.
func (g *graph) analyze(u *unit) {
	if u.PkgPath == "unsafe" {
		u.types = types.Unsafe
		return
	}
	broken := false
	fail := func(position token.Position, message string) {
		broken = true
		g.report(u, position, message)
	}
	for _, err := range u.Errors {
		fail(token.Position{Filename: err.Pos}, err.Msg)
	}
	mode := parser.ParseComments
	if !u.ours {
		mode |= parser.SkipObjectResolution
	}
	var files []*ast.File
	for _, name := range u.CompiledGoFiles {
		file, err := parser.ParseFile(g.fset, name, nil, mode)
		if err != nil {
			fail(token.Position{Filename: name}, err.Error())
		}
		if file != nil {
			files = append(files, file)
		}
	}
	pass := &analysis.Pass{
		Fset: g.fset, Files: files, OtherFiles: u.OtherFiles, IgnoredFiles: u.IgnoredFiles,
		TypesSizes: g.sizes, ReadFile: os.ReadFile,
		TypesInfo: &types.Info{
			Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{},
			Implicits: map[ast.Node]types.Object{}, Instances: map[*ast.Ident]types.Instance{},
			Scopes: map[ast.Node]*types.Scope{}, Selections: map[*ast.SelectorExpr]*types.Selection{},
			FileVersions: map[*ast.File]string{},
		},
	}
	config := &types.Config{Importer: importer(u.imports), Sizes: g.sizes, Error: func(err error) {
		if typed := (types.Error{}); errors.As(err, &typed) {
			fail(g.fset.Position(typed.Pos), typed.Msg)
		}
	}}
	if u.Module != nil {
		pass.Module = &analysis.Module{Path: u.Module.Path, Version: u.Module.Version, GoVersion: u.Module.GoVersion}
		if u.Module.GoVersion != "" {
			config.GoVersion = "go" + u.Module.GoVersion
		}
	}
	// All errors have been given to fail.
	pass.Pkg, _ = config.Check(u.PkgPath, g.fset, files, pass.TypesInfo)
	u.types = pass.Pkg
	if !broken {
		g.runChecks(u, pass)
	}
}

// report adds a finding, unless the unit is only imported.
func (g *graph) report(u *unit, position token.Position, message string) {
	if u.check {
		position.Filename = strings.TrimPrefix(position.Filename, g.root)
		u.findings = append(u.findings, finding{position, message})
	}
}

// An importer has the types of a unit's imports.
type importer map[string]*unit

func (i importer) Import(path string) (*types.Package, error) {
	if path == "unsafe" {
		return types.Unsafe, nil
	}
	if u := i[path]; u != nil && u.types != nil {
		return u.types, nil
	}
	return nil, fmt.Errorf("no package %s", path)
}
