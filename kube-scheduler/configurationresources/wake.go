package configurationresources

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/types/slot"
)

// gained is what the ledger has gained of one resource.
type gained struct {
	free bool
	// held are slots for which pods can preempt, see ledger.Event.
	held slots
}

type slots map[slot.Name]bool

// with has the others' as well, in the same map if there is one.
func (s slots) with(others slots) slots {
	if s == nil {
		s = slots{}
	}
	maps.Copy(s, others)
	return s
}

// gains sorts a gain by resource. The caller holds mu.
func (b *book) gains(event ledger.Event) map[string]*gained {
	by := make(map[string]*gained, len(event.Freed))
	of := func(resource string) *gained {
		if by[resource] == nil {
			by[resource] = &gained{}
		}
		return by[resource]
	}
	for _, resource := range event.Freed {
		of(resource).free = true
	}
	for _, s := range event.Preemptible {
		for _, resource := range b.ledger.Resources(s.Instance) {
			g := of(resource)
			if g.held == nil {
				g.held = slots{}
			}
			g.held[s] = true
		}
	}
	return by
}

// wake has the pods tried that what was gained may help. For free slots these are as
// many as there are slots, those of the highest priority and then the oldest first, and
// the rest only while slots stay free: one freed slot must not send a thousand waiting
// pods through the scheduler. Nor must one that can be preempted for: then pods are tried
// while it can. While many wait, the gains within a round are put together into the next
// one: choosing whom to try takes 10 ms of 10,000 waiting pods, and thousands of devices
// may come at once. The caller holds mu.
func (b *book) wake(event ledger.Event) {
	if b.starting || event.Empty() {
		return
	}
	b.wakeDisplaced(event.Displaced)
	b.untold(event.Preemptible)
	by := b.gains(event)
	for _, resource := range slices.Sorted(maps.Keys(by)) {
		g := by[resource]
		r, waiting := b.rounds[resource], len(b.waiting[resource])
		switch {
		case waiting == 0:
		case waiting <= b.atOnce:
			b.try(resource, g, b.helped(resource, g))
		case r == nil: // be it of no pods: many gains together take one look for them
			b.begin(resource, &round{pods: b.helped(resource, g), size: b.atOnce, gained: *g})
		case r.since == nil:
			r.since = g
		default:
			r.since.free, r.since.held = r.since.free || g.free, r.since.held.with(g.held)
		}
	}
}

// untold has all that wait told if a pod gives one of the slots back that it is only
// assumed to have, or that are kept for it, or if it takes what is kept. Those that are too
// unimportant to preempt it are not told of the gain, or that cannot have the slot yet: it
// is as if they had been refused. The caller holds mu.
func (b *book) untold(held []slot.Name) {
	for _, s := range held {
		for _, uid := range b.ledger.AssumedOrNominated(s) {
			if _, assumed := b.assumed[uid]; assumed {
				b.assumed[uid] = 0
			}
			if d := b.deadlines[uid]; d != nil {
				d.tries = 0
			}
		}
	}
}

// wakeThose is wake for some of the waiting pods, and at once. The caller holds mu.
func (b *book) wakeThose(event ledger.Event, wanted func(*v1.Pod) bool) {
	if b.starting || event.Empty() {
		return
	}
	by := b.gains(event)
	for _, resource := range slices.Sorted(maps.Keys(by)) {
		g := by[resource]
		b.try(resource, g, slices.DeleteFunc(b.helped(resource, g), func(pod *v1.Pod) bool { return !wanted(pod) }))
	}
}

// tookKept has those tried that are more important than a pod which has taken what was
// kept for it, and that were refused meanwhile: they can preempt it. The caller holds mu.
func (b *book) tookKept(uid string, a ledger.Assignment) {
	if d := b.deadlines[uid]; d != nil {
		b.wakeThose(ledger.Event{Preemptible: a.Slots()}, func(waiting *v1.Pod) bool { return b.refusedSince(d.tries, waiting) })
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
// things are, and drops those slots that nobody can. The caller holds mu.
func (b *book) preempts(held slots) func(*v1.Pod) bool {
	lowest, some := int32(0), false
	for s := range held {
		least, ok := b.ledger.MinPreemptorPriority(s)
		if !ok {
			delete(held, s) // its holder's end, or the like, will be a gain
		} else if !some || least < lowest {
			lowest, some = least, true
		}
	}
	return func(pod *v1.Pod) bool {
		never := pod.Spec.PreemptionPolicy != nil && *pod.Spec.PreemptionPolicy == v1.PreemptNever
		return some && !never && corev1helpers.PodPriority(pod) >= lowest
	}
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
