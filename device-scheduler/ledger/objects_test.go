package ledger

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Instances have short names in tests: cam-1 stands for cam-<hash>, and cam-1@b for a
// local device of node b. The ids are such that the hashes have the order of the short
// names.

// ids and hashes are by what stands for the hash.
var ids, hashes = map[string]string{}, map[string]string{}

// twins are other devices with the hash of 1: shared, and local to a node.
var twins = map[string]string{"": "other.3658251", "b": "local.19244028", "c": "local.2916689"}

// hash returns that of the device that the short hash stands for.
func hash(short string) string {
	if hashes[short] == "" {
		_, node, local := strings.Cut(short, "@")
		order := fmt.Sprintf("%x00", strings.Replace(short, "@", "", 1))[:4]
		for n := 0; !strings.HasPrefix(hashes[short], order); n++ {
			ids[short] = fmt.Sprint(short, ".", n)
			hashes[short] = slot.InstanceHash(ids[short], !local, node, slot.ShortHash)
		}
	}
	return hashes[short]
}

// full returns an Instance's name, or that of a Configuration which is named as one; a
// name without a dash is as it is.
func full(short string) string {
	configuration, suffix := slot.SplitInstance(short)
	if configuration == "" {
		return short
	}
	return slot.InstanceName(full(configuration), hash(suffix))
}

// short replaces full names in the text.
func short(text string) string {
	for short, hash := range hashes {
		text = strings.ReplaceAll(text, "-"+hash, "-"+short)
	}
	return text
}

// deviceOf returns an Instance as the node reports it.
func deviceOf(instance, namespace, node string) v1alpha1.Device {
	configuration, suffix := slot.SplitInstance(instance)
	d := v1alpha1.Device{Configuration: v1alpha1.ConfigurationReference{Namespace: namespace, Name: full(configuration)}, Hash: hash(suffix)}
	d.ID, d.Shared = ids[suffix], !strings.Contains(suffix, "@")
	return d
}

// twinOf returns another device of the same name.
func twinOf(d v1alpha1.Device, local string) v1alpha1.Device {
	d.ID, d.Shared = twins[local], local == ""
	return d
}

func sliceOf(name, node string, devices ...v1alpha1.Device) *v1alpha1.DeviceSlice {
	return &v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.DeviceSliceSpec{NodeName: node, Devices: devices}}
}

// share has nodes report an Instance, each in a slice of its own.
func share(l *Ledger, instance string, nodes ...string) {
	for _, node := range nodes {
		l.SetSlice(sliceOf(node+"-"+instance, node, deviceOf(instance, "ns", node)))
	}
}

// instance is what a test expects of one.
type instance struct {
	name, configuration string
	capacity            int
	nodes               []string
	device              identity // of which reports count
}

func claimOf(s slot.Name, node, holder string) *v1alpha1.SlotClaim {
	spec := v1alpha1.SlotClaimSpec{NodeName: node, Level: v1alpha1.ConfigurationLevel, Holder: holder,
		Pod: &v1alpha1.PodReference{UID: types.UID(holder)}}
	c := v1alpha1.NewSlotClaim(s, spec, v1alpha1.NodeOwner(node, ""))
	c.UID = types.UID(holder + " on " + node)
	return c
}

// configurationOf returns a Configuration of namespace ns.
func configurationOf(name string, spec akriv0.ConfigurationSpec) *akriv0.Configuration {
	return &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"}, Spec: spec}
}

// ledgerOf returns one with the Configuration cam of namespace ns.
func ledgerOf(spec akriv0.ConfigurationSpec) *Ledger {
	l := New()
	l.SetConfiguration(configurationOf("cam", spec))
	return l
}

// occupy has somebody claim the Instance's slots from one on, on a node that reaches it.
func occupy(l *Ledger, instance, node string, from, capacity int) {
	for i := from; i < capacity; i++ {
		l.SetClaim(claimOf(slot.Name{Instance: full(instance), Index: i}, node, "somebody"))
	}
}
