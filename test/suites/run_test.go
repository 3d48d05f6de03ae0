package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubeslot/kubeslot/test/await"
)

const someMakefile = `
good:
	@test "$$JSON" = 1
	@echo compiling >&2
	@cat results.json
bad:
	@printf 'no end of line'; exit 3
fails:
	@echo '{"Action":"run","Package":"b","Test":"TestD"}'
	@echo '{"Action":"output","Package":"b","Test":"TestD","Output":"    d_test.go:3: it is wrong"}'
	@echo '{"Action":"fail","Package":"b","Test":"TestD","Elapsed":1}'
long:
	@echo begun; sleep 600; echo ended
`

const someResults = `{"Action":"start","Package":"a"}
{"Action":"run","Package":"a","Test":"TestA"}
{"Action":"pass","Package":"a","Test":"TestA","Elapsed":2.5}
{"Action":"run","Package":"a","Test":"TestB"}
{"Action":"skip","Package":"a","Test":"TestB","Elapsed":0}
{"Action":"run","Package":"a","Test":"TestC/x"}
{"Action":"pass","Package":"a","Test":"TestC/x","Elapsed":7.1}
{"Action":"pass","Package":"a","Elapsed":9.75}
`

// inFolder makes the tests' working directory one with such a Makefile.
func inFolder(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	t.Setenv("MAKEFLAGS", "") // the tests run under a make, too
	for name, text := range map[string]string{"Makefile": someMakefile, "results.json": someResults} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRun(t *testing.T) {
	inFolder(t)
	var out bytes.Buffer
	if err := os.MkdirAll(timesDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := writeTimes(filepath.Join(timesDir, "before.txt"), "the run before", []timed{{999, "test", "b TestOld"}}); err != nil {
		t.Fatal(err)
	}
	r, err := newRunner(&out)
	if err != nil {
		t.Fatal(err)
	}
	r.run(t.Context(), []*step{{Name: "first", Args: []string{"bad"}}, {Name: "second", Args: []string{"good"}}})
	r.close()
	if r.passed != 1 || r.failed != 1 || r.skipped != 1 {
		t.Errorf("%d passed, %d failed, %d skipped", r.passed, r.failed, r.skipped)
	}
	for _, want := range []string{
		"== first: make bad\n", "no end of line\n", "FAIL  first: make bad: exit status 2\n",
		"== second: make good\n", "compiling\n", "ok    a  9.8 s\n", "\n1 passed, 1 failed, 1 skipped in ",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	raw, err := os.ReadFile(filepath.Join(timesDir, "second.json"))
	if err != nil || string(raw) != someResults {
		t.Errorf("the output of go test -json: %v\n%s", err, raw)
	}
	table, err := os.ReadFile(filepath.Join(timesDir, "second.txt"))
	const rows = "\n      9.8  package  a\n      7.1  test     a TestC/x\n      2.5  test     a TestA\n"
	if err != nil || !strings.Contains(string(table), rows) ||
		!strings.HasPrefix(string(table), "# make good, ") || strings.Contains(string(table), "TestB") {
		t.Errorf("the table of times: %v\n%s", err, table)
	}
	third := []timed{{3, "test", "b TestD"}, {99, "package", "b"}}
	if err := writeTimes(filepath.Join(timesDir, "third.txt"), "third", third); err != nil {
		t.Fatal(err)
	}
	times, err := longest(timesDir, 10)
	if want := []timed{third[0], {2.5, "test", "a TestA"}}; err != nil || !slices.Equal(times, want) {
		t.Errorf("longest: %v %v", times, err)
	}
	if times, err = longest(timesDir, 1); len(times) != 1 {
		t.Errorf("the longest one: %v %v", times, err)
	}
}

// The end of the output, which is all that some see of it, says what has failed.
func TestSummaryNamesFailures(t *testing.T) {
	inFolder(t)
	var out bytes.Buffer
	r, err := newRunner(&out)
	if err != nil {
		t.Fatal(err)
	}
	r.run(t.Context(), []*step{{Name: "first", Args: []string{"fails"}}})
	r.close()
	_, summary, _ := strings.Cut(out.String(), "\n==\n")
	if !strings.Contains(summary, "\n  FAIL  b TestD  1.0 s\n        d_test.go:3: it is wrong\n") {
		t.Errorf("the summary does not name what failed:\n%s", &out)
	}
}

func TestDryRunWritesNothing(t *testing.T) {
	inFolder(t)
	t.Setenv("MAKEFLAGS", "n")
	var out bytes.Buffer
	r, err := newRunner(&out)
	if err != nil {
		t.Fatal(err)
	}
	r.run(t.Context(), []*step{{Name: "first", Args: []string{"bad"}}})
	if _, err := os.Stat("_output"); r.failed != 0 || !errors.Is(err, os.ErrNotExist) || !strings.Contains(out.String(), "exit 3") || strings.Contains(out.String(), "cannot write") {
		t.Errorf("%d failed, %v\n%s", r.failed, err, &out)
	}
	for flags, want := range map[string]bool{
		"": false, "n": true, "k": false, "kn -- SUITES=x": true, " -- RUN=n": false, "RUN=n": false, "--no-print-directory": false,
	} {
		if dryRun(flags) != want {
			t.Errorf("dryRun(%q) is not %v", flags, want)
		}
	}
}

// output closes begun when a line says that the step has begun.
type output struct {
	mu    sync.Mutex
	text  bytes.Buffer
	begun chan struct{}
}

func (t *output) Write(text []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if strings.HasSuffix(string(text), "begun\n") {
		close(t.begun)
	}
	return t.text.Write(text)
}

// What runs when the time is over ends, with all its processes, and has failed, as has what was not begun.
func TestStop(t *testing.T) {
	inFolder(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	out := &output{begun: make(chan struct{})}
	r := &runner{out: out, begin: time.Now()}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.run(ctx, []*step{{Name: "first", Args: []string{"long"}}, {Name: "second", Args: []string{"good"}}})
	}()
	<-out.begun
	cancel(errors.New("85m have passed"))
	await.Next(t, "the end of the run that was stopped", done)
	if r.failed != 2 || r.passed != 0 || !strings.Contains(out.text.String(), "FAIL  first: make long: 85m have passed") {
		t.Errorf("%d passed, %d failed\n%s", r.passed, r.failed, &out.text)
	}
	if got := strings.Join(r.lines, "\n"); !strings.Contains(got, "second               not run: 85m have passed") {
		t.Errorf("summary:\n%s", got)
	}
}

func TestEvery(t *testing.T) {
	called := make(chan time.Duration)
	stop := every(time.Millisecond, func(since time.Duration) {
		select {
		case called <- since:
		default:
		}
	})
	if first, second := <-called, <-called; second <= first {
		t.Errorf("called %v and %v after the begin", first, second)
	}
	stop()
}

// The changed files are found in a repository with commits of three days.
func TestChanged(t *testing.T) {
	t.Chdir(t.TempDir())
	command := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
	}
	for _, v := range []string{"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"} {
		t.Setenv(v, "")
		os.Unsetenv(v)
	}
	if c := changed(""); c.Doubt == "" {
		t.Errorf("without a repository: %+v", c)
	}
	command("git", "init", "-q")
	commit := func(at, file, text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Setenv("GIT_COMMITTER_DATE", at)
		command("git", "add", ".")
		command("git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", file)
	}
	commit("2026-01-01T12:00:00Z", "a.go", "package a")
	commit("2026-01-01T12:00:01Z", "b.go", "package b")
	if c := changed(""); !strings.Contains(c.Doubt, "git has no commit from a day before") {
		t.Errorf("on the first day: %+v", c)
	}
	commit("2026-01-02T11:00:00Z", "c.go", "package c")
	// A branch that was begun before that day, and is merged after it.
	command("git", "checkout", "-q", "-b", "old", "HEAD~1")
	commit("2026-01-01T12:00:02Z", "merged.go", "package merged")
	command("git", "checkout", "-q", "-")
	t.Setenv("GIT_COMMITTER_DATE", "2026-01-02T12:59:59Z")
	command("git", "-c", "user.name=a", "-c", "user.email=a@b", "merge", "-q", "--no-ff", "old")
	commit("2026-01-02T13:00:00Z", "d.go", "package d")
	command("git", "mv", "a.go", "a b.go")
	if err := os.WriteFile("ä.go", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for base, want := range map[string]string{
		"": "a b.go|a.go|c.go|d.go|merged.go|ä.go", "HEAD": "a b.go|a.go|ä.go", "HEAD~2..HEAD~1": "merged.go", "HEAD~2..": "d.go|merged.go",
	} {
		if c := changed(base); c.Doubt != "" || strings.Join(c.Files, "|") != want {
			t.Errorf("since %q: %+v, want %s", base, c, want)
		}
	}
	if c := changed("nowhere"); c.Doubt == "" {
		t.Errorf("since a commit that is not there: %+v", c)
	}
}
