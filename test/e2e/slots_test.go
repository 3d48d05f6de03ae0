package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// device is a device as the nodes' DeviceSlices report it.
type device struct {
	name   string // of its Instance
	shared bool
	nodes  []string // that reach it, sorted
}

// debugEcho makes a Configuration of simulated devices and waits until both nodes
// reach all of them and advertise their slots. It returns the devices sorted by name.
func (r *rig) debugEcho(name string, capacity int32, change func(*akriv0.Configuration), ids ...string) []device {
	r.Helper()
	details, err := json.Marshal(map[string]any{"descriptions": ids})
	r.check(err)
	c := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: akriv0.ConfigurationSpec{
		DiscoveryHandler: akriv0.DiscoveryHandlerInfo{Name: "debugEcho", DiscoveryDetails: string(details)}, Capacity: capacity}}
	if change != nil {
		change(c)
	}
	r.check(r.createConfiguration(name, c.Spec))
	found := r.awaitDevices(name, len(ids))
	r.awaitAdvertised(name, int64(c.Spec.Slots()), found)
	return found
}

// awaitAdvertised waits until the devices' nodes advertise all their slots: a pod
// that is tried before is refused for that reason first, and its event keeps the
// first reason.
func (r *rig) awaitAdvertised(configuration string, capacity int64, devices []device) {
	r.Helper()
	want := map[string]int64{}
	for _, d := range devices {
		for _, node := range d.nodes {
			want[node] += capacity
		}
	}
	for node, slots := range want {
		r.await(fmt.Sprintf("node %s to advertise %d slots of %s", node, slots, configuration), func() (bool, string) {
			n, err := kube.CoreV1().Nodes().Get(r.ctx, node, metav1.GetOptions{})
			r.check(err)
			q := n.Status.Allocatable[v1.ResourceName("akri.sh/"+configuration)]
			return q.Value() >= slots, q.String() // a former one's of the name stand for a while
		})
	}
}

// awaitDevices waits until the slices have n devices of the Configuration, the shared
// ones of them both nodes'.
func (r *rig) awaitDevices(configuration string, n int) []device {
	r.Helper()
	var found []device
	r.await(fmt.Sprintf("%d devices of %s on both nodes", n, configuration), func() (bool, string) {
		found = r.devices(configuration)
		for _, d := range found {
			if d.shared && !slices.Equal(d.nodes, []string{nodeA, nodeB}) {
				return false, fmt.Sprint(d.name, " is reached by ", d.nodes)
			}
		}
		return len(found) == n, fmt.Sprint(found)
	})
	return found
}

// devices lists a Configuration's devices that nodes see, sorted by name.
func (r *rig) devices(configuration string) []device {
	r.Helper()
	list, err := akri.KubeslotV1alpha1().DeviceSlices().List(r.ctx, metav1.ListOptions{})
	r.check(err)
	byName := map[string]device{}
	for _, s := range list.Items {
		for _, d := range s.Spec.Devices {
			if d.Configuration.Namespace != r.ns || d.Configuration.Name != configuration || d.Gone {
				continue
			}
			known := byName[d.Instance()]
			known.name, known.shared, known.nodes = d.Instance(), d.Shared, append(known.nodes, s.Spec.NodeName)
			slices.Sort(known.nodes)
			byName[d.Instance()] = known
		}
	}
	return slices.SortedFunc(maps.Values(byName), func(a, b device) int { return strings.Compare(a.name, b.name) })
}

// holding is what a SlotClaim says.
type holding struct {
	pod    string // namespace/name; "" when the claim names none
	holder string
	node   string
	level  v1alpha1.Level
	claim  string // the ResourceClaim that it names, as namespace/name; "" when none
}

// heldBy is what the claims of a pod's slots say that it got through CL requests.
func heldBy(p *v1.Pod) holding {
	return holding{pod: p.Namespace + "/" + p.Name, holder: string(p.UID), node: p.Spec.NodeName, level: v1alpha1.ConfigurationLevel}
}

// byName is the same through an IL request.
func (h holding) byName() holding {
	h.level = v1alpha1.InstanceLevel
	return h
}

