package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/slot"
)

// world is what the API would hold, and what its schedulers have under way: the
// ledger must agree with it at every step.
type world struct {
	*prober
	strategy       Strategy
	configurations map[string]*akriv0.Configuration // by namespace/name
	instances      map[string]*akriv0.Instance      // by namespace/name
	// pods are bound, and assumed those for which slots are chosen. late are the binds
	// of a scheduler that was killed, which may still be applied. All by UID.
	pods, assumed, late map[string]scheduled
	ending              map[string]bool
	// foreign are the pods that another scheduler has bound.
	foreign map[string]bool
	// wants are the requests of the pods that slots are kept for.
	wants map[string]*Request
	// surveys were made at some time before, over some of the rolls.
	surveys []surveyed
	rolls   []*Roll
	made    int // objects so far, for their UIDs
}

var worldNodes = []string{"a", "b", "c"}

// TestHistories applies random histories, in which another scheduler meddles, this
// one is killed, and anything may happen between the choice of slots and the bind.
// After each step the ledger's counts are right, it knows the holders of each slot,
// none has two by its doing and none is lost, an assumed pod may be bound unless the
// API has a reason against it, what is kept for a nominated pod can still be had by
// it, a waiting pod is told of whatever lets it run, and a ledger rebuilt from the API's
// objects, as after a restart, is equal to the live one.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{prober: newProber(t), strategy: rapid.SampledFrom([]Strategy{Spread, Pack}).Draw(t, "strategy"),
			configurations: map[string]*akriv0.Configuration{}, instances: map[string]*akriv0.Instance{},
			pods: map[string]scheduled{}, assumed: map[string]scheduled{}, late: map[string]scheduled{},
			ending: map[string]bool{}, foreign: map[string]bool{}, wants: map[string]*Request{}}
		for _, config := range []string{"cam", "gps"} {
			w.setConfiguration(&akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: config, Namespace: "ns"}, Spec: drawUnique(t)})
			for i := range 2 {
				w.setInstance(t, &akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(config, "-", i+1), Namespace: "ns"},
					Spec: akriv0.InstanceSpec{ConfigurationName: config}})
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"configuration":        w.configuration,
			"delete configuration": w.deleteConfiguration,
			"instance":             w.instance,
			"delete instance":      w.deleteInstance,
			"claim":                w.claim,
			"reserve":              w.reserve,
			"bind":                 w.bind,
			"bind fails":           w.bindFails,
			"bound otherwise":      w.boundOtherwise,
			"annotation edited":    w.annotationEdited,
			"another scheduler":    w.anotherScheduler,
			"late bind":            w.lateBind,
			"pod gone":             w.podGone,
			"preempt":              w.preempt,
			"preemption ends":      w.denominate,
			"survey":               w.survey,
			"restart":              w.restart,
			"": func(t *rapid.T) {
				checkInvariants(t, w.Ledger)
				w.checkRecords(t)
				w.checkSlots(t)
				w.checkAssumed(t)
				w.checkRebuilt(t)
				w.checkExpected(t)
				w.checkSurveys(t)
				w.prober.check(t, w.strategy)
			},
		})
	})
}

// drawNamespace draws one of two, in which there may be objects of the same name.
func drawNamespace(t *rapid.T) string {
	return rapid.SampledFrom([]string{"ns", "ns", "ns", "other"}).Draw(t, "namespace")
}

func drawUnique(t *rapid.T) akriv0.ConfigurationSpec {
	unique := rapid.SampledFrom([]bool{true, true, true, false}).Draw(t, "unique")
	return akriv0.ConfigurationSpec{UniqueDevices: &unique, UniqueScope: rapid.SampledFrom([]akriv0.UniqueScope{
		akriv0.UniquePerContainer, akriv0.UniquePerPod, akriv0.UniquePerNode}).Draw(t, "scope")}
}

func (w *world) configuration(t *rapid.T) {
	c := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: rapid.SampledFrom([]string{"cam", "gps"}).Draw(t, "name"), Namespace: drawNamespace(t)}}
	c.CreationTimestamp = metav1.Unix(int64(rapid.IntRange(1, 2).Draw(t, "created")), 0)
	if rapid.IntRange(0, 7).Draw(t, "deleting") == 7 {
		c.DeletionTimestamp = &metav1.Time{}
	}
	c.Spec = drawUnique(t)
	w.setConfiguration(c)
}

func (w *world) setConfiguration(c *akriv0.Configuration) {
	w.configurations[c.Namespace+"/"+c.Name] = c
	w.SetConfiguration(c)
}

func (w *world) deleteConfiguration(t *rapid.T) {
	key := pickKey(t, w.configurations)
	c := w.configurations[key]
	delete(w.configurations, key)
	w.DeleteConfiguration(c.Namespace, c.Name)
}

// instance adds an Instance, updates one, or replaces it by another of its name,
// where the watch may have missed the deletion.
func (w *world) instance(t *rapid.T) {
	config := rapid.SampledFrom([]string{"cam", "gps"}).Draw(t, "config")
	name := fmt.Sprintf("%s-%d", config, rapid.IntRange(1, 3).Draw(t, "n"))
	if assumed, found := w.drawAssumed(t); found {
		name = assumed.Instance
		config, _, _ = strings.Cut(name, "-")
	}
	w.made++
	in := &akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: drawNamespace(t), UID: types.UID(fmt.Sprint("i", w.made))}, Spec: akriv0.InstanceSpec{ConfigurationName: config}}
	if old := w.instances[in.Namespace+"/"+in.Name]; old != nil && rapid.IntRange(0, 3).Draw(t, "replaced") < 3 {
		in = old.DeepCopy()
	}
	w.setInstance(t, in)
}

