package ledger

import (
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// What happens to pods in TestHistories.

// slots are those of a pod, and whether it has them for its Configuration.
func (s scheduled) slots() map[slot.Name]bool {
	slots := map[slot.Name]bool{}
	for _, grants := range s.a {
		for _, g := range grants {
			slots[g.Slot] = !g.InstanceLevel()
		}
	}
	return slots
}

// claimant is whom the pod's node claims its slots for.
func (s scheduled) claimant() string { return s.pod.UID + " on " + s.node }

func (w *world) newPod(t *rapid.T, name string) Pod {
	w.made++
	return Pod{UID: fmt.Sprint("p", w.made), Namespace: "ns", Name: name, Priority: drawPriority(t)}
}

// reserve chooses slots for a few pods.
func (w *world) reserve(t *rapid.T) {
	for range rapid.IntRange(1, 3).Draw(t, "pods") {
		w.reserveOne(t)
	}
}

// reserveOne chooses slots for a new pod, for one that slots are kept for, or for one
// that a scheduler which was killed may have bound.
func (w *world) reserveOne(t *rapid.T) {
	var pod Pod
	var req *Request
	switch which := rapid.IntRange(0, 3).Draw(t, "which"); {
	case which == 0 && len(w.wants) > 0:
		uid := pickKey(t, w.wants)
		req = w.wants[uid]
		pod = req.Pod
	case which == 1 && len(w.late) > 0:
		pod = w.late[pickKey(t, w.late)].pod
		req = drawRequest(t, pod)
	default:
		pod = w.newPod(t, "p")
		req = drawRequest(t, pod)
	}
	if _, chosen := w.assumed[pod.UID]; chosen {
		return
	}
	node := rapid.SampledFrom(worldNodes).Draw(t, "node")
	a, shortfall := w.Draft(w.strategy, pod).Fit(node, req)
	if shortfall != nil {
		if shortfall.String() == "" {
			t.Fatalf("no reason why %+v does not fit", req)
		}
		return
	}
	w.rules(node, req, nil).check(t, a)
	event, err := w.Assume(pod, node, a)
	if err != nil {
		t.Fatalf("the slots that Fit chose cannot be assumed: %v", err)
	}
	w.event.add(event)
	w.assumed[pod.UID] = scheduled{pod, node, a}
	if _, err := w.Assume(pod, node, a); err == nil {
		t.Fatalf("pod %s was given slots twice", pod.UID)
	}
}

// bind binds a pod as was assumed, if that is still right. A bind that was under way
// before is applied all the same.
func (w *world) bind(t *rapid.T) {
	uid := pickKey(t, w.assumed)
	if w.Check(uid) != nil && !rapid.Bool().Draw(t, "under way") {
		w.forget(uid)
		return
	}
	w.observe(t, w.assumed[uid])
}

func (w *world) bindFails(t *rapid.T) { w.forget(pickKey(t, w.assumed)) }

func (w *world) forget(uid string) {
	w.event.add(w.Forget(uid))
	delete(w.assumed, uid)
}

// boundOtherwise shows a pod bound with other slots than were assumed, or with none.
func (w *world) boundOtherwise(t *rapid.T) {
	uid := pickKey(t, w.assumed)
	w.foreign[uid] = true
	w.observe(t, scheduled{w.assumed[uid].pod, rapid.SampledFrom(worldNodes).Draw(t, "node"), w.drawForeign(t, 0)})
}

// anotherScheduler binds a pod with a slot of its own choice, which this one may have
// given to another pod, or have assumed for one.
func (w *world) anotherScheduler(t *rapid.T) {
	pod := w.newPod(t, "foreign")
	w.foreign[pod.UID] = true
	w.observe(t, scheduled{pod, rapid.SampledFrom(worldNodes).Draw(t, "node"), w.drawForeign(t, 1)})
}

// lateBind applies a bind of a scheduler that was killed, unless another was first.
func (w *world) lateBind(t *rapid.T) {
	uid := pickKey(t, w.late)
	w.foreign[uid] = true
	w.observe(t, w.late[uid])
}

// drawForeign draws slots that another scheduler would give: one that this one has
// just assumed, or any, of Instances that it may not know.
func (w *world) drawForeign(t *rapid.T, atLeast int) Assignment {
	if rapid.IntRange(atLeast, 5).Draw(t, "with slots") == 0 {
		return nil
	}
	config := rapid.SampledFrom([]string{"cam", "gps"}).Draw(t, "config")
	s := slot.Name{Instance: full(fmt.Sprint(config, "-", rapid.IntRange(1, 3).Draw(t, "n"))), Index: rapid.IntRange(0, 3).Draw(t, "slot")}
	if assumed, found := w.drawAssumed(t); found {
		s = assumed
		config, _ = slot.SplitInstance(s.Instance)
	}
	grant := func(s slot.Name) []assignment.Grant {
		return []assignment.Grant{{Resource: rapid.SampledFrom([]string{config, s.Instance}).Draw(t, "resource"), Slot: s}}
	}
	a := Assignment{"main": grant(s)}
	if rapid.IntRange(0, 3).Draw(t, "another") == 0 {
		a["side"] = grant(slot.Name{Instance: s.Instance, Index: s.Index + 1})
	}
	return a
}

// drawAssumed draws, half of the time, a slot that is assumed for a pod.
func (w *world) drawAssumed(t *rapid.T) (slot.Name, bool) {
	if len(w.assumed) == 0 || rapid.Bool().Draw(t, "any") {
		return slot.Name{}, false
	}
	slots := slices.SortedFunc(maps.Keys(w.assumed[pickKey(t, w.assumed)].slots()), compareSlots)
	if len(slots) == 0 {
		return slot.Name{}, false
	}
	return rapid.SampledFrom(slots).Draw(t, "assumed"), true
}

// observe shows a pod bound.
func (w *world) observe(t *rapid.T, s scheduled) {
	uid := s.pod.UID
	s.pod.Bound = int64(rapid.IntRange(1, 3).Draw(t, "bound at"))
	want := map[slot.Name]bool{}
	for name := range s.slots() {
		if len(w.holders(name, w.pods)) > 0 {
			want[name] = true
		}
	}
	w.event.add(w.ClearNomination(uid))
	conflicts, event := w.Observe(s.pod, s.node, s.a)
	w.event.add(event)
	w.pods[uid] = s
	delete(w.assumed, uid)
	delete(w.late, uid)
	delete(w.wants, uid)
	if w.ending[uid] {
		w.SetTerminating(uid)
	}
	got := map[slot.Name]bool{}
	for _, c := range conflicts {
		got[c.Slot] = true
	}
	if !maps.Equal(got, want) {
		t.Fatalf("pod %s is bound with %v: conflicts %v, want them for %v", uid, s.a, conflicts, want)
	}
	// Whoever reserved slots for it gives them back, as after a failed bind.
	if w.event.add(w.Forget(uid)); len(s.a) > 0 && !w.Bound(uid) {
		t.Fatalf("the slots of pod %s, which is bound, were given back", uid)
	}
}

// Empty reports whether the change helps no pod.
func (e Event) Empty() bool { return len(e.Freed)+len(e.Preemptible)+len(e.Displaced) == 0 }

// annotationEdited shows a bound pod with other slots than before.
func (w *world) annotationEdited(t *rapid.T) {
	s := w.pods[pickKey(t, w.pods)]
	if len(s.a) == 0 {
		t.Skip("has no slots")
	}
	conflicts, event := w.Observe(s.pod, rapid.SampledFrom(worldNodes).Draw(t, "node"), w.drawForeign(t, 0))
	if conflicts != nil || !event.Empty() {
		t.Fatalf("an edited annotation has changed something: conflicts %v, event %v", conflicts, event)
	}
}

// podGone deletes a pod, which may be about to be bound, or only marks it.
func (w *world) podGone(t *rapid.T) {
	all := maps.Clone(w.pods)
	maps.Copy(all, w.assumed)
	uid := pickKey(t, all)
	if rapid.Bool().Draw(t, "only ending") {
		w.ending[uid] = true
		w.SetTerminating(uid)
		return
	}
	w.event.add(w.ClearNomination(uid))
	w.event.add(w.Remove(uid))
	for _, pods := range []map[string]scheduled{w.pods, w.assumed, w.late} {
		delete(pods, uid)
	}
	delete(w.wants, uid)
	if event := w.Forget(uid); !event.Empty() {
		t.Fatalf("pod %s, which is gone, gave back %v a second time", uid, event)
	}
}

// holders are those of the pods that have the slot, sorted by UID.
func (w *world) holders(name slot.Name, pods ...map[string]scheduled) []string {
	var uids []string
	for _, some := range pods {
		for uid, s := range some {
			if _, holds := s.slots()[name]; holds {
				uids = append(uids, uid)
			}
		}
	}
	slices.Sort(uids)
	return uids
}

// claimOn is whom the slot is claimed for, if the claim counts; "" if for nobody.
func (w *world) claimOn(name slot.Name) string {
	c, in := w.claims[name.String()], w.expected[name.Instance]
	configuration, _ := slot.SplitInstance(name.Instance)
	owner := w.owner(configuration)
	if c == nil || owner == nil || name.Index >= owner.Spec.Slots() {
		return ""
	}
	if in != nil && slices.Contains(in.nodes, c.Spec.NodeName) || w.keeps(c.Spec.NodeName, name.Instance) {
		return c.Spec.Holder + " on " + c.Spec.NodeName
	}
	return ""
}

// keeps reports whether the node lists the Instance's device though it gives no slots of it, or,
// where spec.discovery selects it, whether another does.
func (w *world) keeps(node, instance string) bool {
	in := w.expected[instance]
	for _, s := range w.slices {
		for i := range s.Spec.Devices {
			d := &s.Spec.Devices[i]
			lister := s.Spec.NodeName
			if d.Instance() != instance || !d.Unschedulable && !d.Gone || in != nil && in.device != identityOf(d, lister) {
				continue
			}
			if c := w.believes(d, lister); c != nil && (lister == node || c.Spec.Discovery != nil && w.selected(c, node)) {
				return true
			}
		}
	}
	return false
}

// believes returns the device's Configuration, if what the node says of it is sound.
func (w *world) believes(d *v1alpha1.Device, node string) *akriv0.Configuration {
	c := w.owner(d.Configuration.Name)
	if c == nil || w.owner(d.Instance()) != nil || c.Namespace != d.Configuration.Namespace || d.Check(node) != nil || len(d.Hash) != c.Spec.HashDigits() ||
		c.Spec.Discovery != nil && (!d.Shared || !w.selected(c, node)) {
		return nil
	}
	return c
}

// rules are those for the request on the node, once some pods are gone.
func (w *world) rules(node string, req *Request, gone map[string]bool) *rules {
	u := &rules{req: req, instances: map[string]*instance{}, unique: map[string]akriv0.UniqueScope{}, onNode: map[string]bool{}}
	for name, in := range w.expected {
		if slices.Contains(in.nodes, node) {
			u.instances[name] = in
			u.unique[in.configuration] = w.owner(in.configuration).Spec.Unique()
		}
	}
	own := map[slot.Name][]string{} // claims that end with the pods
	for _, pods := range []map[string]scheduled{w.pods, w.assumed} {
		for uid, s := range pods {
			for name, cl := range s.slots() {
				if gone[uid] {
					own[name] = append(own[name], s.claimant())
				} else if s.node == node && cl {
					u.onNode[name.Instance] = true
				}
			}
		}
	}
	u.taken = func(name slot.Name) string {
		if w.withheld(name.Instance) {
			return "it is DRA's"
		}
		for _, uid := range w.holders(name, w.pods, w.assumed) {
			if !gone[uid] {
				return "pod " + uid + " holds it"
			}
		}
		if claim := w.claimOn(name); claim != "" && !slices.Contains(own[name], claim) {
			return "claimed " + claim
		}
		for uid, n := range w.nominations {
			if uid != req.UID && n.Priority >= req.Priority && slices.ContainsFunc(n.holds, func(h hold) bool { return h.slot == name }) {
				return "kept for " + uid
			}
		}
		return ""
	}
	return u
}

// checkSlots checks that the ledger knows who has each slot, that it has given none
// twice, that each slot is free which nobody has, and who keeps a doubly allocated one.
func (w *world) checkSlots(t *rapid.T) {
	known := map[slot.Name]bool{}
	for name, d := range w.devices {
		in := w.expected[name]
		for i, state := range d.all {
			s := slot.Name{Instance: name, Index: i}
			known[s] = true
			holders := w.holders(s, w.pods, w.assumed)
			if got := state.holderUIDs(); !slices.Equal(got, holders) {
				t.Fatalf("%s is held by %v, want %v", s, got, holders)
			}
			given := slices.DeleteFunc(slices.Clone(holders), func(uid string) bool { return w.foreign[uid] })
			if len(given) > 1 {
				t.Fatalf("%s was given to all of %v", s, given)
			}
			free := in != nil && i < in.capacity && !w.withheld(name) && len(holders) == 0 &&
				w.claimOn(s) == "" && state.nominee == nil
			if free != d.isFree(i) {
				t.Fatalf("%s is free: %v, want %v", s, d.isFree(i), free)
			}
			w.checkDoubleAllocation(t, s)
		}
		if in != nil && (in.capacity != d.capacity || !slices.Equal(d.nodes(), in.nodes)) || in == nil && d.exists() {
			t.Fatalf("%s has %d slots on %v, want %+v", name, d.capacity, d.nodes(), in)
		}
	}
	for _, pods := range []map[string]scheduled{w.pods, w.assumed} {
		for uid, p := range pods {
			for s := range p.slots() {
				if !known[s] {
					t.Fatalf("%s, which pod %s has, is lost", s, uid)
				}
			}
		}
	}
	for name := range w.expected {
		if w.devices[name] == nil {
			t.Fatalf("Instance %s is lost", name)
		}
	}
}
