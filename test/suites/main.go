// Program suites runs the test suites of suites.txt for the Makefile: it says what fails as it fails, and leaves
// tables of what took how long in _output/test-times.
//
//	go run ./test/suites test             what `make test` runs
//	go run ./test/suites test-all         what `make test-all` runs (SUITES="<name> …": of these suites)
//	go run ./test/suites test-changed     what `make test` runs, then those suites whose code was changed (MINUTES, BASE)
//	go run ./test/suites longest          the ten tests that took longest
//	go run ./test/suites docs             writes the table of docs/testing.md anew
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ok, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "suites:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// run does what the arguments say, and says whether all tests passed.
func run(args []string) (ok bool, err error) {
	t, err := parseTable(suitesText)
	if err != nil {
		return false, fmt.Errorf("test/suites/suites.txt: %w", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch strings.Join(args, " ") {
	case "longest":
		times, err := longest(timesDir, 10)
		for _, t := range times {
			fmt.Printf("%9.1f s  %s\n", t.Seconds, t.Name)
		}
		return err == nil, err
	case "docs":
		err := t.writeDocs("docs/testing.md")
		return err == nil, err
	}
	r, err := newRunner(os.Stdout)
	if err != nil {
		return false, err
	}
	switch strings.Join(args, " ") {
	case "test":
		r.run(ctx, plan(t.Suites, false))
	case "test-all":
		suites, err := t.asked(strings.Fields(os.Getenv("SUITES")), os.Getenv)
		if err != nil {
			return false, err
		}
		r.run(ctx, plan(suites, true))
	case "test-changed":
		minutes, err := strconv.Atoi(cmp.Or(os.Getenv("MINUTES"), "75"))
		if err != nil {
			return false, fmt.Errorf("MINUTES: %w", err)
		}
		r.changed(ctx, t, time.Duration(minutes)*time.Minute, os.Getenv("BASE"))
	default:
		return false, errors.New("want one of: test, test-all, test-changed, longest, docs")
	}
	r.close()
	return r.failed == 0, nil
}

// dryRun reports that make was called with -n, from what it passes on: its short options in one word come first.
func dryRun(makeflags string) bool {
	options, _, _ := strings.Cut(makeflags, " ")
	return !strings.HasPrefix(options, "-") && !strings.Contains(options, "=") && strings.Contains(options, "n")
}

// asked returns the suites of these names, or, if there are none, those that run without being asked, and those that
// a variable asks for.
func (t *table) asked(names []string, variable func(string) string) ([]*suite, error) {
	var suites []*suite
	for _, name := range names {
		s := t.find(name)
		if s == nil {
			return nil, fmt.Errorf("there is no suite %q in test/suites/suites.txt", name)
		}
		suites = append(suites, s)
	}
	if len(names) > 0 {
		return suites, nil
	}
	for _, s := range t.Suites {
		if len(s.Asked) == 0 || variable(s.variable()) != "" {
			suites = append(suites, s)
		}
	}
	return suites, nil
}

// overtime is what a suite that takes longer than its minutes gets before it is stopped, and fails.
const overtime = 10 * time.Minute

// changed runs what `make test` runs, and then suites whose code was changed, while there is time.
func (r *runner) changed(ctx context.Context, t *table, in time.Duration, base string) {
	ctx, cancel := context.WithTimeoutCause(ctx, in+overtime, fmt.Errorf("%v have passed", in+overtime))
	defer cancel()
	r.run(ctx, plan(t.Suites, false))
	slow := t.slowness(time.Since(r.begin))
	if slow > 1 {
		fmt.Fprintf(r.out, "== make test took %.1f times as long as suites.txt says: what follows will, too\n", slow)
	}
	c := changed(base)
	if c.Doubt == "" {
		fmt.Fprintf(r.out, "== %d files were changed since %s\n", len(c.Files), c.Since)
	}
	var suites []*suite
	var out []string
	for _, v := range t.choose(c, time.Duration(float64(in-time.Since(r.begin))/slow)) {
		if r.failed > 0 {
			v.Run, v.Why = false, "make test has failed"
		}
		if v.Run {
			suites = append(suites, v.Suite)
			fmt.Fprintf(r.out, "also %-20s %s\n", v.Suite.Name, v.Why)
		} else {
			out = append(out, fmt.Sprintf("%-20s left out: %s", v.Suite.Name, v.Why))
		}
	}
	r.run(ctx, plan(suites, true))
	r.lines = append(r.lines, out...)
}

// close says how all of it went.
func (r *runner) close() {
	fmt.Fprintln(r.out, strings.Join(append([]string{"=="}, r.lines...), "\n"))
	if !r.dry {
		fmt.Fprintf(r.out, "What took how long is in %s; the longest tests: make test-times\n", timesDir)
	}
	fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped in %v\n",
		r.passed, r.failed, r.skipped, time.Since(r.begin).Round(time.Second))
}
