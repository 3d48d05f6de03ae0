package v1alpha1

import (
	"slices"
	"testing"
	"time"
)

// Which of several devices of one name has it, in whatever order they come.
func TestContender(t *testing.T) {
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	for name, test := range map[string]struct{ first, second Contender }{
		"most nodes share it, though it is younger": {
			Contender{Shared: true, Nodes: 3, Created: at(2), Slice: "b"},
			Contender{Shared: true, Nodes: 2, Created: at(1), Slice: "a"}},
		"several nodes share it, and the other is local": {
			Contender{Shared: true, Nodes: 2, Created: at(2), Slice: "b"},
			Contender{Nodes: 1, Created: at(1), Slice: "a"}},
		"local, and one node alone reports the shared one": {
			Contender{Nodes: 1, Created: at(2), Slice: "b"},
			Contender{Shared: true, Nodes: 1, Created: at(1), Slice: "a"}},
		"both local, in an older slice": {
			Contender{Nodes: 1, Created: at(1), Slice: "b"},
			Contender{Nodes: 1, Created: at(2), Slice: "a"}},
		"as many nodes share both, in an older slice": {
			Contender{Shared: true, Nodes: 2, Created: at(1), Slice: "b"},
			Contender{Shared: true, Nodes: 2, Created: at(2), Slice: "a"}},
		"slices of one age, by name": {
			Contender{Nodes: 1, Created: at(1), Slice: "a", Index: 9},
			Contender{Nodes: 1, Created: at(1), Slice: "b"}},
		"in one slice, the one listed first": {
			Contender{Shared: true, Nodes: 2, Created: at(1), Slice: "a"},
			Contender{Shared: true, Nodes: 2, Created: at(1), Slice: "a", Index: 1}},
	} {
		for _, order := range [][]Contender{{test.first, test.second}, {test.second, test.first}} {
			if got := slices.MinFunc(order, Contender.Compare); got != test.first {
				t.Errorf("%s: of %+v it is %+v", name, order, got)
			}
		}
	}
}
