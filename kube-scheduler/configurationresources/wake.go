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
	"github.com/kubeslot/kubeslot/types/slot"
)

const (
	// firstWoken is how many pods are tried at once when fewer slots are free.
	firstWoken = 16
	// roundInterval is the time that they have to take what is free, before
	// twice as many are tried. All of 10,000 are tried within a second.
	roundInterval = 100 * time.Millisecond
)

// gained is what the ledger has gained of one resource.
type gained struct {
	free bool
	// held are slots for which pods can preempt, see ledger.Gain.
	held []slot.Name
}

// gains sorts a gain by resource. The caller holds mu.
func (b *book) gains(gain ledger.Gain) map[string]*gained {
	by := make(map[string]*gained, len(gain.Free))
	of := func(resource string) *gained {
		if by[resource] == nil {
			by[resource] = &gained{}
		}
		return by[resource]
	}
	for _, resource := range gain.Free {
		of(resource).free = true
	}
	for _, s := range gain.Held {
		for _, resource := range b.ledger.Resources(s.Instance) {
			g := of(resource)
			g.held = append(g.held, s)
		}
	}
	return by
}

// round is the pods that wait for a resource and have not been tried since the
// ledger last gained some of it, the first to try first.
type round struct {
	pods []*v1.Pod
	size int
	// held are slots for which pods are tried that can preempt, even if nothing is free.
	held []slot.Name
	// since is what the ledger has gained since the round began: another is to follow
	// when the pods that were woken have had their time, which is due.
	since *gained
	due   time.Time
}

// wake has the pods tried that what was gained may help. For free slots these are as
// many as there are slots, those of the highest priority and then the oldest first, and
// the rest only while slots stay free: one freed slot must not send a thousand waiting
// pods through the scheduler. Nor must one that can be preempted for: then pods are tried
// while it can. While many wait, the gains within a round are put together into the next
// one: choosing whom to try takes 10 ms of 10,000 waiting pods, and thousands of Instances
// may come at once. The caller holds mu.
func (b *book) wake(gain ledger.Gain) {
	if b.starting || gain.Empty() {
		return
	}
	b.wakeDisplaced(gain.Displaced)
	by := b.gains(gain)
	for _, resource := range slices.Sorted(maps.Keys(by)) {
		g := by[resource]
		if r := b.rounds[resource]; r == nil || len(b.waiting[resource]) <= b.atOnce {
			b.try(resource, g.held, b.helped(resource, g))
		} else if r.since == nil {
			r.since = g
		} else {
			r.since.free = r.since.free || g.free
			r.since.held = append(r.since.held, g.held...)
		}
	}
}

// wakeThose is wake for some of the waiting pods, and at once. The caller holds mu.
func (b *book) wakeThose(gain ledger.Gain, wanted func(*v1.Pod) bool) {
	if b.starting || gain.Empty() {
		return
	}
	by := b.gains(gain)
	for _, resource := range slices.Sorted(maps.Keys(by)) {
		g := by[resource]
		b.try(resource, g.held, slices.DeleteFunc(b.helped(resource, g), func(pod *v1.Pod) bool { return !wanted(pod) }))
	}
}

// wakeDisplaced has pods tried for which slots are kept no longer. The caller holds mu.
func (b *book) wakeDisplaced(uids []string) {
	pods := map[string]*v1.Pod{}
	for _, uid := range uids {
		for _, waiting := range b.waiting {
			if pod := waiting[uid]; pod != nil {
				pods[uid] = pod
				break
			}
		}
	}
	if len(pods) > 0 {
		b.activator.Activate(b.logger, pods)
	}
}

// helped are the waiting pods that what was gained may help. The caller holds mu.
func (b *book) helped(resource string, g *gained) []*v1.Pod {
	pods := make([]*v1.Pod, 0, len(b.waiting[resource]))
	preempts := b.preempts(g.held)
	for _, pod := range b.waiting[resource] {
		if g.free || preempts(pod) {
			pods = append(pods, pod)
		}
	}
	return pods
}

