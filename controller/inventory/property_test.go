package inventory

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// world is what the API server holds.
type world struct {
	configurations map[string]*akriv0.Configuration
	slices         map[string]*v1alpha1.DeviceSlice
	claims         map[string]*v1alpha1.SlotClaim
	nodes          map[string]Node
}

var (
	nodeNames = []string{"a", "ab", "b"}
	ids       = []string{"x", "xa", "xab"} // x on ab, xa on b and a shared xab have one hash
	// ofInstance is the name of an Instance of cam, and may be that of a Configuration.
	ofInstance = slot.InstanceName("cam", slot.InstanceHash("xab", true, "", 6))
)

func drawTime(t *rapid.T) metav1.Time {
	return metav1.NewTime(time.Unix(rapid.Int64Range(0, 3).Draw(t, "created"), 0))
}

func drawConfiguration(t *rapid.T, namespace, name string) *akriv0.Configuration {
	c := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: drawTime(t),
		UID: types.UID(rapid.SampledFrom([]string{"1", "2"}).Draw(t, "uid"))}}
	c.Spec.Capacity = rapid.Int32Range(0, 3).Draw(t, "capacity")
	c.Spec.InstanceNameDigits = rapid.SampledFrom([]int32{0, 6, 6, 6, 12}).Draw(t, "digits")
	if rapid.IntRange(0, 2).Draw(t, "discovery") == 0 {
		c.Spec.Discovery = &akriv0.Discovery{NodeSelector: drawLabels(t)}
	}
	if rapid.IntRange(0, 5).Draw(t, "deleting") == 0 {
		c.DeletionTimestamp = &metav1.Time{Time: time.Unix(9, 0)}
	}
	return c
}

// Mostly the same, so that things meet.
func drawNamespace(t *rapid.T) string {
	return rapid.SampledFrom([]string{"n1", "n1", "n1", "n1", "n1", "n2"}).Draw(t, "namespace")
}

func drawName(t *rapid.T) string {
	return rapid.SampledFrom([]string{"cam", "cam", "cam", "cam", "cam-hd", ofInstance}).Draw(t, "name")
}

func drawLabels(t *rapid.T) map[string]string {
	return rapid.SampledFrom([]map[string]string{nil, {"net": "1"}, {"net": "2"}}).Draw(t, "labels")
}

// drawSlice makes some devices share a name, as hashes of six digits do by chance.
func drawSlice(t *rapid.T, name, node string) *v1alpha1.DeviceSlice {
	s := &v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: drawTime(t)}, Spec: v1alpha1.DeviceSliceSpec{NodeName: node}}
	for range rapid.IntRange(0, 3).Draw(t, "devices") {
		d := v1alpha1.Device{
			Configuration: v1alpha1.ConfigurationReference{
				Namespace: drawNamespace(t), Name: drawName(t)},
			ID: rapid.SampledFrom(ids).Draw(t, "id"), Shared: rapid.Bool().Draw(t, "shared"),
			Unschedulable: rapid.IntRange(0, 4).Draw(t, "unschedulable") == 0,
			Gone:          rapid.IntRange(0, 4).Draw(t, "gone") == 0,
		}
		if rapid.Bool().Draw(t, "properties") {
			d.Properties = map[string]string{"K": node}
		}
		digits := rapid.SampledFrom([]int{6, 6, 6, 6, 6, 12}).Draw(t, "hash digits")
		if d.Hash = slot.InstanceHash(d.ID, d.Shared, node, digits); rapid.IntRange(0, 9).Draw(t, "wrong") == 0 {
			d.Hash = slot.InstanceHash("x", true, "", digits)
		}
		s.Spec.Devices = append(s.Spec.Devices, d)
	}
	return s
}

func drawClaim(t *rapid.T) *v1alpha1.SlotClaim {
	id, node := rapid.SampledFrom(ids).Draw(t, "id"), rapid.SampledFrom(nodeNames).Draw(t, "node")
	instance := slot.InstanceName(drawName(t), slot.InstanceHash(id, rapid.Bool().Draw(t, "shared"), node, 6))
	c := &v1alpha1.SlotClaim{Spec: v1alpha1.SlotClaimSpec{NodeName: node, Holder: rapid.SampledFrom([]string{"p", "q"}).Draw(t, "holder")}}
	c.Name = slot.Name{Instance: instance, Index: rapid.IntRange(0, 3).Draw(t, "index")}.String()
	return c
}

// step changes the world, and tells the inventory.
func (w *world) step(t *rapid.T, v *Inventory) Change {
	switch kind := rapid.SampledFrom([]string{"configuration", "slice", "slice", "claim", "node"}).Draw(t, "kind"); kind {
	case "configuration":
		namespace, name := drawNamespace(t), drawName(t)
		key := namespace + "/" + name
		if rapid.IntRange(0, 5).Draw(t, "delete") == 0 {
			delete(w.configurations, key)
			return v.DeleteConfiguration(namespace, name)
		}
		w.configurations[key] = drawConfiguration(t, namespace, name)
		return v.SetConfiguration(w.configurations[key])
	case "slice":
		node := rapid.SampledFrom(nodeNames).Draw(t, "node")
		name := fmt.Sprintf("%s-%d", node, rapid.IntRange(0, 1).Draw(t, "suffix"))
		if rapid.IntRange(0, 3).Draw(t, "delete") == 0 {
			delete(w.slices, name)
			return v.DeleteSlice(name)
		}
		w.slices[name] = drawSlice(t, name, node)
		return v.SetSlice(w.slices[name])
	case "claim":
		c := drawClaim(t)
		if rapid.IntRange(0, 3).Draw(t, "delete") == 0 {
			delete(w.claims, c.Name)
			return v.DeleteClaim(c.Name)
		}
		w.claims[c.Name] = c
		return v.SetClaim(c)
	default:
		name := rapid.SampledFrom(nodeNames).Draw(t, "node")
		if rapid.IntRange(0, 3).Draw(t, "delete") == 0 {
			delete(w.nodes, name)
			return v.DeleteNode(name)
		}
		node := Node{UID: types.UID(rapid.SampledFrom([]string{"1", "2"}).Draw(t, "uid")),
			Ready: rapid.Bool().Draw(t, "ready"), Labels: drawLabels(t)}
		if rapid.Bool().Draw(t, "out of service") {
			node.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService}}
		}
		w.nodes[name] = node
		return v.SetNode(name, w.nodes[name])
	}
}

