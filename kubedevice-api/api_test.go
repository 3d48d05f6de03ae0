package kubedeviceapi

import (
	"go/build"
	"go/importer"
	"go/token"
	"go/types"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/Microsoft/KubeDevice-API/pkg/"

// TestAPI: testdata/api.txt has every exported identifier of KubeDevice-API
// (microsoft/KubeDevice-API, commit 7b20be3, with AssignMap and its siblings, of
// which KubeDevice's own code shows that they are there), with its type. Each is
// here, of the same type.
func TestAPI(t *testing.T) {
	text, err := os.ReadFile("testdata/api.txt")
	if err != nil {
		t.Fatal(err)
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	build.Default.GOROOT = strings.TrimSpace(string(goroot)) // which a test built with -trimpath does not know
	imports := importer.ForCompiler(token.NewFileSet(), "source", nil)
	have := map[string]map[string]string{} // type by identifier, by package
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		id, want, _ := strings.Cut(line, " ")
		pkg, name, _ := strings.Cut(id, ".")
		if have[pkg] == nil {
			p, err := imports.Import(module + pkg)
			if err != nil {
				t.Fatal(err)
			}
			have[pkg] = describe(p.Scope())
		}
		if got, ok := have[pkg][name]; !ok {
			t.Errorf("%s is missing", id)
		} else if got != want && want != "" {
			t.Errorf("%s is\n\t%s, want\n\t%s", id, got, want)
		}
	}
	if t.Failed() {
		for _, pkg := range slices.Sorted(maps.Keys(have)) {
			for _, name := range slices.Sorted(maps.Keys(have[pkg])) {
				t.Logf("%s.%s %s", pkg, name, have[pkg][name])
			}
		}
	}
}

// describe returns what a package exports, with the fields and methods of types.
func describe(scope *types.Scope) map[string]string {
	all := map[string]string{}
	for _, name := range scope.Names() {
		obj := scope.Lookup(name)
		if !obj.Exported() {
			continue
		}
		if _, ok := obj.(*types.TypeName); !ok {
			all[name] = show(obj.Type())
			continue
		}
		typ := types.Unalias(obj.Type())
		all[name] = "type"
		if s, ok := typ.Underlying().(*types.Struct); ok {
			for i := range s.NumFields() {
				if f := s.Field(i); f.Exported() {
					all[name+"."+f.Name()] = strings.TrimSpace(show(f.Type()) + " " + s.Tag(i))
				}
			}
		} else if _, ok := typ.Underlying().(*types.Interface); !ok {
			all[name] = "type " + show(typ.Underlying())
		}
		if !types.IsInterface(typ) {
			typ = types.NewPointer(typ)
		}
		methods := types.NewMethodSet(typ)
		for i := range methods.Len() {
			if m := methods.At(i).Obj(); m.Exported() {
				all[name+"."+m.Name()] = show(m.Type())
			}
		}
	}
	return all
}

// show prints a type. Packages go by their last element, so that ours and
// KubeDevice's are the same; the names of parameters do not matter.
func show(t types.Type) string {
	if s, ok := t.(*types.Signature); ok {
		t = types.NewSignatureType(nil, nil, nil, nameless(s.Params()), nameless(s.Results()), s.Variadic())
	}
	return types.TypeString(t, func(p *types.Package) string { return path.Base(p.Path()) })
}

func nameless(vars *types.Tuple) *types.Tuple {
	var bare []*types.Var
	for i := range vars.Len() {
		bare = append(bare, types.NewParam(token.NoPos, nil, "", vars.At(i).Type()))
	}
	return types.NewTuple(bare...)
}
