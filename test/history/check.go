package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Event is what a watch has shown: a Pod or an Instance.
type Event struct {
	Type     watch.EventType // Added, Modified or Deleted
	Pod      *v1.Pod
	Instance *akriv0.Instance
	// Seen is when the watch has shown it; Check does not look at it.
	Seen time.Time
}

// Revision orders the events of one API server's storage, whatever their kind. It
// is 0 for an event without a readable resource version.
func (e Event) Revision() uint64 {
	switch {
	case e.Pod != nil:
		return revision(e.Pod.ResourceVersion)
	case e.Instance != nil:
		return revision(e.Instance.ResourceVersion)
	}
	return 0
}

func revision(resourceVersion string) uint64 {
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Rules say what is allowed in a history.
type Rules struct {
	// Doubles allows that two pods are bound with one slot for a while, as several
	// schedulers at once, or a late bind of a former leader, can cause. Even then
	// only one of them may have it claimed, and by the end one of them is gone.
	Doubles bool
}

// Report is what a history has shown.
type Report struct {
	// Bound pods that were given slots, claims written, slots that two pods were
	// bound with for a while, and bound pods that a scheduler made go for another.
	Bound, Claims, Doubles, Preempted int
	Violations                        []string
}

// Check replays a complete history: from before the first pod that asks for slots,
// to a moment of rest. The events may come in any order; they are sorted.
func Check(events []Event, rules Rules) Report {
	r := &replay{rules: rules, pods: map[string]*pod{}, claims: map[slot.Name]string{},
		holders: map[slot.Name][]*pod{}, existed: map[slot.Name]bool{}}
	sorted := slices.Clone(events)
	slices.SortStableFunc(sorted, func(a, b Event) int { return cmp.Compare(a.Revision(), b.Revision()) })
	for _, e := range sorted {
		switch r.at = e.Revision(); {
		case r.at == 0:
			r.violated("an event without resource version: the history is not complete")
		case e.Pod != nil:
			r.pod(e.Type, e.Pod)
		default:
			r.instance(e.Type, e.Instance)
		}
	}
	r.atRest()
	return r.report
}

// atRest checks the end: what is held is claimed by its holder, and nothing else is.
func (r *replay) atRest() {
	for _, name := range slices.SortedFunc(maps.Keys(r.holders), compare) {
		if holders := r.holders[name]; len(holders) > 1 {
			r.violated("in the end slot %s still has several holders: %v", name, holders)
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(r.claims), compare) {
		if value := r.claims[name]; value != "" && !slices.ContainsFunc(r.holders[name], func(p *pod) bool { return p.claim(name) == value }) {
			r.violated("in the end slot %s is leaked: claimed as %q, and held by %v", name, value, r.holders[name])
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(r.pods)) {
		p := r.pods[uid]
		for name := range p.running() {
			if p.live && r.claims[name] != p.claim(name) {
				r.violated("in the end pod %s runs with slot %s, which is claimed as %q", p, name, r.claims[name])
			}
		}
	}
}

func compare(a, b slot.Name) int {
	return cmp.Or(cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.Index, b.Index))
}

func (r *replay) violated(format string, args ...any) {
	r.report.Violations = append(r.report.Violations, fmt.Sprintf("revision %d: ", r.at)+fmt.Sprintf(format, args...))
}
