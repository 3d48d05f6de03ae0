package ledger

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/slot"
)

// world is what the API would hold: the ledger must agree with it at every step.
type world struct {
	*Ledger
	strategy       Strategy
	configurations map[string]*akriv0.Configuration
	instances      map[string]*akriv0.Instance
	pods           map[string]scheduled
	nextPod        int
	// foreign are the pods that another scheduler has bound.
	foreign map[string]bool
	// wants are the requests of the pods that slots are kept for.
	wants map[string]*Request
	// surveys were made at some time before, over some of the rolls.
	surveys []surveyed
	rolls   []*Roll
}

var worldNodes = []string{"a", "b", "c"}

// TestHistories applies random histories, in which another scheduler meddles.
// After each step the ledger's counts are right, no slot that it gave has two
// holders by its doing, what is kept for a nominated pod can still be had by it,
// and a ledger rebuilt from the API's objects, as after a restart, is equal to the
// live one.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		strategy := rapid.SampledFrom([]Strategy{Spread, Pack}).Draw(t, "strategy")
		w := &world{Ledger: New(), strategy: strategy, configurations: map[string]*akriv0.Configuration{},
			instances: map[string]*akriv0.Instance{}, pods: map[string]scheduled{}, foreign: map[string]bool{}, wants: map[string]*Request{}}
		t.Repeat(map[string]func(*rapid.T){
			"configuration":        w.configuration,
			"delete configuration": w.deleteConfiguration,
			"instance":             w.instance,
			"delete instance":      w.deleteInstance,
			"schedule":             w.schedule,
			"pod gone":             w.podGone,
			"claim":                w.claim,
			"preempt":              w.preempt,
			"preemption ends":      w.denominate,
			"another scheduler":    w.anotherScheduler,
			"survey":               w.survey,
			"": func(t *rapid.T) {
				checkInvariants(t, w.Ledger)
				w.checkRecords(t)
				w.checkSingleHolders(t)
				w.checkRebuilt(t)
				w.checkExpected(t)
				w.checkSurveys(t)
			},
		})
	})
}

func (w *world) configuration(t *rapid.T) {
	name := rapid.SampledFrom([]string{"cam", "gps"}).Draw(t, "name")
	c := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"}}
	c.Spec.UniqueScope = rapid.SampledFrom([]akriv0.UniqueScope{akriv0.UniquePerContainer, akriv0.UniquePerPod, akriv0.UniquePerNode}).Draw(t, "scope")
	unique := rapid.Bool().Draw(t, "unique")
	c.Spec.UniqueDevices = &unique
	w.configurations[name] = c
	w.SetConfiguration(c)
}

func (w *world) deleteConfiguration(t *rapid.T) {
	name := rapid.SampledFrom([]string{"cam", "gps"}).Draw(t, "name")
	delete(w.configurations, name)
	w.DeleteConfiguration("ns", name)
}

func (w *world) instance(t *rapid.T) {
	config := rapid.SampledFrom([]string{"cam", "gps"}).Draw(t, "config")
	name := fmt.Sprintf("%s-%d", config, rapid.IntRange(1, 3).Draw(t, "n"))
	in := &akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"}}
	if old := w.instances[name]; old != nil {
		in = old.DeepCopy()
	}
	in.Spec.ConfigurationName = config
	in.Spec.Capacity = rapid.SampledFrom([]int32{1, 2, 3, 4, fewSlots + 2}).Draw(t, "capacity")
	in.Spec.Nodes = rapid.SliceOfNDistinct(rapid.SampledFrom(worldNodes), 0, 3, rapid.ID[string]).Draw(t, "nodes")
	w.instances[name] = in
	w.SetInstance(in)
}

func (w *world) deleteInstance(t *rapid.T) {
	name := pickKey(t, w.instances)
	w.DeleteInstance(w.instances[name])
	delete(w.instances, name)
}

func (w *world) schedule(t *rapid.T) {
	w.nextPod++
	pod := Pod{UID: fmt.Sprintf("p%d", w.nextPod), Namespace: "ns", Name: "p", Priority: drawPriority(t)}
	if len(w.nominations) > 0 && rapid.Bool().Draw(t, "nominee") {
		pod = w.nominations[pickKey(t, w.nominations)].Pod
	}
	node := rapid.SampledFrom(worldNodes).Draw(t, "node")
	req := drawRequest(t, pod)
	a, shortfall := w.Draft(w.strategy).For(pod).Fit(node, req)
	if shortfall != nil {
		_ = shortfall.String()
		return
	}
	w.checkAnswer(t, node, req, a)
	if _, err := w.Assume(pod, node, a); err != nil {
		t.Fatalf("the slots that Fit chose cannot be assumed: %v", err)
	}
	if len(a) > 0 {
		if err := w.Check(pod.UID); err != nil {
			t.Fatalf("the slots that were just assumed cannot be bound: %v", err)
		}
	}
	if rapid.Bool().Draw(t, "bind fails") {
		w.Forget(pod.UID)
		return
	}
	w.Denominate(pod.UID)
	if conflicts, _ := w.Observe(pod, node, a); len(conflicts) > 0 {
		t.Fatalf("conflicts: %v", conflicts)
	}
	w.pods[pod.UID] = scheduled{pod, node, a}
}