// fresh makes an inventory of the world as it is.
func (w *world) fresh() *Inventory {
	v := New()
	for _, c := range w.configurations {
		v.SetConfiguration(c)
	}
	for _, s := range w.slices {
		v.SetSlice(s)
	}
	for _, c := range w.claims {
		v.SetClaim(c)
	}
	for name, n := range w.nodes {
		v.SetNode(name, n)
	}
	return v
}

// instances are all names that devices and claims may have.
func instances() []string {
	names := map[string]bool{}
	for _, configuration := range []string{"cam", "cam-hd", ofInstance} {
		for _, id := range ids {
			for _, node := range nodeNames {
				for _, digits := range []int{6, 12} {
					names[slot.InstanceName(configuration, slot.InstanceHash(id, true, node, digits))] = true
					names[slot.InstanceName(configuration, slot.InstanceHash(id, false, node, digits))] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// seen is all that decisions go by.
type seen struct {
	Devices map[string]string
	Claims  map[string]string
}

func look(v *Inventory, w *world) seen {
	s := seen{map[string]string{}, map[string]string{}}
	for _, instance := range instances() {
		d := v.Device(instance)
		if d.Configuration == nil {
			continue
		}
		spec, err := json.Marshal(d.Configuration.Spec) // what pointers in it are to, not where that is
		if err != nil {
			panic(err)
		}
		text := fmt.Sprintf("%v spec %s nodes %v lost %v left out %q", d.Configuration.Namespace+d.Configuration.Name+string(d.Configuration.UID), spec, d.Nodes, d.Unschedulable, d.LeftOut)
		if d.Reported != nil {
			text += fmt.Sprintf(" %+v", *d.Reported)
		}
		for _, c := range d.Claims {
			text += fmt.Sprintf(" %s by %v: %v", c.Name, c.Spec.Usage(), c.DoesNotCount)
		}
		if d.Reported != nil || len(d.Claims) > 0 {
			s.Devices[d.Configuration.Namespace+"/"+instance] = text
		}
	}
	for name, c := range w.claims {
		node, known := w.nodes[c.Spec.NodeName]
		s.Claims[name] = fmt.Sprint(c.Spec, v.DoesNotCount(c), known, node.UID, node.Ready, node.Taints)
	}
	return s
}

// However the world came about, the inventory is that of the world as it is; and what
// looks different after a step is in the step's change, or nobody would look at it.
func TestInventoryFollowsTheWorld(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{map[string]*akriv0.Configuration{}, map[string]*v1alpha1.DeviceSlice{}, map[string]*v1alpha1.SlotClaim{}, map[string]Node{}}
		for _, node := range nodeNames { // some are there at first
			w.nodes[node] = Node{Labels: map[string]string{"net": "1"}}
			w.slices[node+"-0"] = drawSlice(t, node+"-0", node)
		}
		w.configurations["n1/cam"] = drawConfiguration(t, "n1", "cam")
		v := w.fresh()
		before := look(v, w)
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			change := w.step(t, v)
			after := look(v, w)
			fresh := w.fresh()
			if d := cmp.Diff(look(fresh, w), after); d != "" {
				t.Fatalf("another than the inventory made anew (-anew +now):\n%s", d)
			}
			reports, claims := v.Ignored()
			if r, c := fresh.Ignored(); r != reports || c != claims {
				t.Fatalf("ignores %d reports and %d claims, made anew %d and %d", reports, claims, r, c)
			}
			for _, name := range nodeNames {
				if v.LacksSlices(name) != fresh.LacksSlices(name) {
					t.Fatalf("LacksSlices(%s) = %v", name, v.LacksSlices(name))
				}
			}
			inChange := map[string]bool{}
			for _, key := range change.Instances {
				inChange[key.String()] = true
			}
			for key := range merged(before.Devices, after.Devices) {
				if before.Devices[key] != after.Devices[key] && !inChange[key] {
					t.Fatalf("Instance %s changed and is not in the change %v:\n%s\n%s", key, change, before.Devices[key], after.Devices[key])
				}
			}
			for name := range after.Claims {
				if before.Claims[name] != after.Claims[name] && !slices.Contains(change.Claims, name) {
					t.Fatalf("claim %s changed and is not in the change %v:\n%s\n%s", name, change, before.Claims[name], after.Claims[name])
				}
			}
			before = after
		}
		for name := range maps.Clone(w.slices) {
			v.DeleteSlice(name)
		}
		for name := range w.claims {
			v.DeleteClaim(name)
		}
		for _, c := range w.configurations {
			v.DeleteConfiguration(c.Namespace, c.Name)
		}
		if n := len(v.names) + len(v.records) + len(v.slices) + len(v.slicesOfNode) + len(v.claims) + len(v.claimsOfNode) + len(v.claimsOfPod); n != 0 {
			t.Fatalf("%d things are kept of an empty world: %+v", n, v)
		}
	})
}

func merged(a, b map[string]string) map[string]string {
	m := maps.Clone(a)
	maps.Copy(m, b)
	return m
}
