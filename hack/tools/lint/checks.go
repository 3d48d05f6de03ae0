package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/ctrlflow"
	"golang.org/x/tools/go/analysis/passes/printf"
	"golang.org/x/tools/go/analysis/suite/vet"
	"honnef.co/go/tools/analysis/facts/deprecated"
	"honnef.co/go/tools/analysis/lint"
	"honnef.co/go/tools/simple"
	"honnef.co/go/tools/staticcheck"
	"honnef.co/go/tools/stylecheck"
	"honnef.co/go/tools/unused"
)

var (
	// everything is what go vet and staticcheck check.
	everything = slices.Concat(vet.Suite, staticchecks())
	// allFacts are those checks that note something of a package for the packages that import it.
	allFacts = withFacts(everything)
	// cheapFacts tell what is deprecated, what prints as Printf does, and what never returns. Others' modules have
	// no more: whether their functions are pure, or never return nil, would double the time that lint takes.
	cheapFacts = []*analysis.Analyzer{deprecated.Analyzer, printf.Analyzer, ctrlflow.Analyzer}
	// generatedClients are checked by vet alone.
	generatedClients = regexp.MustCompile(`/types/client/(clientset|informers|listers)`)
)

// staticchecks returns staticcheck's default checks, but for one.
func staticchecks() []*analysis.Analyzer {
	var checks []*analysis.Analyzer
	unused := []*lint.Analyzer{unused.Analyzer}
	for _, check := range slices.Concat(simple.Analyzers, staticcheck.Analyzers, stylecheck.Analyzers, unused) {
		// ST1005: an error's text may begin with the kind of an object, or with a variable's name.
		if !check.Doc.NonDefault && check.Analyzer.Name != "ST1005" {
			checks = append(checks, check.Analyzer)
		}
	}
	return checks
}

func withFacts(checks []*analysis.Analyzer) []*analysis.Analyzer {
	var found []*analysis.Analyzer
	for _, check := range checks {
		found = append(found, withFacts(check.Requires)...)
		if len(check.FactTypes) > 0 {
			found = append(found, check)
		}
	}
	return found
}

// runChecks runs what there is to check of a unit.
func (g *graph) runChecks(u *unit, unitPass *analysis.Pass) {
	checks := everything
	switch {
	case !u.ours && u.Module != nil:
		checks = cheapFacts
	case !u.check:
		checks = allFacts
	case generatedClients.MatchString(u.PkgPath):
		checks = slices.Concat(vet.Suite, allFacts)
	}
	r := &reporter{graph: g, unit: u, ignores: map[line]*ignore{}}
	if u.check {
		r.readIgnores(unitPass.Files)
	}
	results := map[*analysis.Analyzer]any{}
	var run func(check *analysis.Analyzer) any
	run = func(check *analysis.Analyzer) any {
		if result, ok := results[check]; ok {
			return result
		}
		pass := *unitPass
		pass.Analyzer, pass.ResultOf = check, map[*analysis.Analyzer]any{}
		for _, required := range check.Requires {
			pass.ResultOf[required] = run(required)
		}
		pass.Report = func(d analysis.Diagnostic) { r.report(check.Name, g.fset.Position(d.Pos), d.Message) }
		g.facts.connect(&pass, u.ours)
		result, err := check.Run(&pass)
		if err != nil {
			r.report(check.Name, token.Position{Filename: u.Dir}, err.Error())
		}
		results[check] = result
		return result
	}
	for _, check := range checks {
		if result, ok := run(check).(unused.Result); ok {
			r.reportUnused(result)
		}
	}
	r.reportUnmatched()
}

// A reporter drops findings that a comment like
//
//	//lint:ignore SA1019 <why>
//
// above their line names.
type reporter struct {
	graph   *graph
	unit    *unit
	ignores map[line]*ignore
}

type line struct {
	file string
	line int
}

type ignore struct {
	position token.Position // of the comment
	checks   []string
	matched  bool
}

func (r *reporter) readIgnores(files []*ast.File) {
	for _, directive := range lint.ParseDirectives(files, r.graph.fset) {
		if directive.Command == "ignore" && len(directive.Arguments) > 1 {
			at := r.graph.fset.Position(directive.Node.Pos())
			r.ignores[line{at.Filename, at.Line}] = &ignore{
				position: r.graph.fset.Position(directive.Directive.Pos()),
				checks:   strings.Split(directive.Arguments[0], ","),
			}
		}
	}
}

func (r *reporter) report(check string, position token.Position, message string) {
	ignore := r.ignores[line{position.Filename, position.Line}]
	if ignore != nil && slices.Contains(ignore.checks, check) {
		ignore.matched = true
		return
	}
	r.graph.report(r.unit, position, fmt.Sprintf("%s (%s)", message, check))
}

// reportUnused reports what is not used, unless another instance of the same generic code is.
func (r *reporter) reportUnused(result unused.Result) {
	used := map[string]bool{}
	key := func(object unused.Object) string {
		return fmt.Sprint(filepath.Base(object.Position.Filename), object.Position.Line, object.Name)
	}
	for _, object := range result.Used {
		used[key(object)] = true
	}
	for _, object := range result.Unused {
		if !used[key(object)] {
			r.report("U1000", object.DisplayPosition, fmt.Sprintf("%s %s is unused", object.Kind, object.Name))
		}
	}
}

// reportUnmatched reports comments that name no finding. The check for unused code reads its own.
func (r *reporter) reportUnmatched() {
	for _, ignore := range r.ignores {
		if !ignore.matched && !slices.Contains(ignore.checks, unused.Analyzer.Analyzer.Name) {
			r.graph.report(r.unit, ignore.position, "lint:ignore ignores nothing here")
		}
	}
}
