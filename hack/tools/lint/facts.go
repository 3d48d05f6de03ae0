package main

import (
	"go/types"
	"reflect"
	"sync"

	"golang.org/x/tools/go/analysis"
)

// facts are what checks noted of objects and packages, by the type of the fact.
type facts struct {
	sync.RWMutex
	objects  map[reflect.Type]map[types.Object]analysis.Fact
	packages map[reflect.Type]map[*types.Package]analysis.Fact
}

// connect lets a pass read and write facts. Only a pass over our code is given all facts at once.
func (f *facts) connect(pass *analysis.Pass, ours bool) {
	pass.ExportObjectFact = func(object types.Object, fact analysis.Fact) { set(f, f.objects, object, fact) }
	pass.ImportObjectFact = func(object types.Object, fact analysis.Fact) bool { return get(f, f.objects, object, fact) }
	pass.ExportPackageFact = func(fact analysis.Fact) { set(f, f.packages, pass.Pkg, fact) }
	pass.ImportPackageFact = func(p *types.Package, fact analysis.Fact) bool { return get(f, f.packages, p, fact) }
	pass.AllObjectFacts = func() (found []analysis.ObjectFact) {
		for object, fact := range each(f, f.objects, pass.Analyzer, ours) {
			found = append(found, analysis.ObjectFact{Object: object, Fact: fact})
		}
		return found
	}
	pass.AllPackageFacts = func() (found []analysis.PackageFact) {
		for p, fact := range each(f, f.packages, pass.Analyzer, ours) {
			found = append(found, analysis.PackageFact{Package: p, Fact: fact})
		}
		return found
	}
}

func set[K comparable](f *facts, m map[reflect.Type]map[K]analysis.Fact, of K, fact analysis.Fact) {
	f.Lock()
	defer f.Unlock()
	kind := reflect.TypeOf(fact)
	if m[kind] == nil {
		m[kind] = map[K]analysis.Fact{}
	}
	m[kind][of] = fact
}

func get[K comparable](f *facts, m map[reflect.Type]map[K]analysis.Fact, of K, fact analysis.Fact) bool {
	f.RLock()
	defer f.RUnlock()
	found, ok := m[reflect.TypeOf(fact)][of]
	if ok {
		reflect.ValueOf(fact).Elem().Set(reflect.ValueOf(found).Elem())
	}
	return ok
}

// each returns a copy of the facts of a check's own types.
func each[K comparable](
	f *facts, m map[reflect.Type]map[K]analysis.Fact, check *analysis.Analyzer, ours bool,
) map[K]analysis.Fact {
	found := map[K]analysis.Fact{}
	if !ours {
		return found
	}
	f.RLock()
	defer f.RUnlock()
	for _, kind := range check.FactTypes {
		for of, fact := range m[reflect.TypeOf(kind)] {
			found[of] = fact
		}
	}
	return found
}
