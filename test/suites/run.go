package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	progressEvery = 30 * time.Second
	stopDeadline  = 10 * time.Second // for what is interrupted
)

// runner runs steps, one after the other, and adds up what they show.
type runner struct {
	out                     io.Writer
	dry                     bool // make only says what it would run
	begin                   time.Time
	passed, failed, skipped int
	lines                   []string // of the summary, one a step
}

// newRunner returns a runner whose tables take the place of the last run's.
func newRunner(out io.Writer) (*runner, error) {
	r := &runner{out: out, dry: dryRun(os.Getenv("MAKEFLAGS")), begin: time.Now()}
	if r.dry {
		return r, nil
	}
	return r, os.RemoveAll(timesDir)
}

// run runs the steps until all have been or ctx ends.
func (r *runner) run(ctx context.Context, steps []*step) {
	for _, s := range steps {
		if ctx.Err() != nil {
			r.failed++
			r.lines = append(r.lines, fmt.Sprintf("%-20s not run: %v", s.Name, context.Cause(ctx)))
			continue
		}
		r.step(ctx, s)
	}
}

// step runs one step, says how it went, and leaves its times.
func (r *runner) step(ctx context.Context, s *step) {
	fmt.Fprintf(r.out, "== %s: make %s\n", s.Name, s.command())
	begin := time.Now()
	results := newResults(r.out)
	err := r.make(ctx, s, results)
	results.end(err == nil)
	if err != nil {
		fmt.Fprintf(r.out, "FAIL  %s: make %s: %v\n", s.Name, s.command(), err)
	}
	how := fmt.Sprintf("%5.0f s  %d passed, %d failed, %d skipped",
		time.Since(begin).Seconds(), results.passed, results.failed, results.skipped)
	r.lines = append(r.lines, fmt.Sprintf("%-20s %s", s.Name, how))
	for _, failure := range results.failures {
		r.lines = append(r.lines, "  "+failure)
	}
	r.passed, r.failed, r.skipped = r.passed+results.passed, r.failed+results.failed, r.skipped+results.skipped
	if r.dry {
		return
	}
	of := fmt.Sprintf("make %s, %s: %s", s.command(), begin.UTC().Format(time.DateTime), strings.TrimSpace(how))
	if err := writeTimes(filepath.Join(timesDir, s.Name+".txt"), of, results.times); err != nil {
		fmt.Fprintln(r.out, "cannot write the times:", err)
	}
}

// make runs make, and gives results its lines, of which it keeps those of go test -json.
func (r *runner) make(ctx context.Context, s *step, results *results) error {
	var raw io.Writer = io.Discard
	if !r.dry {
		if err := os.MkdirAll(timesDir, 0o755); err != nil {
			return err
		}
		file, err := os.Create(filepath.Join(timesDir, s.Name+".json"))
		if err != nil {
			return err
		}
		defer file.Close()
		raw = file
	}
	cmd := exec.CommandContext(ctx, "make", append([]string{"--no-print-directory", "--silent"}, s.Args...)...)
	cmd.Env = append(os.Environ(), "JSON=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // to interrupt the tests, not make alone
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = stopDeadline
	var mu sync.Mutex
	line := func(text string, stdout bool) {
		mu.Lock()
		defer mu.Unlock()
		if stdout && strings.HasPrefix(text, "{") {
			fmt.Fprintln(raw, text)
		}
		results.line(text)
	}
	stop := every(progressEvery, func(since time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(r.out, "%5.0f s  %s: %d passed, %d failed; %s\n",
			since.Seconds(), s.Name, results.passed, results.failed, results.running(time.Now()))
	})
	defer stop()
	stdout, stderr := &lines{line: func(l string) { line(l, true) }}, &lines{line: func(l string) { line(l, false) }}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err := cmd.Run()
	if ctx.Err() != nil && cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	stdout.end()
	stderr.end()
	return err
}

// every calls the function again and again, with the time since the first wait began, until what it returns is called.
func every(period time.Duration, call func(since time.Duration)) (stop func()) {
	ticker, done, ended := time.NewTicker(period), make(chan struct{}), make(chan struct{})
	begin := time.Now()
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				call(time.Since(begin))
			}
		}
	}()
	return func() {
		ticker.Stop()
		close(done)
		<-ended
	}
}

// lines gives each line that is written to it to a function.
type lines struct {
	line func(string)
	rest []byte // of a line that has not ended
}

func (l *lines) Write(text []byte) (int, error) {
	l.rest = append(l.rest, text...)
	for {
		line, rest, ended := bytes.Cut(l.rest, []byte("\n"))
		if !ended {
			return len(text), nil
		}
		l.line(string(line))
		l.rest = rest
	}
}

// end gives the last line, if it has no end.
func (l *lines) end() {
	if len(l.rest) > 0 {
		l.line(string(l.rest))
	}
}
