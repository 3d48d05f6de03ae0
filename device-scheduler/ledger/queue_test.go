package ledger

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// TestQueue compares the queue with a look at all devices, while slots are taken
// from those on top and from others, and some are dropped.
func TestQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := New()
		l.SetConfiguration(configurationOf("c", akriv0.ConfigurationSpec{Capacity: 4}))
		nodes := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "d"}), 0, 3, rapid.ID[string])
		for i := range rapid.IntRange(0, 12).Draw(t, "Instances") {
			name, reach := fmt.Sprint("c-", i), nodes.Draw(t, "nodes")
			share(l, name, reach...)
			if len(reach) > 0 {
				occupy(l, name, reach[0], rapid.IntRange(1, 4).Draw(t, "slots"), 4)
			}
		}
		strategy := rapid.SampledFrom([]Strategy{Spread, Pack}).Draw(t, "strategy")
		f := &fitting{Draft: l.Draft(strategy), node: "a"}
		k, dropped := l.kinds["c"], map[*device]bool{}
		open := func() []*device {
			var all []*device
			for i := range l.devices {
				if d := l.devices[i]; d.reaches("a") && f.nfree(d) > 0 {
					all = append(all, d)
				}
			}
			return all
		}
		first := func() *device {
			var best *device
			for _, d := range open() {
				if dropped[d] {
					continue
				}
				n := 0
				if best != nil {
					n = f.nfree(d) - f.nfree(best)
				}
				if strategy == Pack {
					n = -n
				}
				if best == nil || n > 0 || n == 0 && d.name < best.name {
					best = d
				}
			}
			return best
		}
		takeOne := func(t *rapid.T) {
			names := map[string]*device{}
			for _, d := range open() {
				names[d.name] = d
			}
			d := names[pickKey(t, names)]
			f.take(&need{ResourceRequest: ResourceRequest{Name: d.name}, kind: k}, d)
			delete(dropped, d)
		}
		for range rapid.IntRange(0, 4).Draw(t, "taken before") {
			if len(open()) > 0 {
				takeOne(t)
			}
		}
		q := f.queue(k)
		t.Repeat(map[string]func(*rapid.T){
			"take": takeOne,
			"take from the top": func(t *rapid.T) {
				if d := q.top(); d != nil {
					f.take(&need{ResourceRequest: ResourceRequest{Name: "c"}, kind: k}, d)
				}
			},
			"drop": func(*rapid.T) {
				if d := q.top(); d != nil {
					q.drop()
					dropped[d] = true
				}
			},
			"enter again": func(t *rapid.T) {
				for d := range dropped {
					q.enter(d)
				}
				clear(dropped)
			},
			"": func(t *rapid.T) {
				if got, want := q.top(), first(); got != want {
					t.Fatalf("on top is %v, want %v", got, want)
				}
			},
		})
	})
}