func drawPriority(t *rapid.T) int32 { return int32(rapid.IntRange(0, 2).Draw(t, "priority")) }

func drawRequest(t *rapid.T, pod Pod) *Request {
	req := &Request{Pod: pod, Containers: rapid.SliceOfN(rapid.Custom(drawContainer), 1, 3).Draw(t, "containers")}
	for i := range req.Containers {
		req.Containers[i].Name = fmt.Sprint("c", i)
	}
	return req
}

func drawContainer(t *rapid.T) ContainerRequest {
	c := ContainerRequest{Role: rapid.SampledFrom([]Role{App, App, Init, Sidecar}).Draw(t, "role")}
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"cam", "gps", "cam-1", "gps-2"}), 0, 2, rapid.ID[string]).Draw(t, "resources") {
		c.Resources = append(c.Resources, ResourceRequest{Name: name, Count: rapid.IntRange(1, 3).Draw(t, "count")})
	}
	return c
}

// checkAnswer checks that each container gets what it asked for, from Instances
// that the node reaches, within the uniqueness in force.
func (w *world) checkAnswer(t *rapid.T, node string, req *Request, a Assignment) {
	inPod := map[string]map[slot.Name]bool{} // slots by Instance
	for i, c := range req.Containers {
		inContainer := map[string]int{}
		counts := map[string]int{}
		for _, g := range a[c.Name] {
			in := w.instances[g.Slot.Instance]
			if in == nil || !slices.Contains(in.Spec.Nodes, node) || g.Slot.Index >= int(in.Spec.Capacity) {
				t.Fatalf("container %d got %v, which node %s cannot use", i, g, node)
			}
			if g.Resource != in.Name && g.Resource != in.Spec.ConfigurationName {
				t.Fatalf("container %d got %v for %s", i, g.Slot, g.Resource)
			}
			counts[g.Resource]++
			inContainer[in.Name]++
			if inPod[in.Name] == nil {
				inPod[in.Name] = map[slot.Name]bool{}
			}
			inPod[in.Name][g.Slot] = true
			unique := w.configurations[in.Spec.ConfigurationName].Spec.Unique()
			if unique != "" && inContainer[in.Name] > 1 {
				t.Fatalf("container %d got two slots of %s", i, in.Name)
			}
			if unique == akriv0.UniquePerPod && len(inPod[in.Name]) > 1 {
				t.Fatalf("the pod got two slots of %s", in.Name)
			}
		}
		for _, r := range c.Resources {
			if counts[r.Name] != r.Count {
				t.Fatalf("container %d got %d of %s, asked for %d", i, counts[r.Name], r.Name, r.Count)
			}
		}
	}
}

func (w *world) podGone(t *rapid.T) {
	uid := pickKey(t, w.pods)
	if rapid.Bool().Draw(t, "only ending") {
		w.SetEnding(uid)
		return
	}
	w.Remove(uid)
	delete(w.pods, uid)
}

// preempt keeps slots for a pod; its victims go when "pod gone" picks them.
func (w *world) preempt(t *rapid.T) {
	w.nextPod++
	pod := Pod{UID: fmt.Sprintf("p%d", w.nextPod), Namespace: "ns", Name: "vip", Priority: drawPriority(t)}
	node := rapid.SampledFrom(worldNodes).Draw(t, "node")
	req := drawRequest(t, pod)
	candidates := slices.DeleteFunc(w.Holders(node, req), func(v Victim) bool { return v.Priority >= pod.Priority })
	p := w.Preempt(w.strategy, node, req, candidates)
	if p == nil {
		return
	}
	for _, v := range p.Victims {
		if v.Priority >= pod.Priority {
			t.Fatalf("pod %s of priority %d evicts %s of priority %d", pod.UID, pod.Priority, v.UID, v.Priority)
		}
	}
	w.checkAnswer(t, node, req, p.Assignment)
	w.Nominate(pod, node, p.Assignment)
	w.wants[pod.UID] = req
}

// checkExpected checks that no pod which slots are kept for is kept from them by
// others that are expected on its node.
func (w *world) checkExpected(t *rapid.T) {
	for uid, n := range w.nominations {
		if _, shortfall := w.Draft(w.strategy).For(n.Pod).Fit(n.node, w.wants[uid]); shortfall != nil {
			continue // its victims are there yet, or the rules have changed
		}
		draft := w.Draft(w.strategy).For(n.Pod)
		for other, req := range w.wants {
			if other != uid {
				draft.Reserve(n.node, req)
			}
		}
		free := 0
		for _, h := range n.holds {
			if draft.change(w.devices[h.slot.Instance]).free.has(h.slot.Index) {
				free++
			}
		}
		before := 0
		for _, h := range n.holds {
			if w.freeFor(n.Pod, w.devices[h.slot.Instance], h.slot.Index) {
				before++
			}
		}
		if free != before {
			t.Fatalf("of %v, which are kept for %s, %d are free, and %d with others expected", n.holds, uid, before, free)
		}
	}
}

