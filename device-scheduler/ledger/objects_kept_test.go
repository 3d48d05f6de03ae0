package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// owner is the Configuration in force under the name, if any.
func (w *world) owner(name string) *akriv0.Configuration {
	return akriv0.OldestOf(slices.Collect(maps.Values(w.configurations))).InForce(name)
}

// inForce are the Instances from which slots are given, by name. Of devices of
// one name it is the shared one that most nodes report, then the one in the oldest slice; but a
// local one before a shared one that one node alone reports, and that in the oldest slice.
func (w *world) inForce() map[string]*instance {
	found := map[string]*instance{}
	oldest := slices.SortedFunc(maps.Values(w.slices), func(a, b *v1alpha1.DeviceSlice) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	nodes := map[string]map[identity][]string{} // that report, by Instance
	order := map[string][]identity{}            // as they come in the slices, the oldest first
	for _, s := range oldest {
		for i := range s.Spec.Devices {
			d, node := &s.Spec.Devices[i], s.Spec.NodeName
			instance, who := d.Instance(), identityOf(d, node)
			if d.Unschedulable || d.Gone || w.believes(d, node) == nil {
				continue
			}
			if nodes[instance] == nil {
				nodes[instance] = map[identity][]string{}
			}
			order[instance] = append(order[instance], who)
			if !slices.Contains(nodes[instance][who], node) {
				nodes[instance][who] = append(nodes[instance][who], node)
			}
		}
	}
	for name, by := range nodes {
		configuration, _ := slot.SplitInstance(name)
		c := w.owner(configuration)
		in := &instance{name: name, configuration: configuration, capacity: c.Spec.Slots()}
		var local *identity
		for _, who := range order[name] {
			if who.node == "" && len(by[who]) > len(by[in.device]) {
				in.device = who
			} else if who.node != "" && local == nil {
				local = &who
			}
		}
		if local != nil && len(by[in.device]) < 2 {
			in.device = *local
		}
		if in.nodes = by[in.device]; c.Spec.Discovery != nil {
			in.nodes = slices.DeleteFunc(slices.Clone(worldNodes), func(node string) bool { return !w.selected(c, node) })
		}
		slices.Sort(in.nodes)
		found[name] = in
	}
	return found
}

// selected reports whether the Configuration's discovery selects the node.
func (w *world) selected(c *akriv0.Configuration, node string) bool {
	labels, known := w.nodes[node]
	zone, given := c.Spec.Discovery.NodeSelector["zone"]
	return known && (!given || labels["zone"] == zone)
}

// checkObjects compares the slices and claims that the ledger knows with the API's.
func (w *world) checkObjects(t failer) {
	t.Helper()
	if known, want := names(w.EachSlice), slices.Sorted(maps.Keys(w.slices)); !slices.Equal(known, want) {
		t.Fatalf("the ledger knows the slices %v, want %v", known, want)
	}
	if known, want := names(w.EachClaim), slices.Sorted(maps.Keys(w.claims)); !slices.Equal(known, want) {
		t.Fatalf("the ledger knows the claims %v, want %v", known, want)
	}
	for name, s := range w.slices {
		if uid, version := w.SliceVersion(name); uid != string(s.UID) || version != s.ResourceVersion {
			t.Fatalf("slice %s is known as %s of version %s, want %s of %s", name, uid, version, s.UID, s.ResourceVersion)
		}
	}
	counted := 0
	for name, c := range w.claims {
		if uid := w.ClaimUID(name); uid != string(c.UID) {
			t.Fatalf("claim %s is known as %s, want %s", name, uid, c.UID)
		}
		if s, err := c.Slot(); err == nil && w.claimOn(s) != "" {
			counted++
		}
	}
	leftOut, seenOn := 0, map[string][]v1alpha1.Device{}
	for _, s := range w.slices {
		seen := seenOn[s.Spec.NodeName]
		for _, d := range s.Spec.Devices {
			c := w.owner(d.Configuration.Name)
			in := w.expected[d.Instance()]
			switch {
			case d.Check(s.Spec.NodeName) != nil:
				leftOut++
			case d.Unschedulable, d.Gone:
				continue
			case slices.ContainsFunc(seen, func(o v1alpha1.Device) bool {
				return o.Configuration == d.Configuration && o.ID == d.ID && o.Hash == d.Hash
			}), c == nil:
			case in == nil, !slices.Contains(in.nodes, s.Spec.NodeName), c.Namespace != d.Configuration.Namespace, c.Spec.Discovery != nil && !d.Shared:
				leftOut++
			case identityOf(&d, s.Spec.NodeName) != in.device:
				leftOut++
			}
			seen = append(seen, d)
		}
		seenOn[s.Spec.NodeName] = seen
	}
	if claims, devices := w.Ignored(); claims != len(w.claims)-counted || devices != leftOut {
		t.Fatalf("%d claims do not count and %d devices are left out, want %d and %d", claims, devices, len(w.claims)-counted, leftOut)
	}
}

// names are those that each visits, sorted.
func names(each func(visit func(string))) []string {
	var all []string
	each(func(name string) { all = append(all, name) })
	slices.Sort(all)
	return all
}

// What an API object was decoded into must be free once the ledger has it: one text
// that is kept of it would keep all that lies around it.
func TestNothingOfTheObjectIsKept(t *testing.T) {
	const around, objects = 1 << 20, 32
	part := func(text string) string { return (text + strings.Repeat(" ", around))[:len(text)] }
	l := ledgerOf(akriv0.ConfigurationSpec{})
	for i := range objects {
		node := part(fmt.Sprint("node-", i))
		d := deviceOf(fmt.Sprint("cam-", i), "ns", node)
		d.Configuration.Namespace, d.Configuration.Name, d.ID, d.Hash = part("ns"), part("cam"), part(d.ID), part(d.Hash)
		s := sliceOf(part(node+"-0"), node, d)
		s.UID, s.ResourceVersion = types.UID(part("uid")), part("1")
		l.SetSlice(s)
		c := claimOf(slot.Name{Instance: d.Instance()}, part(node), part("holder"))
		c.Name, c.UID, c.ResourceVersion = part(c.Name), types.UID(part("uid")), part("1")
		l.SetClaim(c)
		c = claimOf(slot.Name{Instance: fmt.Sprint("gps-", i)}, part("elsewhere"), part("holder"))
		c.Name = part(c.Name)
		l.SetClaim(c)
		d = deviceOf(fmt.Sprint("other-", i), "ns", node)
		d.Configuration.Name = part(fmt.Sprint("other", i))
		l.SetSlice(sliceOf(node+"-1", node, d))
	}
	if used := heap(); used > objects*around/2 {
		t.Errorf("%d MiB are in use for %d nodes, of whose objects nothing should be kept", used>>20, objects)
	}
	if free := l.Free("cam"); free != 0 {
		t.Errorf("%d slots are free, want none", free)
	}
	runtime.KeepAlive(l)
}
