package main

import (
	"errors"
	"go/ast"
	"go/build"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"strings"
	"time"
)

const module = "github.com/kubeslot/kubeslot"

// tree is the repository's Go code without its tests. Packages of other modules are not read: what
// needs their types is left without one, and so is what needs a constant of theirs.
type tree struct {
	root     string
	files    *token.FileSet
	packages map[string]*goPackage // by import path; nil while it is read
	info     types.Info
	vars     map[types.Object]ast.Expr // what a variable begins with
}

type goPackage struct {
	path   string // the folder, within the tree
	syntax []*ast.File
	types  *types.Package
}

// skipped are folders without code of Kubeslot's programs.
var skipped = map[string]bool{
	"testdata":       true,
	"_output":        true,
	".git":           true,
	"docs":           true,
	"test":           true,
	"hack":           true,
	"client":         true,
	"kubedevice-api": true,
	"pictures":       true,
}

func readTree(root string) (*tree, error) {
	t := &tree{
		root:     root,
		files:    token.NewFileSet(),
		packages: map[string]*goPackage{},
		vars:     map[types.Object]ast.Expr{},
	}
	t.info = types.Info{
		Types: map[ast.Expr]types.TypeAndValue{},
		Defs:  map[*ast.Ident]types.Object{},
		Uses:  map[*ast.Ident]types.Object{},
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || !d.IsDir():
			return err
		case skipped[d.Name()]:
			return filepath.SkipDir
		}
		folder, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		_, err = t.load(module + "/" + filepath.ToSlash(folder))
		return err
	})
	return t, err
}

// load reads a package of the tree once. A folder without code has none.
func (t *tree) load(path string) (*goPackage, error) {
	if p, known := t.packages[path]; known {
		return p, nil
	}
	t.packages[path] = nil
	p := &goPackage{path: strings.TrimPrefix(path, module+"/")}
	built, err := build.ImportDir(filepath.Join(t.root, p.path), 0)
	if none := new(build.NoGoError); errors.As(err, &none) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	for _, name := range append(built.GoFiles, built.CgoFiles...) {
		file, err := parser.ParseFile(t.files, filepath.Join(built.Dir, name), nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		p.syntax = append(p.syntax, file)
	}
	config := types.Config{Importer: t, Error: func(error) {}, FakeImportC: true}
	p.types, _ = config.Check(path, t.files, p.syntax, &t.info) // errors are those of what is not read
	for _, file := range p.syntax {
		for _, decl := range file.Decls {
			if vars, ok := decl.(*ast.GenDecl); ok && vars.Tok == token.VAR {
				t.noteVariables(vars)
			}
		}
	}
	t.packages[path] = p
	return p, nil
}

func (t *tree) noteVariables(vars *ast.GenDecl) {
	for _, spec := range vars.Specs {
		v := spec.(*ast.ValueSpec)
		for i, value := range v.Values {
			if i < len(v.Names) {
				t.vars[t.info.Defs[v.Names[i]]] = value
			}
		}
	}
}

// Import implements types.Importer.
func (t *tree) Import(path string) (*types.Package, error) {
	switch {
	case strings.HasPrefix(path, module+"/"):
		if p, err := t.load(path); err != nil {
			return nil, err
		} else if p != nil {
			return p.types, nil
		}
	case path == "time":
		return durations(), nil
	}
	p := types.NewPackage(path, filepath.Base(path))
	p.MarkComplete()
	return p, nil
}

// durations is package time, as far as constants are made of it.
func durations() *types.Package {
	p := types.NewPackage("time", "time")
	duration := types.NewNamed(types.NewTypeName(token.NoPos, p, "Duration", nil), types.Typ[types.Int64], nil)
	p.Scope().Insert(duration.Obj())
	for name, d := range map[string]time.Duration{"Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour} {
		p.Scope().Insert(types.NewConst(token.NoPos, p, name, duration, constant.MakeInt64(int64(d))))
	}
	p.MarkComplete()
	return p
}

// constant is the value of an expression that is constant; of a string without quotes.
func (t *tree) constant(e ast.Expr) (string, bool) {
	value := t.info.Types[e].Value
	if literal, ok := e.(*ast.BasicLit); ok && value == nil { // of a type that is not known
		value = constant.MakeFromLiteral(literal.Value, literal.Kind, 0)
	}
	switch {
	case value == nil:
		return "", false
	case value.Kind() == constant.String:
		return constant.StringVal(value), true
	}
	return value.ExactString(), true
}

// list are the values of a list of constants: one that is written there, or a variable's. nil is one of none.
func (t *tree) list(e ast.Expr) ([]string, bool) {
	switch e := e.(type) {
	case *ast.Ident:
		if e.Name == "nil" {
			return nil, true
		}
		value, known := t.vars[t.info.Uses[e]]
		if !known {
			return nil, false
		}
		return t.list(value)
	case *ast.SelectorExpr:
		return t.list(e.Sel)
	case *ast.CompositeLit:
		var all []string
		for _, element := range e.Elts {
			value, ok := t.constant(element)
			if !ok {
				return nil, false
			}
			all = append(all, value)
		}
		return all, true
	}
	return nil, false
}

// each calls back with each node of the packages whose folders begin so.
func (t *tree) each(folder string, visit func(p *goPackage, n ast.Node)) {
	for _, path := range sortedKeys(t.packages) {
		p := t.packages[path]
		if p == nil || p.path != folder && !strings.HasPrefix(p.path, folder+"/") && folder != "" {
			continue
		}
		for _, file := range p.syntax {
			ast.Inspect(file, func(n ast.Node) bool {
				if n != nil {
					visit(p, n)
				}
				return true
			})
		}
	}
}

// at says where something is.
func (t *tree) at(n ast.Node) string {
	position := t.files.Position(n.Pos())
	name, err := filepath.Rel(t.root, position.Filename)
	if err != nil {
		name = position.Filename
	}
	position.Filename = name
	return position.String()
}

// method is the name of what a call calls, without what is before its last dot.
func method(call *ast.CallExpr) string {
	switch fun := call.Fun.(type) {
	case *ast.SelectorExpr:
		return fun.Sel.Name
	case *ast.Ident:
		return fun.Name
	}
	return ""
}

// fields are the values of a composite literal by their names.
func fields(e ast.Expr) map[string]ast.Expr {
	if address, ok := e.(*ast.UnaryExpr); ok {
		e = address.X
	}
	found := map[string]ast.Expr{}
	if literal, ok := e.(*ast.CompositeLit); ok {
		for _, element := range literal.Elts {
			if pair, ok := element.(*ast.KeyValueExpr); ok {
				if name, ok := pair.Key.(*ast.Ident); ok {
					found[name.Name] = pair.Value
				}
			}
		}
	}
	return found
}
