package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the wanted files of testdata")

// Each <name>.json of testdata is what go test -json has printed once, <name>.txt what is printed of it, followed
// by what the summary says of failures, and by the table of times.
func TestResults(t *testing.T) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) < 9 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			r := newResults(&out)
			for line := range strings.Lines(string(text)) {
				r.line(strings.TrimSuffix(line, "\n"))
			}
			r.end(strings.HasSuffix(file, "/none.json") || strings.HasSuffix(file, "/cached.json"))
			fmt.Fprintf(&out, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
			for _, failure := range r.failures {
				fmt.Fprintln(&out, failure)
			}
			for _, row := range r.times {
				fmt.Fprintf(&out, "%9.1f  %-8s %s\n", row.Seconds, row.Kind, row.Name)
			}
			wanted := strings.TrimSuffix(file, ".json") + ".txt"
			if *update {
				if err := os.WriteFile(wanted, out.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(wanted)
			if diff := cmp.Diff(string(want), out.String()); diff != "" || err != nil {
				t.Errorf("(-want +got): %v\n%s", err, diff)
			}
		})
	}
}

// In the middle of a run: which tests run, since when, and what a package without a running test does.
func TestRunning(t *testing.T) {
	text, err := os.ReadFile("testdata/hangs.json")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	r := newResults(&out)
	said := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		r.line(strings.TrimSuffix(line, "\n"))
		said[r.running(r.last.Add(2*time.Minute))] = true
	}
	for _, want := range []string{"compiling", "hangs (120 s)", "hangs TestC (120 s)", "hangs TestA (120 s), hangs TestB (120 s, at sub)"} {
		if !said[want] {
			t.Errorf("never said %q, but %v", want, said)
		}
	}
	r = newResults(&out)
	for _, action := range []string{`"start"`, `"output","Output":"  3.0s  building etcd\n"`} {
		r.line(`{"Time":"2026-01-02T03:04:05Z","Package":"github.com/kubeslot/kubeslot/test/e2e","Action":` + action + `}`)
	}
	if got, want := r.running(r.last.Add(time.Minute)), "test/e2e (60 s: 3.0s  building etcd)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A run that is stopped has failed, with the tests that had not ended.
func TestStopped(t *testing.T) {
	var out bytes.Buffer
	r := newResults(&out)
	for _, event := range []string{
		`"Action":"start"`,
		`"Action":"run","Test":"TestLong"`,
		`"Action":"output","Test":"TestLong","Output":"    a_test.go:3: killed node-b\n"`,
	} {
		r.line(`{"Time":"2026-01-02T03:04:05Z","Package":"test/e2e",` + event + `}`)
	}
	r.end(false)
	const want = "FAIL  test/e2e TestLong  0.0 s\n          a_test.go:3: killed node-b\n      this test did not end\n"
	if r.failed != 1 || !strings.Contains(out.String(), want) {
		t.Errorf("%d failed:\n%s", r.failed, out.String())
	}
	r = newResults(&out)
	if r.end(false); r.failed != 1 {
		t.Errorf("make failed without a test: %d failed", r.failed)
	}
}
