package v1alpha1

import "testing"

// That nodes lack a handler is a problem where none has it, or each should.
func TestLacksHandler(t *testing.T) {
	for name, tc := range map[string]struct {
		without, reporting int
		onEach, problem    bool
	}{
		"no node reports":         {},
		"all have it":             {reporting: 2},
		"none has it":             {without: 2, reporting: 2, problem: true},
		"one has it":              {without: 1, reporting: 2},
		"one that is to have it":  {without: 1, reporting: 2, onEach: true, problem: true},
		"all that are to have it": {reporting: 2, onEach: true},
	} {
		if problem := LacksHandler(tc.without, tc.reporting, tc.onEach); problem != tc.problem {
			t.Errorf("%s: a problem: %v; want %v", name, problem, tc.problem)
		}
	}
}
