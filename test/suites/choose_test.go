package main

import (
	"strings"
	"testing"
	"time"
)

const someSuites = `
everything  go.mod hack/ types/
nothing     docs/ README.md

suite       lint
test        lint
test-all    lint
minutes     2 2

suite       unit
test        test-unit SHORT=1
test-all    test-unit
minutes     5 10
code        ledger/ plugins/

suite       e2e
clusters    ./test/e2e
minutes     6 30
code        kubecri/ ledger/

suite       chart
clusters    ./test/helm ./deploy
minutes     2 20
code        deploy/ docs/helm.md

suite       krew
clusters    ./deploy/krew
minutes     1 9
code        kubectl/

suite       fuzz
test-all    fuzz
minutes     - 3
code        kubecri/cdi/

suite       skew
packages    ./test/skew
asked       test-skew
minutes     - 60
code        kubecri/
`

func someTable(t *testing.T) *table {
	t.Helper()
	table, err := parseTable(someSuites)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestChoose(t *testing.T) {
	const all = "e2e chart krew unit fuzz"
	for name, tc := range map[string]struct {
		files   string
		doubt   string
		minutes int
		want    string // suites that run
		reason  string // "<suite>: <a part of why>"
	}{
		"nothing":                        {minutes: 75, reason: "e2e: as it was"},
		"a page that no suite tests":     {files: "docs/races.md README.md", minutes: 75},
		"a page that one does":           {files: "docs/races.md docs/helm.md", minutes: 75, want: "chart", reason: "chart: docs/helm.md"},
		"code of two":                    {files: "ledger/slots.go", minutes: 75, want: "e2e unit", reason: "unit: ledger/slots.go"},
		"code within code":               {files: "kubecri/cdi/spec.go", minutes: 75, want: "e2e fuzz"},
		"unit tests":                     {files: "ledger/slots_test.go", minutes: 75, want: "unit"},
		"fuzzers":                        {files: "kubecri/cdi/fuzz_test.go", minutes: 75, want: "fuzz"},
		"tests that make test runs":      {files: "kubecri/proxy/proxy_test.go", minutes: 75},
		"tests of a suite":               {files: "deploy/krew/pack_test.go", minutes: 75, want: "krew"},
		"what tests of a suite read":     {files: "test/helm/testdata/values.yaml", minutes: 75, want: "chart"},
		"code of a suite's package":      {files: "test/helm/rig/rig.go", minutes: 75, want: "chart"},
		"a module":                       {files: "go.mod", minutes: 75, want: all, reason: "krew: go.mod"},
		"what all use":                   {files: "docs/races.md types/slot/slot.go", minutes: 75, want: all},
		"a folder that no line has":      {files: "operator/main.go", minutes: 75, want: all, reason: "fuzz: operator/main.go"},
		"doubt":                          {doubt: "git has no commit", minutes: 75, want: all, reason: "unit: git has no commit"},
		"doubt, though files are known":  {doubt: "git has no commit", files: "README.md", minutes: 75, want: all},
		"clusters beside each other fit": {files: "go.mod", minutes: 43, want: all},
		"a minute too few":               {files: "go.mod", minutes: 42, want: "e2e chart krew unit", reason: "fuzz: takes 3 min, too long"},
		"the long one does not fit":      {files: "go.mod", minutes: 29, want: "chart krew fuzz", reason: "e2e: takes 30 min"},
		"little time":                    {files: "go.mod", minutes: 9, want: "krew", reason: "unit: takes 10 min"},
		"no time":                        {files: "go.mod", minutes: -3, reason: "krew: takes 9 min, too long for what is left of the time (go.mod)"},
		"what runs when asked for":       {files: "kubecri/main.go", minutes: 999, want: "e2e", reason: "skew: make test-all SKEW=1"},
	} {
		t.Run(name, func(t *testing.T) {
			c := change{Files: strings.Fields(tc.files), Doubt: tc.doubt}
			var run []string
			reasons := ""
			for _, v := range someTable(t).choose(c, time.Duration(tc.minutes)*time.Minute) {
				if v.Run {
					run = append(run, v.Suite.Name)
				}
				if v.Why == "" {
					t.Errorf("%s: no reason", v.Suite.Name)
				}
				reasons += v.Suite.Name + ": " + v.Why + "\n"
			}
			if got := strings.Join(run, " "); got != tc.want {
				t.Errorf("runs %q, want %q:\n%s", got, tc.want, reasons)
			}
			suite, reason, _ := strings.Cut(tc.reason, ": ")
			found := tc.reason == ""
			for line := range strings.Lines(reasons) {
				found = found || strings.HasPrefix(line, suite+": ") && strings.Contains(line, reason)
			}
			if !found {
				t.Errorf("no %q in\n%s", tc.reason, reasons)
			}
			if strings.Contains(reasons, "lint") {
				t.Errorf("lint, all of which make test has run, is among those to choose from:\n%s", reasons)
			}
		})
	}
}

// The table's `make test` takes 2 min of lint, 5 of unit tests, and then 6, beside which 3 take less.
func TestSlowness(t *testing.T) {
	for took, want := range map[time.Duration]float64{0: 1, 13 * time.Minute: 1, 26 * time.Minute: 2} {
		if got := someTable(t).slowness(took); got != want {
			t.Errorf("a make test of %v is %v times as slow, want %v", took, got, want)
		}
	}
}

func TestPlan(t *testing.T) {
	suites := someTable(t)
	for name, tc := range map[string]struct {
		names, variable string
		all             bool
		want            string
	}{
		"test": {want: `lint
test-unit SHORT=1
test-e2e SHORT=1 E2E='./test/e2e ./test/helm ./deploy ./deploy/krew'
`},
		"test-all": {all: true, want: `lint
test-unit
test-e2e SHORT= E2E='./test/e2e ./test/helm ./deploy ./deploy/krew'
fuzz
`},
		"test-all, and one more": {all: true, variable: "SKEW", want: `lint
test-unit
test-e2e SHORT= E2E='./test/e2e ./test/helm ./deploy ./deploy/krew'
fuzz
test-skew
`},
		"some": {all: true, names: "skew chart unit", want: "test-skew\ntest-e2e SHORT= E2E='./test/helm ./deploy'\ntest-unit\n"},
	} {
		t.Run(name, func(t *testing.T) {
			chosen, err := suites.asked(strings.Fields(tc.names), func(name string) string {
				if name == tc.variable {
					return "1"
				}
				return ""
			})
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, s := range plan(chosen, tc.all) {
				got += s.command() + "\n"
			}
			if got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
	if _, err := suites.asked([]string{"charts"}, nil); err == nil || !strings.Contains(err.Error(), `no suite "charts"`) {
		t.Errorf("a suite that is not there: %v", err)
	}
}

func TestTableIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"test lint":                               "line 1: test stands before the first suite",
		"suite a\ntest a\n\nsuite a":              "line 4: suite a is there twice",
		"suite a\nminuts 1 2":                     "line 2: no field of a suite is called minuts",
		"suite a\nminutes 1":                      "line 2: minutes of a: want two",
		"suite a\nminutes 1 x":                    "invalid syntax",
		"suite a\ntest":                           "line 2: test has no value",
		"suite a\nwhat much\nsuite b\ntest b":     "suite a is run by nothing",
		"suite a # not\n# a comment\ntest-al all": "line 3: no field",
	} {
		if _, err := parseTable(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
