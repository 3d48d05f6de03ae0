package limits

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// account is what one Configuration has, and who waits. The Keeper's lock guards it.
type account struct {
	namespace string
	limit     Limit
	places    map[string]Places // by Instance's name
	onNode    map[string]int
	used      int
	waiting   []*waiter          // the oldest first
	waiters   map[string]*waiter // by Instance's name
	// changed is set when there may be room that nobody waiting was offered, and next is who is offered it next when
	// serve was not done with that.
	changed bool
	next    *waiter
}

// waiter is an Instance that is to have more than there is room for.
type waiter struct {
	instance string
	since    time.Time
	withheld int
	need     int      // places that it takes at once
	byTotal  bool     // whichever the node
	nodes    []string // that were full
	among    bool     // on any of the nodes, which were full together
	// called is set while room is kept for it, on the node.
	called bool
	node   string
}

func older(a, b *waiter) int {
	return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.instance, b.instance))
}

func newAccount(namespace string, existing map[string]Places) *account {
	a := &account{namespace: namespace, places: map[string]Places{}, onNode: map[string]int{}, waiters: map[string]*waiter{}}
	for instance, places := range existing {
		a.set(instance, places)
	}
	return a
}

func (a *account) add(node string, n int) {
	a.used += n
	if a.onNode[node] += n; a.onNode[node] == 0 {
		delete(a.onNode, node)
	}
}

// set replaces what an Instance has.
func (a *account) set(instance string, places Places) {
	for node, n := range a.places[instance] {
		a.add(node, -n)
	}
	for node, n := range places {
		a.add(node, n)
	}
	if a.places[instance] = places; len(places) == 0 {
		delete(a.places, instance)
	}
}

func (a *account) hasRoomOn(node string, n int) bool {
	return a.used+n <= a.limit.Total && (node == "" || a.onNode[node]+n <= a.limit.PerNode)
}

// hasRoomAmong reports whether there is room for n that may be on any of the nodes.
func (a *account) hasRoomAmong(nodes []string, n int) bool {
	if len(nodes) == 1 {
		return a.hasRoomOn(nodes[0], n)
	}
	places, taken := a.limit.PerNode*max(len(nodes), 1), a.onNode[""]+n
	if a.used+n > a.limit.Total || taken > places {
		return false
	}
	if places >= a.limit.Total { // so that no more than Limit.Total/Limit.PerNode are looked at
		return true
	}
	for _, node := range nodes {
		taken += a.onNode[node]
	}
	return taken <= places
}

// decide returns whether more or less is withheld than before.
func (a *account) decide(i Instance, decide func(*Room)) bool {
	name := i.Key.Name
	before := a.stopWaiting(name)
	had := union(a.places[name], i.Exists)
	a.set(name, had)
	r := &Room{account: a, had: union(had, nil), taken: union(i.Exists, nil)}
	decide(r)
	a.places[name] = r.had // as it was counted
	a.set(name, r.taken)
	for node, n := range r.had {
		a.changed = a.changed || r.taken[node] < n
	}
	if r.blocked.withheld == 0 {
		return before != nil
	}
	w := r.blocked
	w.instance, w.since = name, i.Since
	if before != nil && before.since.Before(w.since) {
		w.since = before.since
	}
	at, _ := slices.BinarySearchFunc(a.waiting, &w, older)
	a.waiting = slices.Insert(a.waiting, at, &w)
	a.waiters[name] = &w
	return before == nil || before.withheld != w.withheld
}

// stopWaiting takes an Instance out of those that wait, and gives back the room that is
// kept for it.
func (a *account) stopWaiting(instance string) *waiter {
	w := a.waiters[instance]
	if w == nil {
		return nil
	}
	delete(a.waiters, instance)
	if at, found := slices.BinarySearchFunc(a.waiting, w, older); found {
		a.waiting = slices.Delete(a.waiting, at, at+1)
	}
	if w.called {
		a.add(w.node, -w.need)
		a.changed = true
	}
	return w
}

// maxLooks is about how many nodes serve looks at: thousands may wait, for thousands of nodes each. Tests lower it.
var maxLooks = 100_000

// serve keeps room, if there is any, for those that have waited longest, and returns them. It returns the one that it
// did not come to, too, which has no room kept: serve goes on when something is decided about it.
func (a *account) serve() (woken []types.NamespacedName) {
	for looks := 0; a.changed || a.next != nil; {
		if a.next == nil {
			a.changed, a.next = false, &waiter{} // the oldest of all
		}
		from, _ := slices.BinarySearchFunc(a.waiting, a.next, older)
		a.next = nil
		for _, w := range a.waiting[from:] {
			if a.used >= a.limit.Total {
				break
			}
			key := types.NamespacedName{Namespace: a.namespace, Name: w.instance}
			if looks >= maxLooks {
				a.next = w
				return append(woken, key)
			}
			if looks += 1 + len(w.nodes); w.called || !a.call(w) {
				continue
			}
			a.add(w.node, w.need)
			woken = append(woken, key)
		}
	}
	return woken
}

// call finds room for one that waits, on its nodes that were full.
func (a *account) call(w *waiter) bool {
	if w.byTotal && a.hasRoomOn("", w.need) {
		w.called, w.node = true, ""
		return true
	}
	if w.among {
		w.called = a.hasRoomAmong(w.nodes, w.need)
		return w.called
	}
	for _, node := range w.nodes {
		if a.hasRoomOn(node, w.need) {
			w.called, w.node = true, node
			return true
		}
	}
	return false
}

func (a *account) sum() Sum {
	s := Sum{Used: a.used}
	for _, w := range a.waiting {
		s.Withheld += w.withheld
		s.TotalReached = s.TotalReached || w.byTotal
		if w.called {
			s.Used -= w.need // nothing is made of it yet
		}
	}
	for node, n := range a.onNode {
		if node == "" || n < a.limit.PerNode {
			continue
		}
		if s.FullNodes++; s.FirstFull == "" || node < s.FirstFull {
			s.FirstFull = node
		}
	}
	for _, w := range a.waiting {
		if s.FullNodes == 0 && s.NodesWithoutRoom == 0 {
			s.NodesWithoutRoom = len(w.nodes)
		}
	}
	return s
}
