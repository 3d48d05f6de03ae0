package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// event is a line of go test -json; see go doc test2json. Of a build that failed ImportPath says which.
type event struct {
	Time                                      time.Time
	Action, Package, Test, Output, ImportPath string
	Elapsed                                   float64 // s
}

// timed is a row of the tables of times.
type timed struct {
	Seconds float64
	Kind    string // package, cluster or test
	Name    string // "<package>", "<package> <cluster>", "<package> <test>"
}

// running is a test, or a package when it has no name, that has not ended.
type running struct {
	pkg, test string
	began     time.Time
	at        string // the part of the test (t.Run) that began last
	paused    bool   // a parallel test waits for its turn
	cached    bool
	output    []string
}

// results reads the output of a run of make, in which there may be several of go test -json, and says on out what a
// person wants to know. Tests below others (t.Run) count as part of these.
type results struct {
	out                     io.Writer
	last                    time.Time // of the last event
	passed, failed, skipped int
	times                   []timed
	open                    map[string]*running // by package, blank and test
	failures                []string            // of the summary: what failed, and the first lines that say why
	failedIn                map[string]int      // tests, by package
	builds                  map[string][]string // output of builds, by what is built
}

func newResults(out io.Writer) *results {
	return &results{out: out, open: map[string]*running{}, failedIn: map[string]int{}, builds: map[string][]string{}}
}

// clusterUp is a line of test/cluster.
var clusterUp = regexp.MustCompile(`^\s*([0-9.]+)s\s+cluster "([^"]+)" is up`)

// line reads a line. What is no event is said as it is.
func (r *results) line(line string) {
	var e event
	if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &e) != nil || e.Action == "" {
		fmt.Fprintln(r.out, line)
		return
	}
	if !e.Time.IsZero() {
		r.last = e.Time
	}
	pkg := strings.TrimPrefix(e.Package, "github.com/kubeslot/kubeslot/")
	key := pkg + " " + e.Test
	switch e.Action {
	case "build-output":
		r.builds[e.ImportPath] = append(r.builds[e.ImportPath], e.Output)
	case "build-fail":
		r.say(fmt.Sprintf("FAIL  build of %s", e.ImportPath), r.builds[e.ImportPath])
	case "start", "run":
		r.open[key] = &running{pkg: pkg, test: e.Test, began: r.last}
		r.at(pkg, e.Test)
	case "pause", "cont":
		if test := r.open[key]; test != nil {
			test.paused = e.Action == "pause"
		}
		r.at(pkg, e.Test)
	case "output":
		r.output(pkg, key, e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.endPackage(pkg, e.Action, e.Elapsed)
		} else {
			r.endTest(pkg, e.Test, e.Action, e.Elapsed)
		}
	}
}

// at notes which part of a test runs.
func (r *results) at(pkg, test string) {
	if top, part, below := strings.Cut(test, "/"); below && r.open[pkg+" "+top] != nil {
		r.open[pkg+" "+top].at = part
	}
}

func (r *results) output(pkg, key, text string) {
	if m := clusterUp.FindStringSubmatch(text); m != nil {
		seconds, _ := strconv.ParseFloat(m[1], 64)
		r.times = append(r.times, timed{seconds, "cluster", pkg + " " + m[2]})
	}
	part := r.open[key]
	if part == nil { // of a test that has ended: a goroutine of it goes on
		part = r.open[pkg+" "]
	}
	if part == nil {
		fmt.Fprint(r.out, text)
		return
	}
	part.cached = part.cached || strings.HasSuffix(text, "\t(cached)\n")
	part.output = append(part.output, text)
	if part.isBenchmark() && strings.HasPrefix(text, part.test) && strings.Contains(text, " ns/op") {
		r.endTest(pkg, part.test, "pass", r.last.Sub(part.began).Seconds())
	}
}

// isBenchmark reports that go says of this test only whether it fails; if it passes, it has a result, or its parts do.
func (t *running) isBenchmark() bool { return strings.HasPrefix(t.test, "Benchmark") }

func (r *results) endTest(pkg, test, how string, seconds float64) {
	key := pkg + " " + test
	r.times = append(r.times, timed{seconds, "test", key})
	if how == "fail" {
		r.failedIn[pkg]++
		var output []string
		if t := r.open[key]; t != nil {
			output = t.output
		}
		r.say(fmt.Sprintf("FAIL  %s %s  %.1f s", pkg, test, seconds), output)
	}
	if !strings.Contains(test, "/") {
		r.count(how)
	}
	delete(r.open, key)
}

func (r *results) count(how string) {
	switch how {
	case "pass":
		r.passed++
	case "fail":
		r.failed++
	case "skip":
		r.skipped++
	}
}

// tailLines is how much of a package's output is said when it has failed.
const tailLines = 100

