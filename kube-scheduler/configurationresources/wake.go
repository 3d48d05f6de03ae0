package configurationresources

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
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
	// again: the ledger has gained more since, and a new round is to follow.
	again bool
}

// wake has the pods tried that ask for something gained: as many as there are
// slots free, those of the highest priority and then the oldest first, and the
// rest only while slots stay free. One freed slot must not send a thousand
// waiting pods through the scheduler. While many wait, the gains within a round are
// put together into the next one: choosing whom to try takes 10 ms of 10,000 waiting
// pods, and thousands of Instances may come at once. The caller holds mu.
func (b *book) wake(gain ledger.Gain) {
	now := slices.DeleteFunc(slices.Clone(gain), func(resource string) bool {
		r := b.rounds[resource]
		if r == nil || len(b.waiting[resource]) <= firstWoken {
			return false
		}
		r.again = true
		return true
	})
	b.wakeThose(now, func(*v1.Pod) bool { return true })
}

// wakeThose is wake for some of the waiting pods, beside those of the round that is
// under way. The caller holds mu.
func (b *book) wakeThose(gain ledger.Gain, wanted func(*v1.Pod) bool) {
	if len(gain) == 0 || b.starting {
		return
	}
	gain = slices.Clone(gain)
	slices.Sort(gain)
	for _, resource := range slices.Compact(gain) {
		pods := map[string]*v1.Pod{}
		for uid, pod := range b.waiting[resource] {
			if wanted(pod) {
				pods[uid] = pod
			}
		}
		if len(pods) == 0 {
			continue
		}
		r := &round{size: firstWoken}
		if before := b.rounds[resource]; before != nil {
			for _, pod := range before.pods {
				pods[string(pod.UID)] = pod
			}
			r.again = before.again
		}
		r.pods = slices.Collect(maps.Values(pods))
		b.begin(resource, r)
	}
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
	time.AfterFunc(roundInterval, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch {
		case b.rounds[resource] != r: // a later gain began anew
		case r.again: // even with nothing free: what is kept for a pod does not count
			b.beginAgain(resource, r)
		case len(r.pods) == 0 || b.ledger.Free(resource) == 0:
			delete(b.rounds, resource)
			b.missOut(r.pods)
		default:
			b.next(resource, r)
		}
	})
}

// missOut remembers the pods that a round did not come to, since others took what was
// free: they are refused by that, and are to be tried if those give it back. The
// caller holds mu.
func (b *book) missOut(pods []*v1.Pod) {
	for _, pod := range pods {
		uid := string(pod.UID)
		if _, waits := b.tried[uid]; waits {
			b.tried[uid] = math.MaxUint64 // until it is tried
		}
	}
}

// beginAgain begins a round of all waiting pods in place of one during which the
// ledger has gained more. While gains follow each other so closely that no round
// ends, the rounds grow until all pods have been tried: what stays free may be of
// use to the last of them only. The caller holds mu.
func (b *book) beginAgain(resource string, before *round) {
	r := &round{pods: slices.Collect(maps.Values(b.waiting[resource])), size: firstWoken}
	if len(before.pods) > 0 && b.ledger.Free(resource) > 0 {
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
