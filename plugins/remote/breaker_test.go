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
		"late late late 1s begin no 1h no",
		"late late late 1s cut cut late 1999ms no 1ms late no",
	} {
		var b breaker
		now := time.Unix(0, 0)
		for i, word := range strings.Fields(script) {
			if d, err := time.ParseDuration(word); err == nil {
				now = now.Add(d)
				continue
			}
			try, ok := b.begin(now)
			if ok != (word != "no") {
				t.Fatalf("%s: at word %d, %s, a call is let through: %t", script, i, word, ok)
			}
			if how, ends := outcomes[word]; ends {
				b.end(now, try, how)
			}
		}
	}
}

// However calls overlap: a plugin that answers is called, and one that does not gets one call a pause.
func TestBreakerProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b breaker
		now := time.Unix(0, 0)
		type call struct {
			try   int
			tries bool // and no call was answered since
		}
		var calls []call
		trying := func() (n int) {
			for _, c := range calls {
				if c.tries {
					n++
				}
			}
			return n
		}
		t.Repeat(map[string]func(*rapid.T){
			"pass": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 20_000).Draw(t, "ms")) * time.Millisecond)
			},
			"begin": func(t *rapid.T) {
				paused := b.paused(now)
				try, ok := b.begin(now)
				if ok == paused {
					t.Fatalf("paused %t, and a call is let through: %t", paused, ok)
				}
				if ok {
					calls = append(calls, call{try, try > 0})
				}
			},
			"end": func(t *rapid.T) {
				if len(calls) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(calls)-1).Draw(t, "call")
				how := rapid.SampledFrom([]outcome{answered, late, cut}).Draw(t, "how")
				before := b
				b.end(now, calls[i].try, how)
				if how == answered {
					if b.open() {
						t.Fatal("a plugin that answered is not called")
					}
					for i := range calls {
						calls[i].tries = false
					}
				}
				if how != answered && !calls[i].tries && before.open() && b != before {
					t.Fatal("a call that began before the pause has changed it")
				}
				calls = append(calls[:i], calls[i+1:]...)
			},
			"": func(t *rapid.T) {
				if b.open() && (b.pause < minPause || b.pause > maxPause || b.until.After(now.Add(maxPause))) {
					t.Fatalf("a pause of %v until %v at %v", b.pause, b.until, now)
				}
				if n := trying(); n > 1 || b.trying != (n == 1) {
					t.Fatalf("%d calls try", n)
				}
			},
		})
	})
}
