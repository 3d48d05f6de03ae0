package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Event is what a watch has shown: an object of one of four kinds. The other fields
// are nil.
type Event struct {
	Type          watch.EventType // Added, Modified or Deleted
	Pod           *v1.Pod
	Configuration *akriv0.Configuration
	Slice         *v1alpha1.DeviceSlice
	Claim         *v1alpha1.SlotClaim
	// Seen is when the watch has shown it; Check does not look at it.
	Seen time.Time
}

// newEvent returns an event without an object when shown is of another kind.
func newEvent(kind watch.EventType, shown runtime.Object) Event {
	e := Event{Type: kind}
	switch object := shown.(type) {
	case *v1.Pod:
		e.Pod = object
	case *akriv0.Configuration:
		e.Configuration = object
	case *v1alpha1.DeviceSlice:
		e.Slice = object
	case *v1alpha1.SlotClaim:
		e.Claim = object
	}
	return e
}

// object returns nil for an event without an object.
func (e Event) object() metav1.Object {
	switch {
	case e.Pod != nil:
		return e.Pod
	case e.Configuration != nil:
		return e.Configuration
	case e.Slice != nil:
		return e.Slice
	case e.Claim != nil:
		return e.Claim
	}
	return nil
}

// Revision orders the events of one API server's storage, whatever their kind. It
// is 0 for an event without a readable resource version.
func (e Event) Revision() uint64 {
	if object := e.object(); object != nil {
		return revision(object.GetResourceVersion())
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
	// Bound pods that were given slots, claims created, slots that two pods were
	// bound with for a while, and bound pods that a scheduler made go for another.
	Bound, Claims, Doubles, Preempted int
	Violations                        []string
}

// Check replays a complete history: from before the first pod that asks for slots,
// to a moment of rest. The events may come in any order; they are sorted. Claims
// count only where the history has their Configuration: SlotClaims are the whole
// cluster's.
func Check(events []Event, rules Rules) Report {
	r := &replay{rules: rules, pods: map[string]*pod{}, claims: map[slot.Name]claim{},
		holders: map[slot.Name][]*pod{}, capacity: map[string]int{}, reported: map[string]bool{}}
	sorted := slices.Clone(events)
	slices.SortStableFunc(sorted, func(a, b Event) int { return cmp.Compare(a.Revision(), b.Revision()) })
	for _, e := range sorted {
		if e.Configuration != nil {
			r.capacity[e.Configuration.Name] = 0
		}
	}
	for _, e := range sorted {
		switch r.at = e.Revision(); {
		case r.at == 0:
			r.violated("an event without resource version: the history is not complete")
		case e.Pod != nil:
			r.pod(e.Type, e.Pod)
		case e.Configuration != nil:
			r.configuration(e.Configuration)
		case e.Slice != nil:
			r.slice(e.Slice)
		default:
			r.claim(e.Type, e.Claim)
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
		if c := r.claims[name]; !slices.ContainsFunc(r.holders[name], func(p *pod) bool { return p.made(name, c) }) {
			r.violated("in the end slot %s is leaked: claimed %s, and held by %v", name, c, r.holders[name])
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(r.pods)) {
		p := r.pods[uid]
		if !p.live {
			continue
		}
		for _, name := range slices.SortedFunc(maps.Keys(p.running()), compare) {
			if c, claimed := r.claims[name]; !claimed {
				r.violated("in the end pod %s runs with slot %s, which is not claimed", p, name)
			} else if !p.made(name, c) {
				r.violated("in the end pod %s runs with slot %s, which is claimed %s", p, name, c)
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
