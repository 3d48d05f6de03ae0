package usb

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubeslot/kubeslot/discovery"
)

// Each step is at a time, in ms, what is there then as id=version, and after "->" what is
// reported from then on.
func TestSettled(t *testing.T) {
	for name, steps := range map[string]string{
		"what is there first is reported at once": "0 a=1 b=1 -> a=1 b=1",
		"new ones wait for all of their nodes":    `0 -> ; 1000 a=1 -> ; 1100 a=2 -> ; 1300 a=3 -> ; 1399 a=3 -> ; 1400 a=3 -> a=3`,
		"and are not reported if they go":         "0 -> ; 1000 a=1 -> ; 1300 -> ; 2000 ->",
		"changes wait for others":                 "0 a=1 -> a=1; 1000 a=2 -> a=1; 1050 a=3 -> a=1; 1099 a=3 -> a=1; 1100 a=3 -> a=3",
		"a change that is taken back":             "0 a=1 -> a=1; 1000 a=2 -> a=1; 1050 a=1 -> a=1; 1100 a=1 -> a=1",
		"gone ones stand for a while":             "0 a=1 b=1 -> a=1 b=1; 1000 b=1 -> a=1 b=1; 1599 b=1 -> a=1 b=1; 1600 b=1 -> b=1",
		"re-enumerated: one change": `0 a=1 -> a=1; 1000 -> a=1; 1500 a=2 -> a=1; 1600 a=3 -> a=1; 1899 a=3 -> a=1;
			1900 a=3 -> a=3`,
		"gone twice":                "0 a=1 -> a=1; 1000 -> a=1; 1100 a=2 -> a=1; 1200 -> a=1; 1799 -> a=1; 1800 ->",
		"gone, and new again":       "0 a=1 -> a=1; 1000 -> a=1; 1600 -> ; 2000 a=2 -> ; 2400 a=2 -> a=2",
		"changed, then gone":        "0 a=1 -> a=1; 1000 a=2 -> a=1; 1050 -> a=1; 1650 ->",
		"back as it was, no change": "0 a=1 -> a=1; 1000 -> a=1; 1100 a=1 -> a=1; 1500 a=1 -> a=1; 3000 a=1 -> a=1",
	} {
		t.Run(name, func(t *testing.T) {
			s := newSettled()
			var start time.Time
			start = start.Add(time.Hour)
			for step := range strings.SplitSeq(steps, ";") {
				input, want, _ := strings.Cut(strings.TrimSpace(step), "->")
				words := strings.Fields(input)
				var ms int
				if _, err := fmt.Sscan(words[0], &ms); err != nil {
					t.Fatal(err)
				}
				found := map[string]discovery.Device{}
				for _, word := range words[1:] {
					id, version, _ := strings.Cut(word, "=")
					found[id] = discovery.Device{ID: id, Properties: map[string]string{"version": version}}
				}
				now := start.Add(time.Duration(ms) * time.Millisecond)
				s.observe(now, found)
				devices, next := s.advance(now)
				var got []string
				for _, id := range slices.Sorted(maps.Keys(devices)) {
					got = append(got, id+"="+devices[id].Properties["version"])
				}
				if got := strings.Join(got, " "); got != strings.TrimSpace(want) {
					t.Errorf("at %d ms: %q is reported, want %q", ms, got, strings.TrimSpace(want))
				}
				if !next.IsZero() && !next.After(now) {
					t.Errorf("at %d ms: to be called again at once", ms)
				}
			}
			if _, next := s.advance(start.Add(time.Hour)); !next.IsZero() {
				t.Errorf("in the end it wants to be called again at %v", next)
			}
		})
	}
}