func (w *world) denominate(t *rapid.T) { w.Denominate(pickKey(t, w.nominations)) }

// anotherScheduler binds a pod with slots of its own choice, which may be any that a
// forger can think of, or one that this one has only just assumed.
func (w *world) anotherScheduler(t *rapid.T) {
	w.nextPod++
	pod := Pod{UID: fmt.Sprintf("p%d", w.nextPod), Namespace: "ns", Name: "foreign", Priority: drawPriority(t)}
	node := rapid.SampledFrom(worldNodes).Draw(t, "node")
	a := Assignment{}
	for range rapid.IntRange(1, 3).Draw(t, "grants") {
		name := rapid.SampledFrom([]string{"cam-1", "cam-2", "gps-1", "gone-1"}).Draw(t, "instance")
		g := assignment.Grant{Resource: name, Slot: slot.Name{Instance: name, Index: rapid.SampledFrom([]int{0, 1, 2, 3, 9, 9999}).Draw(t, "slot")}}
		if rapid.Bool().Draw(t, "configuration-level") {
			g.Resource, _, _ = strings.Cut(name, "-")
		}
		container := rapid.SampledFrom([]string{"main", "side"}).Draw(t, "container")
		a[container] = append(a[container], g)
	}
	conflicts, _ := w.Observe(pod, node, a)
	w.pods[pod.UID], w.foreign[pod.UID] = scheduled{pod, node, a}, true
	for _, s := range w.Holds(pod.UID) {
		conflict := slices.ContainsFunc(conflicts, func(c Conflict) bool { return c.Slot == s })
		if holders := w.devices[s.Instance].at(s.Index).holders; len(holders) > 1 != conflict {
			t.Fatalf("%s has holders %v, and conflicts are %v", s, holders, conflicts)
		}
		if c := w.Contested(s); (c != nil) != conflict {
			t.Fatalf("%s: contest %v, conflicts %v", s, c, conflicts)
		}
	}
}

// claim makes a node write or drop a claim.
func (w *world) claim(t *rapid.T) {
	name := pickKey(t, w.instances)
	in := w.instances[name].DeepCopy()
	key := slot.Name{Instance: name, Index: rapid.IntRange(0, 4).Draw(t, "slot")}.String()
	usage := rapid.SampledFrom([]string{"", "a", "b", "C:p1:a", "C:gone:c", "C:?"}).Draw(t, "usage")
	in.Spec.DeviceUsage = map[string]string{key: usage}
	w.instances[name] = in
	w.SetInstance(in)
}

func (w *world) checkSingleHolders(t *rapid.T) {
	for _, d := range w.devices {
		for i, s := range d.known {
			given := slices.DeleteFunc(slices.Clone(s.holders), func(uid string) bool { return w.foreign[uid] })
			if len(given) > 1 {
				t.Fatalf("%s-%d was given to all of %v", d.name, i, given)
			}
		}
	}
}

func (w *world) checkRebuilt(t *rapid.T) {
	rebuilt := New()
	for _, p := range w.pods {
		rebuilt.Observe(p.pod, p.node, p.a)
	}
	for _, in := range w.instances {
		rebuilt.SetInstance(in)
	}
	for _, c := range w.configurations {
		rebuilt.SetConfiguration(c)
	}
	checkInvariants(t, rebuilt)
	// Slots out of capacity are remembered only while something was there.
	if live, again := usable(w.Ledger), usable(rebuilt); live != again {
		t.Fatalf("rebuilt ledger:\n%s\nlive ledger:\n%s", again, live)
	}
}

// usable shows the slots as a new scheduler would: it does not know of nominations.
func usable(l *Ledger) string {
	out := ""
	for _, line := range lines(l.show()) {
		name, state, _ := strings.Cut(line, ": ")
		if strings.HasPrefix(state, "kept for ") {
			state = "free"
		}
		// The order of holders is that in which they were seen.
		if holders, ok := strings.CutPrefix(state, "held by "); ok {
			names := strings.FieldsFunc(holders, func(r rune) bool { return r == ' ' || r == ',' })
			slices.Sort(names)
			state = fmt.Sprint("held by ", names)
		}
		if state != "out of capacity" {
			out += name + ": " + state + "\n"
		}
	}
	return out
}

func pickKey[V any](t *rapid.T, m map[string]V) string {
	if len(m) == 0 {
		t.Skip("none")
	}
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return rapid.SampledFrom(keys).Draw(t, "key")
}
