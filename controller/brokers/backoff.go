package brokers

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/controller/naming"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

const (
	// firstDelay is between a broker's first failure on a node and its successor, and how long a
	// successor is left as it is for other properties. It doubles with each further failure, or
	// replacement for properties: 9 pods end within the first 10 minutes.
	firstDelay = time.Second
	maxDelay   = 5 * time.Minute
	// runsWell is how long a broker has to run for its earlier failures to be forgotten.
	runsWell = 10 * time.Minute
	// mostFailures is how many are counted: the delay has long been the longest.
	mostFailures = 1000
	// changesUnsaid is after how many replacements in a row no problem is said yet.
	changesUnsaid = 3
	// maxRefusedDelay is between two tries to create what the API server refuses.
	maxRefusedDelay = time.Minute
)

// delay is how long to wait after so many failures in a row.
func delay(failures int, most time.Duration) time.Duration {
	d := firstDelay
	for ; failures > 1 && d < most; failures-- {
		d *= 2
	}
	return min(d, most)
}

// failuresBefore is how many predecessors of a broker pod failed in a row.
func failuresBefore(p *corev1.Pod) int {
	n, err := strconv.Atoi(p.Annotations[naming.Failures])
	if err != nil || n < 0 || n > mostFailures { // none, or edited by hand
		return 0
	}
	return n
}

// noted is what an Instance says of nodes whose broker has been removed: until there is a
// successor, which says it itself.
type noted struct {
	Spec     string         `json:"spec"` // hash
	Failures map[string]int `json:"failures"`
}

// notedFailures reads what an Instance says of a spec's brokers; nil is nothing.
func notedFailures(i *akriv0.Instance, spec string) map[string]int {
	var n noted
	if text := i.Annotations[naming.Failures]; text == "" || json.Unmarshal([]byte(text), &n) != nil || n.Spec != spec {
		return nil // of another spec, or edited by hand
	}
	maps.DeleteFunc(n.Failures, func(_ string, n int) bool { return n < 0 || n > mostFailures })
	return n.Failures
}

func (n noted) text() string {
	text, _ := json.Marshal(n) // keys are sorted; it always marshals
	return string(text)
}

// mayReplace reports whether a broker may be replaced now, because its device has other
// properties, and the failures that its successor is to count. A device may change them all the
// time, so a replacement counts as a failure: the first is at once, and the successor is not
// replaced before it was there for its delay.
func (p *plan) mayReplace(f *facts, pod *corev1.Pod) (failures int, may bool) {
	before, was := failuresBefore(pod), f.now.Sub(p.memory.pods[pod.UID].since)
	if wait := delay(before, maxDelay) - was; before > 0 && wait > 0 {
		if before > changesUnsaid {
			p.problem = &Problem{ChangingProperties, "the device has other properties again, soon after its broker was replaced or failed: it is replaced for them after a delay that doubles each time, up to " + maxDelay.String()}
		}
		p.lookAgain(wait)
		return 0, false
	}
	if was >= runsWell {
		return 1, true
	}
	return min(before+1, mostFailures), true
}

// failures is how many brokers have failed in a row, with this one if it has ended. It ran well if its
// node says so, and it was there for so long by this process's clock: a node's may jump.
func (k known) failures(p *corev1.Pod, now time.Time) int {
	failures, until := failuresBefore(p), now
	if isEnded(p) {
		until = k.ended
	}
	if ranFor(p, now) >= runsWell && until.Sub(k.since) >= runsWell {
		failures = 0
	}
	if isEnded(p) {
		failures = min(failures+1, mostFailures)
	}
	return failures
}

// ranFor is how long a pod's longest container ran, or has run by now, by its node's clock.
func ranFor(p *corev1.Pod, now time.Time) time.Duration {
	var longest time.Duration
	for _, s := range p.Status.ContainerStatuses {
		if t := s.State.Terminated; t != nil && !t.StartedAt.IsZero() {
			longest = max(longest, t.FinishedAt.Sub(t.StartedAt.Time))
		}
		if runs := s.State.Running; runs != nil && !runs.StartedAt.IsZero() {
			longest = max(longest, now.Sub(runs.StartedAt.Time))
		}
	}
	return longest
}

// endedAt is when a pod ended: when its last container did, or when it was not
// admitted on its node. Times in the API are cut to seconds, and nodes' clocks may be
// wrong: it is the end of that second, neither before the pod was created nor after it
// was seen first.
func endedAt(p *corev1.Pod, seen time.Time) time.Time {
	at := p.CreationTimestamp.Time
	if p.Status.StartTime != nil && p.Status.StartTime.After(at) {
		at = p.Status.StartTime.Time
	}
	for _, s := range p.Status.ContainerStatuses {
		if t := s.State.Terminated; t != nil && t.FinishedAt.After(at) {
			at = t.FinishedAt.Time
		}
	}
	if at = at.Add(time.Second); at.After(seen) {
		return seen
	}
	return at
}

// whyEnded says in a few words why a pod ended.
func whyEnded(p *corev1.Pod) string {
	if why := whichEnded(p); why != "" {
		return why
	}
	if p.Status.Reason != "" || p.Status.Message != "" {
		return fmt.Sprintf("%s: %s", p.Status.Reason, p.Status.Message)
	}
	return "its phase is " + string(p.Status.Phase)
}
