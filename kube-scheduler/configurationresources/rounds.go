package configurationresources

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
)

const (
	// firstWoken is how many pods are tried at once when fewer slots are free.
	firstWoken = 16
	// roundInterval is the time that they have to take what is free, before
	// twice as many are tried. All of 10,000 are tried within a second.
	roundInterval = 100 * time.Millisecond
)

// round is the pods that wait for a resource and have not been tried since the
// ledger last gained some of it, the first to try first.
type round struct {
	pods []*v1.Pod
	size int
	// gained is what the pods are tried for: what is free, and slots for which some can
	// preempt, even if nothing is free.
	gained
	// since is what the ledger has gained since the round began: another is to follow
	// when the pods that were woken have had their time, which is due.
	since *gained
	due   time.Time
}

// try begins a round of the pods and of those that the round under way has not come to.
// The caller holds mu.
func (b *book) try(resource string, g *gained, pods []*v1.Pod) {
	if len(pods) == 0 {
		return
	}
	r := &round{pods: pods, size: b.atOnce, gained: *g}
	if before := b.rounds[resource]; before != nil {
		r.pods, r.free, r.held = union(pods, before.pods), g.free || before.free, before.held.with(g.held)
		// Pods that fail one after the other would else put the rest off for ever.
		r.size, r.since, r.due = max(b.atOnce, before.size/2), before.since, before.due
	}
	b.begin(resource, r)
}

// union has each pod once.
func union(a, b []*v1.Pod) []*v1.Pod {
	pods := make(map[types.UID]*v1.Pod, len(a)+len(b))
	for _, some := range [][]*v1.Pod{a, b} {
		for _, pod := range some {
			pods[pod.UID] = pod
		}
	}
	return slices.Collect(maps.Values(pods))
}

// begin starts a round of at least its size. The caller holds mu.
func (b *book) begin(resource string, r *round) {
	if r.free {
		r.size = max(r.size, b.ledger.Free(resource))
	}
	slices.SortFunc(r.pods, b.firstToTry)
	for _, pod := range r.pods {
		if b.ledger.Nominated(string(pod.UID)) == "" {
			break
		}
		b.attend(pod)
	}
	b.rounds[resource] = r
	b.next(resource, r)
}

// firstToTry orders waiting pods: those for which slots are kept, then by
// priority, then the oldest.
func (b *book) firstToTry(x, y *v1.Pod) int {
	nominated := func(p *v1.Pod) int {
		if b.ledger.Nominated(string(p.UID)) != "" {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(nominated(x), nominated(y)),
		cmp.Compare(corev1helpers.PodPriority(y), corev1helpers.PodPriority(x)),
		x.CreationTimestamp.Compare(y.CreationTimestamp.Time), cmp.Compare(x.UID, y.UID))
}

// next tries a round's next pods, and comes back for the others. The caller
// holds mu.
func (b *book) next(resource string, r *round) {
	n := min(r.size, len(r.pods))
	pods := make(map[string]*v1.Pod, n)
	for _, pod := range r.pods[:n] {
		pods[string(pod.UID)] = pod
	}
	b.activator.Activate(b.logger, pods)
	r.pods, r.size = r.pods[n:], 2*r.size
	if r.due.IsZero() {
		r.due = time.Now().Add(roundInterval)
	}
	time.AfterFunc(time.Until(r.due), func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.rounds[resource] != r {
			return // another has begun, with what this one left
		}
		r.due = time.Time{}
		if r.free = r.free && b.ledger.Free(resource) > 0; !r.free {
			b.missOut(r)
		}
		switch {
		case r.since != nil: // even with nothing free: what is kept for a pod does not count
			b.beginAgain(resource, r)
		case len(r.pods) == 0:
			delete(b.rounds, resource)
		default:
			b.next(resource, r)
		}
	})
}

// missOut leaves to the round, since others took what was free, or it is kept for them,
// only the pods that can preempt. The others are refused by that, and are to be tried if
// those give it back. The caller holds mu.
func (b *book) missOut(r *round) {
	preempts := b.preempts(r.held)
	r.pods = slices.DeleteFunc(r.pods, func(pod *v1.Pod) bool {
		if preempts(pod) {
			return false
		}
		if b.refusedSince(0, pod) {
			b.tried[string(pod.UID)] = math.MaxUint64 // until it is tried
		}
		return true
	})
}

// took tells the rounds under way that a pod has got slots, which were free, or that they
// are kept for it: pods that the rounds have not come to, and that are more important, can
// have them all the same. The caller holds mu.
func (b *book) took(a ledger.Assignment) {
	if len(b.rounds) == 0 {
		return
	}
	for _, s := range a.Slots() {
		for _, resource := range b.ledger.Resources(s.Instance) {
			r := b.rounds[resource]
			if r == nil {
				continue
			}
			r.held = r.held.with(slots{s: true})
			if r.since != nil && r.since.free { // it may have taken that
				r.since.held = r.since.held.with(slots{s: true})
			}
		}
	}
}

// beginAgain begins a round for what the ledger has gained during another, in place
// of that. While gains follow each other so closely that no round ends, the rounds grow
// until all pods have been tried: what stays free may be of use to the last of them
// only. The caller holds mu.
func (b *book) beginAgain(resource string, before *round) {
	r := &round{pods: union(b.helped(resource, before.since), before.pods), size: b.atOnce, gained: *before.since}
	if len(before.pods) > 0 {
		r.size, r.free, r.held = before.size, r.free || before.free, r.held.with(before.held)
	}
	b.begin(resource, r)
}