func (w *world) setInstance(t *rapid.T, in *akriv0.Instance) {
	in.Spec.Capacity = rapid.SampledFrom([]int32{1, 1, 2, 3, 4}).Draw(t, "capacity")
	in.Spec.Nodes = rapid.SliceOfNDistinct(rapid.SampledFrom(worldNodes), 0, 3, rapid.ID[string]).Draw(t, "nodes")
	w.instances[in.Namespace+"/"+in.Name] = in
	w.SetInstance(in)
}

func (w *world) deleteInstance(t *rapid.T) {
	key := pickKey(t, w.instances)
	w.DeleteInstance(w.instances[key])
	delete(w.instances, key)
}

// claim makes a node write or drop a claim: a holder's, if there is one, or any.
func (w *world) claim(t *rapid.T) {
	key := pickKey(t, w.instances)
	s := slot.Name{Instance: w.instances[key].Name, Index: rapid.IntRange(0, 4).Draw(t, "slot")}
	if assumed, found := w.drawAssumed(t); found && w.inForce(assumed.Instance) != nil {
		s, key = assumed, w.inForce(assumed.Instance).Namespace+"/"+assumed.Instance
	}
	in := w.instances[key].DeepCopy()
	usages := []string{"", "", "", "a", "b", "C:p1:a", "C:gone:c", "C:?"}
	for _, holders := range []map[string]scheduled{w.pods, w.assumed} {
		for _, uid := range slices.Sorted(maps.Keys(holders)) {
			if own, holds := holders[uid].claims()[s]; holds {
				usages = append(usages, own, own, own, own, own, own)
			}
		}
	}
	if in.Spec.DeviceUsage == nil {
		in.Spec.DeviceUsage = map[string]string{}
	}
	in.Spec.DeviceUsage[s.String()] = rapid.SampledFrom(usages).Draw(t, "usage")
	w.instances[key] = in
	w.SetInstance(in)
}

// owner is the Configuration in force under the name, if any.
func (w *world) owner(name string) *akriv0.Configuration {
	var first *akriv0.Configuration
	for _, c := range w.configurations {
		if c.Name == name && c.MayOwnName() && (first == nil || akriv0.CompareOwners(c, first) < 0) {
			first = c
		}
	}
	return first
}

// inForce is the Instance from which slots are given under the name, if any.
func (w *world) inForce(name string) *akriv0.Instance {
	configuration, _, _ := strings.Cut(name, "-")
	if c := w.owner(configuration); c != nil {
		return w.instances[c.Namespace+"/"+name]
	}
	return nil
}

// rebuild makes a ledger of what the API shows.
func (w *world) rebuild() *Ledger {
	l := New()
	for uid, p := range w.pods {
		l.Observe(p.pod, p.node, p.a)
		if w.ending[uid] {
			l.SetEnding(uid)
		}
	}
	for _, in := range w.instances {
		l.SetInstance(in)
	}
	for _, c := range w.configurations {
		l.SetConfiguration(c)
	}
	return l
}

// restart kills the scheduler. The next one reads the API; a bind that was under way
// may be applied later.
func (w *world) restart(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "restart") > 0 {
		return
	}
	w.prober.restart(w.rebuild())
	maps.Copy(w.late, w.assumed)
	clear(w.assumed)
	clear(w.wants)
	w.surveys = nil
}

func (w *world) checkRebuilt(t *rapid.T) {
	rebuilt := w.rebuild()
	checkInvariants(t, rebuilt)
	if live, again := usable(w.Ledger, w.assumed), usable(rebuilt, nil); live != again {
		t.Fatalf("rebuilt ledger:\n%s\nlive ledger, without the assumed pods:\n%s", again, live)
	}
	for _, p := range w.assumed {
		rebuilt.Observe(p.pod, p.node, p.a)
	}
	checkInvariants(t, rebuilt)
	if live, again := usable(w.Ledger, nil), usable(rebuilt, nil); live != again {
		t.Fatalf("rebuilt ledger, with the assumed pods bound:\n%s\nlive ledger:\n%s", again, live)
	}
}

// usable shows the slots as a new scheduler knows them, which is not told of
// nominations: those that can be given and those that somebody has, except the pods
// without.
func usable(l *Ledger, without map[string]scheduled) string {
	var out []string
	for name, d := range l.devices {
		for i := range d.slots {
			s := &d.slots[i]
			holders := slices.Sorted(slices.Values(s.holders)) // not in the order in which they were seen
			holders = slices.DeleteFunc(holders, func(uid string) bool { _, ok := without[uid]; return ok })
			given := d.exists && i < d.capacity
			if given || len(holders) > 0 || s.claim != "" {
				out = append(out, fmt.Sprintf("%s-%d: given %v, holders %v, claim %q", name, i, given, holders, s.claim))
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func pickKey[V any](t *rapid.T, m map[string]V) string {
	if len(m) == 0 {
		t.Skip("none")
	}
	return rapid.SampledFrom(slices.Sorted(maps.Keys(m))).Draw(t, "key")
}