// endPackage ends a package. Tests of it that have not ended did not pass: one has called os.Exit, or crashed all.
func (r *results) endPackage(pkg, how string, seconds float64) {
	var began *running
	var notEnded []*running
	for _, key := range r.keys() {
		part := r.open[key]
		if part.pkg != pkg {
			continue
		}
		top, _, below := strings.Cut(part.test, "/")
		switch parent := r.open[pkg+" "+top]; {
		case part.test == "":
			began = part
			delete(r.open, key)
		case below && parent != nil: // of these go says only with the whole test how they have ended
			parent.output = append(parent.output, part.output...)
			delete(r.open, key)
		case part.isBenchmark() && how == "pass":
			r.endTest(pkg, part.test, "pass", r.last.Sub(part.began).Seconds())
		default:
			notEnded = append(notEnded, part)
		}
	}
	for _, part := range notEnded {
		part.output = append(part.output, "this test did not end\n")
		r.endTest(pkg, part.test, "fail", r.last.Sub(part.began).Seconds())
		how = "fail"
	}
	if began == nil {
		began = &running{}
	}
	if how == "fail" {
		if r.failedIn[pkg] == 0 {
			r.failed++
		}
		r.say(fmt.Sprintf("FAIL  %s  %.1f s", pkg, seconds), began.output[max(0, len(began.output)-tailLines):])
	} else if began.cached {
		fmt.Fprintf(r.out, "ok    %s  (cached)\n", pkg)
	} else if how == "pass" {
		fmt.Fprintf(r.out, "ok    %s  %.1f s\n", pkg, seconds)
	}
	if how != "skip" && !began.cached {
		r.times = append(r.times, timed{seconds, "package", pkg})
	}
}

// end ends the run: what is open was stopped. ok says that the run's own exit code was 0.
func (r *results) end(ok bool) {
	for _, key := range r.keys() {
		if part := r.open[key]; part != nil && part.test == "" {
			r.endPackage(part.pkg, "fail", r.last.Sub(part.began).Seconds())
		}
	}
	if !ok && r.failed == 0 {
		r.failed++
	}
	slices.SortStableFunc(r.times, func(a, b timed) int { return cmp.Compare(b.Seconds, a.Seconds) })
}

// headings are the lines of go test's output that say whose the next lines are.
var headings = regexp.MustCompile(`^=== (RUN|PAUSE|CONT|NAME) `)

// reasons are lines that begin with a place in the code, as what tests and the compiler say does.
var reasons = regexp.MustCompile(`^\s*\S+\.go:\d+(:\d+)?: `)

// say says what has failed, with its output, and notes it for the summary.
func (r *results) say(what string, output []string) {
	fmt.Fprintf(r.out, "%s\n", what)
	r.failures = append(r.failures, what)
	found := 0
	for line := range strings.Lines(strings.Join(output, "")) {
		if headings.MatchString(line) {
			continue
		}
		fmt.Fprintf(r.out, "      %s\n", strings.TrimRight(line, "\n"))
		if reasons.MatchString(line) && found < 3 {
			r.failures = append(r.failures, "      "+firstBytes(strings.TrimSpace(line), 300))
			found++
		}
	}
}

// firstBytes returns the text, or its first n bytes and an ellipsis.
func firstBytes(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "") + "…"
}

// running says which tests run, those that began first before others, and which packages run none. Before the first
// package, go compiles.
func (r *results) running(now time.Time) string {
	var parts []string
	busy := map[string]bool{}
	for _, key := range r.keys() {
		t := r.open[key]
		if t.test == "" || t.paused || strings.Contains(t.test, "/") {
			continue
		}
		busy[t.pkg] = true
		at := ""
		if t.at != "" {
			at = ", at " + t.at
		}
		parts = append(parts, fmt.Sprintf("%s %s (%.0f s%s)", t.pkg, t.test, now.Sub(t.began).Seconds(), at))
	}
	for _, key := range r.keys() {
		if t := r.open[key]; t.test == "" && !busy[t.pkg] {
			last := "" // what TestMain does
			if len(t.output) > 0 {
				last = ": " + strings.TrimSpace(t.output[len(t.output)-1])
			}
			parts = append(parts, fmt.Sprintf("%s (%.0f s%s)", t.pkg, now.Sub(t.began).Seconds(), last))
		}
	}
	if len(parts) == 0 {
		return "compiling"
	}
	if len(parts) > 6 {
		parts = append(parts[:6], fmt.Sprintf("and %d more", len(parts)-6))
	}
	return strings.Join(parts, ", ")
}

// keys are those of what is open, by when it began.
func (r *results) keys() []string {
	keys := make([]string, 0, len(r.open))
	for key := range r.open {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b string) int {
		return cmp.Or(r.open[a].began.Compare(r.open[b].began), cmp.Compare(a, b))
	})
	return keys
}