// preempts tells which pods are important enough to preempt for one of the slots, as
// things are. The caller holds mu.
func (b *book) preempts(held []slot.Name) func(*v1.Pod) bool {
	lowest, some := int32(0), false
	for _, s := range held {
		if price, ok := b.ledger.Price(s); ok && (!some || price < lowest) {
			lowest, some = price, true
		}
	}
	return func(pod *v1.Pod) bool {
		never := pod.Spec.PreemptionPolicy != nil && *pod.Spec.PreemptionPolicy == v1.PreemptNever
		return some && !never && corev1helpers.PodPriority(pod) > lowest
	}
}

// try begins a round of the pods and of those that the round under way has not come to.
// The caller holds mu.
func (b *book) try(resource string, held []slot.Name, pods []*v1.Pod) {
	if len(pods) == 0 {
		return
	}
	r := &round{pods: pods, size: b.atOnce, held: held}
	if before := b.rounds[resource]; before != nil {
		r.pods, r.held, r.since = union(pods, before.pods), append(before.held, held...), before.since
		r.due = before.due // or pods that fail one after the other would put the rest off for ever
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
	r.size = max(r.size, b.ledger.Free(resource))
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
		if b.ledger.Free(resource) == 0 {
			b.missOut(resource, r)
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

// missOut leaves to the round, since others took what was free, only the pods that can
// preempt. The others are refused by that, and are to be tried if those give it back. The
// caller holds mu.
func (b *book) missOut(resource string, r *round) {
	preempts := b.preempts(r.held)
	r.pods = slices.DeleteFunc(r.pods, func(pod *v1.Pod) bool {
		if preempts(pod) {
			return false
		}
		uid := string(pod.UID)
		if _, assumed := b.assumed[uid]; !assumed && b.waiting[resource][uid] != nil {
			b.tried[uid] = math.MaxUint64 // until it is tried
		}
		return true
	})
}

// took tells the rounds under way that a pod has taken slots, which were free: the pods
// that they have not come to, and that are more important, can preempt it. The caller
// holds mu.
func (b *book) took(pod ledger.Pod, a ledger.Assignment) {
	if len(b.rounds) == 0 || b.ledger.Nominated(pod.UID) != "" { // these were kept for it
		return
	}
	for _, grants := range a {
		for _, g := range grants {
			for _, resource := range b.ledger.Resources(g.Slot.Instance) {
				r := b.rounds[resource]
				if r == nil {
					continue
				}
				r.held = append(r.held, g.Slot)
				if r.since != nil && r.since.free { // it may have taken that
					r.since.held = append(r.since.held, g.Slot)
				}
			}
		}
	}
}

// beginAgain begins a round for what the ledger has gained during another, in place
// of that. While gains follow each other so closely that no round ends, the rounds grow
// until all pods have been tried: what stays free may be of use to the last of them
// only. The caller holds mu.
func (b *book) beginAgain(resource string, before *round) {
	r := &round{pods: union(b.helped(resource, before.since), before.pods), size: b.atOnce, held: before.since.held}
	if len(before.pods) > 0 {
		r.held = append(before.held, r.held...)
		r.size = before.size
	}
	b.begin(resource, r)
}

// attendInterval is the time between two attempts of attend.
const attendInterval = time.Second

// attend has a nominated pod tried each second while all that is kept for it is
// free. Once would do, but for DefaultPreemption: until its API calls have returned
// it keeps the pod out of the queue, and forgets that somebody wanted it in. The
// caller holds mu.
func (b *book) attend(pod *v1.Pod) {
	uid := string(pod.UID)
	if b.attended[uid] || !b.ledger.Ready(uid) {
		return
	}
	b.attended[uid] = true
	time.AfterFunc(attendInterval, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.attended, uid)
		if b.ledger.Ready(uid) {
			b.activator.Activate(b.logger, map[string]*v1.Pod{uid: pod})
			b.attend(pod)
		}
	})
}
