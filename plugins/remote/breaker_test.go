package remote

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Each word is what happens: a call that is answered, late or cut; a number of seconds that pass.
// "no" is a call that is not let through; "begin" one that does not end.
func TestBreaker(t *testing.T) {
	outcomes := map[string]outcome{"answered": answered, "late": late, "cut": cut}
	for _, script := range []string{
		"late late answered late late answered late late cut late no",
		"late late late no 999ms no 1ms answered late late late no 999ms no",
		"late late late 1s late no 1999ms no 1ms late 3999ms no 1ms late 8s late 16s late " +
			"29999ms no 1ms late 29999ms no 1ms late 29999ms no 1ms answered late",
		"late late late 1s begin no 1999ms no 1ms late no",
		"late late late 1s cut no 1999ms no 1ms late no",
	} {
		var b breaker
		now := time.Unix(0, 0)
		for i, word := range strings.Fields(script) {
			if d, err := time.ParseDuration(word); err == nil {
				now = now.Add(d)
				continue
			}
			if ok := !b.paused(now); ok != (word != "no") {
				t.Fatalf("%s: at word %d, %s, a call is let through: %t", script, i, word, ok)
			} else if ok {
				b.begin(now, 0)
			}
			if how, ends := outcomes[word]; ends {
				b.end(now, how)
			}
		}
	}
}

// However calls overlap: a plugin that answers is called, and one that does not gets one call a pause.
func TestBreakerProperties(t *testing.T) {
	const timeout = 5 * time.Second
	rapid.Check(t, func(t *rapid.T) {
		var b breaker
		now := time.Unix(0, 0)
		var tried time.Time // by the last call that tries, if none was answered since
		calls := 0
		t.Repeat(map[string]func(*rapid.T){
			"pass": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 20_000).Draw(t, "ms")) * time.Millisecond)
			},
			"begin": func(t *rapid.T) {
				if b.paused(now) {
					t.Skip()
				}
				calls++
				if !b.begin(now, timeout) {
					return
				}
				if now.Before(tried.Add(timeout + minPause)) {
					t.Fatalf("calls try at %v and %v", tried, now)
				}
				tried = now
			},
			"end": func(t *rapid.T) {
				if calls == 0 {
					t.Skip()
				}
				calls--
				how := rapid.SampledFrom([]outcome{answered, late, cut}).Draw(t, "how")
				before := b
				if changed := b.end(now, how); changed != (b.open() != before.open()) {
					t.Fatalf("a pause began or ended: %t", changed)
				}
				switch {
				case how == answered:
					tried = time.Time{}
					if b.open() {
						t.Fatal("a plugin that answered is not called")
					}
				case before.open() && b != before:
					t.Fatal("a call that was not answered has changed a pause")
				}
			},
			"": func(t *rapid.T) {
				if b.open() && (b.pause < minPause || b.pause > maxPause || b.until.After(now.Add(timeout+maxPause))) {
					t.Fatalf("a pause of %v until %v at %v", b.pause, b.until, now)
				}
			},
		})
	})
}
