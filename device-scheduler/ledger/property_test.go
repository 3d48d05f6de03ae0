package ledger

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// world is what the API would hold, and what its schedulers have under way: the
// ledger must agree with it at every step.
type world struct {
	*prober
	api
	strategy Strategy
	expected map[string]*instance // see inForce; found anew after each step
	// assumed are the pods for which slots are chosen. late are the binds of a scheduler
	// that was killed, which may still be applied. Both by UID.
	assumed, late map[string]scheduled
	// foreign are the pods that another scheduler has bound.
	foreign map[string]bool
	// wants are the requests of the pods that slots are kept for.
	wants map[string]*Request
	lists []*NodeList // of views
	made  int         // objects so far, for their UIDs
}

var worldNodes = []string{"a", "b", "c"}

// TestHistories applies random histories, in which another scheduler meddles, this
// one is killed, and anything may happen between the choice of slots and the bind.
// After each step the ledger's counts are right, it knows the holders of each slot,
// none has two by its doing and none is lost, an assumed pod may be bound unless the
// API has a reason against it, what is kept for a nominated pod can still be had by
// it, a waiting pod is told of whatever lets it run, and a ledger rebuilt from the API's
// objects, as after a restart, is equal to the live one.
//
// There are 100 histories of 30 steps; with -short rapid makes 20 of 15.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{prober: newProber(t), api: newAPI(), strategy: rapid.SampledFrom([]Strategy{Spread, Pack}).Draw(t, "strategy"),
			assumed: map[string]scheduled{}, late: map[string]scheduled{}, foreign: map[string]bool{},
			wants: map[string]*Request{}}
		for _, config := range []string{"cam", "gps"} {
			w.setConfiguration(configurationOf(config, drawUnique(t)))
		}
		for _, node := range worldNodes {
			w.setNode(t, node)
			w.setSlice(t, node+"-0", node)
		}
		t.Repeat(map[string]func(*rapid.T){
			"configuration":        w.configuration,
			"delete configuration": w.deleteConfiguration,
			"allocator":            w.allocator,
			"DRA":                  w.drawDRA,
			"slice":                w.slice,
			"delete slice":         w.deleteSlice,
			"claim":                w.claim,
			"delete claim":         w.deleteClaim,
			"node":                 w.node,
			"delete node":          w.deleteNode,
			"reserve":              w.reserve,
			"bind":                 w.bind,
			"bind fails":           w.bindFails,
			"bound otherwise":      w.boundOtherwise,
			"annotation edited":    w.annotationEdited,
			"another scheduler":    w.anotherScheduler,
			"late bind":            w.lateBind,
			"pod gone":             w.podGone,
			"preempt":              w.preempt,
			"preemption ends":      w.clearNomination,
			"restart":              w.restart,
			"": func(t *rapid.T) {
				w.expected = w.inForce()
				checkInvariants(t, w.Ledger)
				w.checkObjects(t)
				w.checkSlots(t)
				w.checkAssumed(t)
				w.checkRebuilt(t)
				w.checkExpected(t)
				w.checkView(t)
				w.checkHandover(t)
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

var zones = []string{"north", "south"}

func (w *world) configuration(t *rapid.T) {
	name := rapid.SampledFrom([]string{"cam", "cam", "gps", "gps", full("cam-1")}).Draw(t, "name") // the last is that of an Instance
	c := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: drawNamespace(t)}}
	c.CreationTimestamp = metav1.Unix(int64(rapid.IntRange(1, 2).Draw(t, "created")), 0)
	if rapid.IntRange(0, 7).Draw(t, "deleting") == 7 {
		c.DeletionTimestamp = &metav1.Time{}
	}
	c.Spec = drawUnique(t)
	c.Spec.Capacity = rapid.SampledFrom([]int32{1, 1, 2, 3, 4, 10}).Draw(t, "capacity")
	if rapid.IntRange(0, 15).Draw(t, "long names") == 15 {
		c.Spec.InstanceNameDigits = slot.LongHash
	}
	switch rapid.IntRange(0, 7).Draw(t, "discovery") {
	case 6:
		c.Spec.Discovery = &akriv0.Discovery{}
	case 7:
		c.Spec.Discovery = &akriv0.Discovery{NodeSelector: map[string]string{"zone": rapid.SampledFrom(zones).Draw(t, "zone")}}
	}
	w.setConfiguration(c)
}

func (w *world) setConfiguration(c *akriv0.Configuration) {
	w.configurations[c.Namespace+"/"+c.Name] = c
	w.event.add(w.SetConfiguration(c))
}

func (w *world) deleteConfiguration(t *rapid.T) {
	key := pickKey(t, w.configurations)
	c := w.configurations[key]
	delete(w.configurations, key)
	w.event.add(w.DeleteConfiguration(c.Namespace, c.Name))
}

// slice adds a slice, updates one, or replaces it by another node's of its name, where
// the watch may have missed the deletion.
func (w *world) slice(t *rapid.T) {
	node := rapid.SampledFrom(worldNodes).Draw(t, "node")
	name := fmt.Sprint(node, "-", rapid.IntRange(0, 1).Draw(t, "n"))
	if rapid.IntRange(0, 15).Draw(t, "replaced") == 15 {
		node = rapid.SampledFrom(worldNodes).Draw(t, "another node")
	}
	w.setSlice(t, name, node)
}

func (w *world) setSlice(t *rapid.T, name, node string) {
	s := sliceOf(name, node)
	for range rapid.IntRange(0, 5).Draw(t, "devices") {
		d := drawDevice(t, node)
		d.Unschedulable = rapid.IntRange(0, 5).Draw(t, "unschedulable") == 5
		d.Gone = d.Unschedulable && rapid.Bool().Draw(t, "gone")
		s.Spec.Devices = append(s.Spec.Devices, d)
	}
	w.made++
	s.UID, s.ResourceVersion = types.UID(fmt.Sprint("s", w.made)), fmt.Sprint(w.made)
	s.CreationTimestamp = metav1.Unix(rapid.Int64Range(1, 3).Draw(t, "created"), 0) // another slice of the name
	if now := w.slices[name]; now != nil && rapid.Bool().Draw(t, "update") {
		s.CreationTimestamp = now.CreationTimestamp
	}
	w.slices[name] = s
	event, _ := w.SetSlice(s)
	w.event.add(event)
}

// drawDevice draws one that the node may report, which is not always sound. Several have
// one name.
func drawDevice(t *rapid.T, node string) v1alpha1.Device {
	config := rapid.SampledFrom([]string{"cam", "cam", "gps", "gps", "cam-1"}).Draw(t, "config")
	short := fmt.Sprint(config, "-", rapid.IntRange(1, 3).Draw(t, "device"))
	namespace := drawNamespace(t)
	switch rapid.IntRange(0, 11).Draw(t, "which") {
	case 8:
		return twinOf(deviceOf(config+"-1", namespace, node), rapid.SampledFrom([]string{"", "b", "c"}).Draw(t, "twin")) // a local one is not sound, but for its node
	case 9:
		return deviceOf(short+"@"+node, namespace, node)
	case 10:
		return deviceOf(short+"@a", namespace, node)
	case 11:
		d := deviceOf(short, namespace, node)
		d.Hash = rapid.SampledFrom([]string{"", "0", "000000", "zzzzzz", "000000000000", slot.InstanceHash(d.ID, true, "", slot.LongHash)}).Draw(t, "hash")
		return d
	}
	return deviceOf(short, namespace, node)
}

func (w *world) deleteSlice(t *rapid.T) {
	name := pickKey(t, w.slices)
	delete(w.slices, name)
	w.event.add(w.DeleteSlice(name))
}

func (w *world) node(t *rapid.T) { w.setNode(t, rapid.SampledFrom(worldNodes).Draw(t, "node")) }

func (w *world) setNode(t *rapid.T, name string) {
	w.nodes[name] = map[string]string{"zone": rapid.SampledFrom(zones).Draw(t, "zone")}
	w.event.add(w.SetNode(name, w.nodes[name]))
}

func (w *world) deleteNode(t *rapid.T) {
	name := pickKey(t, w.nodes)
	delete(w.nodes, name)
	w.event.add(w.DeleteNode(name))
}

// claim makes a node claim a slot: for a holder, if there is one, or for anybody; also one
// that it does not reach, or that there is not.
func (w *world) claim(t *rapid.T) {
	s, found := w.drawAssumed(t)
	if !found {
		s = drawSlot(t)
	}
	by := []*v1alpha1.SlotClaim{claimOf(s, "a", "p1"), claimOf(s, "c", "gone"), claimOf(s, "nowhere", "p1")}
	for _, holders := range []map[string]scheduled{w.pods, w.assumed} {
		for _, uid := range slices.Sorted(maps.Keys(holders)) {
			if _, holds := holders[uid].slots()[s]; holds {
				own := claimOf(s, holders[uid].node, uid)
				by = append(by, own, own, own)
			}
		}
	}
	c := rapid.SampledFrom(by).Draw(t, "claim")
	w.made++
	c.ResourceVersion = fmt.Sprint(w.made)
	w.claims[c.Name] = c
	w.event.add(w.SetClaim(c))
}

func (w *world) deleteClaim(t *rapid.T) {
	name := pickKey(t, w.claims)
	delete(w.claims, name)
	w.event.add(w.DeleteClaim(name))
}

func drawSlot(t *rapid.T) slot.Name {
	short := fmt.Sprint(rapid.SampledFrom([]string{"cam-", "gps-"}).Draw(t, "config"), rapid.SampledFrom([]string{"1", "2", "3", "1@a"}).Draw(t, "n"))
	return slot.Name{Instance: full(short), Index: rapid.SampledFrom([]int{0, 0, 1, 1, 2, 3, 9, 9999}).Draw(t, "slot")}
}

// restart kills the scheduler. The next one reads the API; a bind that was under way
// may be applied later.
func (w *world) restart(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "restart") > 0 {
		return
	}
	w.prober.restart(w.rebuilt(t))
	maps.Copy(w.late, w.assumed)
	clear(w.assumed)
	clear(w.wants)
	w.lists = nil
}

