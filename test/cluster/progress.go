package cluster

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

// progress prints steps with the seconds since the beginning. Steps may run at
// the same time.
type progress struct {
	begin time.Time
	mu    sync.Mutex
	out   io.Writer
}

func newProgress(out io.Writer) *progress { return &progress{begin: time.Now(), out: out} }

func (p *progress) printf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, "%6.1fs  %s\n", time.Since(p.begin).Seconds(), fmt.Sprintf(format, args...))
}

// Write makes progress a writer for parts that print lines of their own.
func (p *progress) Write(line []byte) (int, error) {
	p.printf("%s", trimNewline(line))
	return len(line), nil
}

func trimNewline(line []byte) []byte {
	if n := len(line); n > 0 && line[n-1] == '\n' {
		return line[:n-1]
	}
	return line
}

const (
	pollEvery   = 50 * time.Millisecond
	remindAfter = 5 * time.Second
)

// await polls until done returns nil, ctx ends or fatal (may be nil) reports
// that waiting has become pointless. While it takes long it says what is awaited.
func (p *progress) await(ctx context.Context, what string, fatal func() error, done func(context.Context) error) error {
	begin := time.Now()
	remind := time.NewTicker(remindAfter)
	defer remind.Stop()
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for {
		err := done(ctx)
		if err == nil {
			p.printf("%s", what)
			return nil
		}
		if fatal != nil {
			if fatalErr := fatal(); fatalErr != nil {
				return fmt.Errorf("waiting for: %s: %w", what, fatalErr)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited %s for: %s: %w; last seen: %w", time.Since(begin).Round(time.Second), what, context.Cause(ctx), err)
		case <-remind.C:
			p.printf("... waiting for: %s (%v)", what, err)
		case <-poll.C:
		}
	}
}
