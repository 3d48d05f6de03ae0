package build

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	// quiet is how long a build may take without a word.
	quiet = 2 * time.Second
	// A log gets a line in this interval, a terminal's line is written anew.
	logEvery, terminalEvery = 10 * time.Second, 500 * time.Millisecond
	// bytesPerSecond that two cores compile, for a first guess.
	bytesPerSecond = 500 << 10
)

// work is what has to be compiled: packages and the bytes of their Go files.
type work map[string]int64

func (w work) total() (bytes int64) {
	for _, n := range w {
		bytes += n
	}
	return bytes
}

// planned asks the go tool what it would compile.
func planned(ctx context.Context, root string, env, flags, packages []string) (work, error) {
	const format = `{{if .Stale}}{{.ImportPath}}|{{.Name}}|{{.Dir}}{{range .GoFiles}}|{{.}}{{end}}{{end}}`
	var out bytes.Buffer
	args := []string{"list", "-deps", "-f", format}
	for i := 0; i < len(flags); i++ {
		if flags[i] == "-o" {
			i++
			continue
		}
		args = append(args, flags[i])
	}
	if err := command(ctx, root, env, &out, append(args, packages...)...); err != nil {
		return nil, err
	}
	w := work{}
	for lines := bufio.NewScanner(&out); lines.Scan(); {
		fields := strings.Split(lines.Text(), "|")
		if len(fields) < 3 || fields[1] == "main" { // which is stale also when it is compiled
			continue
		}
		size := int64(0)
		for _, file := range fields[3:] {
			if info, err := os.Stat(filepath.Join(fields[2], file)); err == nil {
				size += info.Size()
			}
		}
		w[fields[0]] = size
	}
	return w, nil
}

// progress shows how far a build is: in a line that is written anew on a terminal, and in a
// line now and then elsewhere. Its methods may be called at the same time.
type progress struct {
	mu         sync.Mutex
	out        io.Writer
	terminal   bool
	begin      time.Time
	work       work // nil until it is known
	compiled   map[string]bool
	downloaded int
	shown      bool
	done       chan struct{}
}

func newProgress(out io.Writer) *progress {
	p := &progress{out: out, terminal: isTerminal(out), begin: time.Now(), compiled: map[string]bool{}, done: make(chan struct{})}
	every := logEvery
	if p.terminal {
		every = terminalEvery
	}
	go func() {
		wait := time.NewTimer(quiet)
		defer wait.Stop()
		for {
			select {
			case <-p.done:
				return
			case <-wait.C:
				p.show()
				wait.Reset(every)
			}
		}
	}()
	return p
}

func (p *progress) plan(w work) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.work = w
}

func (p *progress) downloading() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.downloaded++
}

func (p *progress) compiling(pkg string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.compiled[pkg] = true
}

func (p *progress) show() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.done:
		return
	default:
	}
	text := describe(p.work, p.compiled, p.downloaded, time.Since(p.begin))
	if p.terminal {
		fmt.Fprintf(p.out, "\r\x1b[K%s", text)
	} else {
		fmt.Fprintln(p.out, text)
	}
	p.shown = true
}

// stop ends it, with a line that says what was done if one was shown before.
func (p *progress) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.done)
	if !p.shown {
		return
	}
	if p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
	fmt.Fprintf(p.out, "built in %s: %d packages compiled\n", time.Since(p.begin).Round(time.Second), len(p.compiled))
}

// describe says in a line how far a build is after some time.
func describe(w work, compiled map[string]bool, downloaded int, after time.Duration) string {
	text := fmt.Sprintf("building for %s", after.Round(time.Second))
	if downloaded > 0 {
		text += fmt.Sprintf(", %d modules fetched", downloaded)
	}
	if w == nil {
		return text + fmt.Sprintf(", %d packages compiled", len(compiled))
	}
	var done int64
	count := 0
	for pkg := range compiled {
		if size, ok := w[pkg]; ok {
			done += size
			count++
		}
	}
	if count == len(w) {
		return text + ": linking"
	}
	total := w.total()
	left := time.Duration(float64(total-done) / bytesPerSecond * float64(time.Second))
	if done*20 > total { // by now it shows how fast this machine is
		left = time.Duration(float64(after) * float64(total-done) / float64(done))
	}
	return text + fmt.Sprintf(": %d %%, %d of %d packages, about %s left", 100*done/total, count, len(w), left.Round(time.Second))
}

func isTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}