// rebuilt is a ledger of what the API has, in any order.
func (w *world) rebuilt(t *rapid.T) *Ledger {
	return w.api.ledger(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 0)))
}

func (w *world) checkRebuilt(t *rapid.T) {
	rebuilt := w.rebuilt(t)
	checkRebuilt(t, w.Ledger, rebuilt, w.pods)
	all := maps.Clone(w.pods)
	for uid, p := range w.assumed {
		rebuilt.Observe(p.pod, p.node, p.a)
		all[uid] = p
	}
	checkRebuilt(t, w.Ledger, rebuilt, all)
}

// checkRebuilt compares a ledger with the live one, which may have more pods than these.
func checkRebuilt(t failer, live, rebuilt *Ledger, pods map[string]scheduled) {
	t.Helper()
	checkInvariants(t, rebuilt)
	if now, again := usable(live, pods), usable(rebuilt, pods); now != again {
		t.Fatalf("rebuilt ledger:\n%s\nlive ledger:\n%s", again, now)
	}
}

// usable shows the slots as a new scheduler knows them, which is not told of nominations:
// those that can be given, and those that somebody has, of these pods.
func usable(l *Ledger, pods map[string]scheduled) string {
	var out []string
	for name, d := range l.devices {
		for i, s := range d.all {
			holders := s.holderUIDs()
			holders = slices.DeleteFunc(holders, func(uid string) bool { _, one := pods[uid]; return !one })
			given := d.exists() && !d.withheld && i < d.capacity
			if given || len(holders) > 0 || s.claim != nil {
				out = append(out, fmt.Sprintf("%s-%d: given to %v: %v, holders %v, %s", name, i, d.nodes(), given, holders, s.claim))
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func (c *claim) String() string {
	if c == nil {
		return "no claim"
	}
	return fmt.Sprintf("claimed for %s on %s, %s, counts %v", c.holder, c.node.name, c.uid, c.counts)
}

func pickKey[V any](t *rapid.T, m map[string]V) string {
	if len(m) == 0 {
		t.Skip("none")
	}
	return rapid.SampledFrom(slices.Sorted(maps.Keys(m))).Draw(t, "key")
}