// claims are the SlotClaims of a Configuration's slots, by slot.
func (r *rig) claims(configuration string) map[string]holding {
	r.Helper()
	held := map[string]holding{}
	for _, c := range r.slotClaims(configuration) {
		h := holding{holder: c.Spec.Holder, node: c.Spec.NodeName, level: c.Spec.Level}
		if c.Spec.Pod != nil {
			h.pod = c.Spec.Pod.Namespace + "/" + c.Spec.Pod.Name
		}
		if c.Spec.ResourceClaim != nil {
			h.claim = c.Spec.ResourceClaim.Namespace + "/" + c.Spec.ResourceClaim.Name
		}
		held[c.Name] = h
	}
	return held
}

func (r *rig) slotClaims(configuration string) []v1alpha1.SlotClaim {
	r.Helper()
	list, err := akri.KubeslotV1alpha1().SlotClaims().List(r.ctx, metav1.ListOptions{})
	r.check(err)
	return slices.DeleteFunc(list.Items, func(c v1alpha1.SlotClaim) bool {
		name, err := c.Slot()
		r.check(err)
		of, _ := slot.SplitInstance(name.Instance)
		return of != configuration
	})
}

func (r *rig) awaitClaims(configuration string, want map[string]holding) {
	r.Helper()
	r.await(fmt.Sprintf("the claims of %s to be %v", configuration, want), func() (bool, string) {
		got := r.claims(configuration)
		return maps.Equal(got, want), fmt.Sprint(got)
	})
}

// releaseClaim deletes a SlotClaim.
func (r *rig) releaseClaim(name string) error {
	return akri.KubeslotV1alpha1().SlotClaims().Delete(r.ctx, name, metav1.DeleteOptions{})
}

// stranger is a node that reaches devices and has no kubecri: another writer, whose
// claims the test makes and nobody cleans up.
type stranger struct {
	*rig
	owner metav1.OwnerReference
}

const strangerName = "stranger"

// newStranger adds the node, with a slice of all devices of the Configuration, until
// the test ends.
func (r *rig) newStranger(configuration string) *stranger {
	r.Helper()
	nodes := kube.CoreV1().Nodes()
	n, err := nodes.Create(r.ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: strangerName}, Spec: v1.NodeSpec{Unschedulable: true}}, metav1.CreateOptions{})
	r.check(err)
	r.Cleanup(func() { r.check(nodes.Delete(context.Background(), strangerName, metav1.DeleteOptions{})) })
	s := &stranger{rig: r, owner: v1alpha1.NodeOwner(strangerName, n.UID)}
	slice := &v1alpha1.DeviceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: strangerName + "-0", OwnerReferences: []metav1.OwnerReference{s.owner}},
		Spec:       v1alpha1.DeviceSliceSpec{NodeName: strangerName}}
	list, err := akri.KubeslotV1alpha1().DeviceSlices().List(r.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + nodeA})
	r.check(err)
	for _, of := range list.Items {
		for _, d := range of.Spec.Devices {
			if d.Configuration.Namespace == r.ns && d.Configuration.Name == configuration {
				slice.Spec.Devices = append(slice.Spec.Devices, d)
			}
		}
	}
	_, err = akri.KubeslotV1alpha1().DeviceSlices().Create(r.ctx, slice, metav1.CreateOptions{})
	r.check(err)
	// The controller deletes claims of nodes that it does not know to reach the device.
	r.await("the Instances to show the stranger", func() (bool, string) {
		for _, in := range r.instances(configuration) {
			if !slices.Contains(in.Spec.Nodes, strangerName) {
				return false, fmt.Sprint(in.Name, " has the nodes ", in.Spec.Nodes)
			}
		}
		return true, ""
	})
	return s
}

// take claims a slot, as one that the kubelet's device manager has given out.
func (s *stranger) take(slotName string) error {
	return s.claim(slotName, s.owner, v1alpha1.SlotClaimSpec{NodeName: strangerName, Level: theirs.level, Holder: theirs.holder})
}

// theirs is what the stranger's claims say.
var theirs = holding{holder: "intruder", node: strangerName, level: v1alpha1.ConfigurationLevel}

// claim creates a SlotClaim as the admin.
func (r *rig) claim(slotName string, owner metav1.OwnerReference, spec v1alpha1.SlotClaimSpec) error {
	name, err := slot.Parse(slotName)
	if err != nil {
		return err
	}
	_, err = akri.KubeslotV1alpha1().SlotClaims().Create(r.ctx, v1alpha1.NewSlotClaim(name, spec, owner), metav1.CreateOptions{})
	return err
}
