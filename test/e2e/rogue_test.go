package e2e

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubeslot/kubeslot/test/cluster"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// rogueAgent is what the audit log shows of what a rogue tries.
const rogueAgent = "rogue"

// rogue is a client with a credential by which node-a's kubecri is known, of which a
// thief has it all.
type rogue struct {
	*rig
	kube  kubernetes.Interface
	akri  versioned.Interface
	owner metav1.OwnerReference // node-a
}

func (r *rig) newRogue() *rogue { return r.newRogueWith(r.identity(certificate)) }

func (r *rig) newRogueWith(config *rest.Config) *rogue {
	r.Helper()
	config.UserAgent, config.QPS = rogueAgent, -1
	thief := &rogue{rig: r}
	var err error
	thief.kube, err = kubernetes.NewForConfig(config)
	r.check(err)
	thief.akri, err = versioned.NewForConfig(config)
	r.check(err)
	n, err := kube.CoreV1().Nodes().Get(r.ctx, nodeA, metav1.GetOptions{})
	r.check(err)
	thief.owner = v1alpha1.NodeOwner(nodeA, n.UID)
	return thief
}

func (r *rogue) patchInstance(name, patch string) error {
	_, err := r.akri.AkriV0().Instances(r.ns).Patch(r.ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

func (r *rogue) patchNode(node, patch string, subresources ...string) error {
	_, err := r.kube.CoreV1().Nodes().Patch(r.ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	return err
}

// takeFor creates a claim in the name of a node.
func (r *rogue) takeFor(node, slotName string, change func(*v1alpha1.SlotClaim)) error {
	name, err := slot.Parse(slotName)
	r.check(err)
	owner := r.owner
	if node != nodeA {
		n, err := kube.CoreV1().Nodes().Get(r.ctx, node, metav1.GetOptions{})
		r.check(err)
		owner = v1alpha1.NodeOwner(node, n.UID)
	}
	c := v1alpha1.NewSlotClaim(name, v1alpha1.SlotClaimSpec{NodeName: node, Level: v1alpha1.ConfigurationLevel, Holder: "rogue"}, owner)
	if change != nil {
		change(c)
	}
	_, err = r.akri.KubeslotV1alpha1().SlotClaims().Create(r.ctx, c, metav1.CreateOptions{})
	return err
}

// report creates a slice.
func (r *rogue) report(name, node string, change func(*v1alpha1.DeviceSlice), devices ...v1alpha1.Device) error {
	s := &v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{r.owner}},
		Spec: v1alpha1.DeviceSliceSpec{NodeName: node, Devices: devices}}
	if change != nil {
		change(s)
	}
	_, err := r.akri.KubeslotV1alpha1().DeviceSlices().Create(r.ctx, s, metav1.CreateOptions{})
	return err
}

// sliceOf is the name of a slice of the node.
func (r *rig) sliceOf(node string) string {
	r.Helper()
	list, err := akri.KubeslotV1alpha1().DeviceSlices().List(r.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	r.check(err)
	if len(list.Items) == 0 {
		r.Fatalf("node %s has no slice", node)
	}
	return list.Items[0].Name
}

// A node's credential changes nothing that is not the node's, by whichever of the three
// ways it is known: each attempt is refused with the reason, and nothing has changed.
func TestRogueNodeIsRefused(t *testing.T) {
	for _, way := range []way{certificate, kubelets, podToken} {
		t.Run(string(way), func(t *testing.T) { rogueIsRefused(newRig(t), way) })
	}
}

func rogueIsRefused(r *rig, by way) {
	t := r.T
	name := r.debugEcho("loot", 2, nil, "loot0")[0].name
	r.create(newPod("victim", nodeB, map[string]int64{"loot": 1}))
	held := r.agree("victim", "loot", 1)[0]
	r.create(newPod("own", nodeA, map[string]int64{"loot": 1}))
	own := r.agree("own", "loot", 1)[0]
	r.awaitView("loot")
	claims, thief := r.claims("loot"), r.newRogueWith(r.identity(by))
	reported := thief.akri.KubeslotV1alpha1().DeviceSlices()
	slotClaims := thief.akri.KubeslotV1alpha1().SlotClaims()
	leases := thief.kube.CoordinationV1().Leases(r.ns)
	editSlice := func(node string, change func(*v1alpha1.DeviceSlice)) error {
		s, err := reported.Get(r.ctx, r.sliceOf(node), metav1.GetOptions{})
		r.check(err)
		change(s)
		_, err = reported.Update(r.ctx, s, metav1.UpdateOptions{})
		return err
	}
	patchClaim := func(name, patch string) error {
		_, err := slotClaims.Patch(r.ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	putClaim := func(name string, change func(*v1alpha1.SlotClaim)) error {
		c, err := slotClaims.Get(r.ctx, name, metav1.GetOptions{})
		r.check(err)
		change(c)
		_, err = slotClaims.Update(r.ctx, c, metav1.UpdateOptions{})
		return err
	}
	lease := func(name, holder string) error {
		_, err := leases.Create(r.ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}, metav1.CreateOptions{})
		return err
	}
	large := func(sizes ...int) v1alpha1.Device {
		d := v1alpha1.Device{ID: "loot0", Shared: true, Configuration: v1alpha1.ConfigurationReference{Namespace: r.ns, Name: "loot"},
			Hash: slot.InstanceHash("loot0", true, "", slot.ShortHash), Properties: map[string]string{}}
		for i, size := range sizes {
			d.Properties[fmt.Sprint("FILL", i)] = strings.Repeat("x", size)
		}
		return d
	}
	owned := fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":%q,"uid":"not-there"}]}}`, nodeB)
	const kept, junk = `{"metadata":{"finalizers":["rogue.test/never"]}}`, `{"metadata":{"annotations":{"rogue.test/a":"b"},"labels":{"rogue.test/c":"d"}}}`
	never := []string{"rogue.test/never"}
	const noEdit, noEnd = `cannot patch resource "instances"`, `cannot delete resource "instances"`
	const ownOnly, owner, metadata = "whose spec.nodeName is its own name", "must have its own Node object as the one owner", "of the metadata a node may set"

	for _, attempt := range []struct {
		what, want string
		err        error
		kubelets   string // what a kubelet is told instead; "-" when it is its own right
	}{
		{"an Instance's capacity", noEdit, thief.patchInstance(name, `{"spec":{"capacity":50}}`), ""},
		{"an Instance's owners", noEdit, thief.patchInstance(name, owned), ""},
		{"an Instance's finalizers", noEdit, thief.patchInstance(name, kept), ""},
		{"an Instance's annotations", noEdit, thief.patchInstance(name, junk), ""},
		{"an Instance's deviceUsage", noEdit, thief.patchInstance(name, fmt.Sprintf(`{"spec":{"deviceUsage":{%q:""}}}`, held)), ""},
		{"an Instance's end", noEnd, thief.akri.AkriV0().Instances(r.ns).Delete(r.ctx, name, metav1.DeleteOptions{}), ""},

		{"a claim for node-b", ownOnly, thief.takeFor(nodeB, name+"-7", nil), ""},
		{"a claim that node-b owns", owner, thief.takeFor(nodeA, name+"-7", func(c *v1alpha1.SlotClaim) { c.OwnerReferences[0].Name = nodeB }), ""},
		{"a claim with two owners", owner, thief.takeFor(nodeA, name+"-7", func(c *v1alpha1.SlotClaim) {
			c.OwnerReferences = append(c.OwnerReferences, v1alpha1.NodeOwner(nodeB, "some-uid"))
		}), ""},
		{"a claim with a finalizer", metadata, thief.takeFor(nodeA, name+"-7", func(c *v1alpha1.SlotClaim) { c.Finalizers = never }), ""},
		{"a claim with a label", metadata, thief.takeFor(nodeA, name+"-7", func(c *v1alpha1.SlotClaim) { c.Labels["rogue.test/a"] = "b" }), ""},
		{"a claim on a taken slot", "already exists", thief.takeFor(nodeA, held, nil), ""},
		{"node-b's claim deleted", ownOnly, slotClaims.Delete(r.ctx, held, metav1.DeleteOptions{}), ""},
		{"node-b's claim edited", `cannot patch resource "slotclaims"`, patchClaim(held, `{"spec":{"nodeName":"node-a"}}`), ""},
		{"node-b's claim replaced", `cannot update resource "slotclaims"`, putClaim(held, func(c *v1alpha1.SlotClaim) { c.Spec.NodeName, c.OwnerReferences[0] = nodeA, thief.owner }), ""},
		{"its own claim replaced", `cannot update resource "slotclaims"`, putClaim(own, func(c *v1alpha1.SlotClaim) { c.Finalizers = never }), ""},
		{"its own claim's finalizers", `cannot patch resource "slotclaims"`, patchClaim(own, kept), ""},

		{"a slice for node-b", ownOnly, thief.report("node-a-77", nodeB, nil), ""},
		{"a slice with node-b's name", "a node may name its DeviceSlices only node-a-", thief.report("node-b-77", nodeA, nil), ""},
		{"a slice of 300 KiB", "may take at most 256 KiB", thief.report("node-a-77", nodeA, nil, large(60<<10, 60<<10, 60<<10, 60<<10, 60<<10)), ""},
		{"a property of 1 MiB", "Too long", thief.report("node-a-77", nodeA, nil, large(1<<20)), ""},
		{"a slice that node-b owns", owner, thief.report("node-a-77", nodeA, func(s *v1alpha1.DeviceSlice) { s.OwnerReferences[0].Name = nodeB }), ""},
		{"a slice with a finalizer", metadata, thief.report("node-a-77", nodeA, func(s *v1alpha1.DeviceSlice) { s.Finalizers = never }), ""},
		{"a slice with an annotation", metadata, thief.report("node-a-77", nodeA, func(s *v1alpha1.DeviceSlice) {
			s.Annotations = map[string]string{"rogue.test/a": "b"}
		}), ""},
		{"node-b's slice emptied", ownOnly, editSlice(nodeB, func(s *v1alpha1.DeviceSlice) { s.Spec.Devices = nil }), ""},
		{"node-b's slice deleted", ownOnly, reported.Delete(r.ctx, r.sliceOf(nodeB), metav1.DeleteOptions{}), ""},
		{"its own slice's owners", owner, editSlice(nodeA, func(s *v1alpha1.DeviceSlice) { s.OwnerReferences = nil }), ""},
		{"its own slice's finalizers", metadata, editSlice(nodeA, func(s *v1alpha1.DeviceSlice) { s.Finalizers = never }), ""},

		{"a slice beyond the number that a node may have", "a node may name its DeviceSlices only node-a-0 to node-a-99", thief.report("node-a-100", nodeA, nil), ""},

		{"its own Node deleted", `cannot delete resource "nodes"`, thief.kube.CoreV1().Nodes().Delete(r.ctx, nodeA, metav1.DeleteOptions{}), ""},
		{"its own Node's owners", `cannot patch resource "nodes"`, thief.patchNode(nodeA, owned), "not allowed to modify ownerReferences"},
		{"its own Node's owners through its status", "kubecri may change only", thief.patchNode(nodeA, owned, "status"), "not allowed to modify ownerReferences"},
		{"its own Node's finalizers through its status", "kubecri may change only", unless(by, kubelets, func() error { return thief.patchNode(nodeA, kept, "status") }), "-"},
		{"its own Node's labels and annotations through its status", "kubecri may change only", unless(by, kubelets, func() error { return thief.patchNode(nodeA, junk, "status") }), "-"},
		{"its own Node's conditions", "kubecri may change only the capacity, the allocatable and the conditions kubeslot.io/*", unless(by, kubelets, func() error {
			return thief.patchNode(nodeA, `{"status":{"conditions":[]}}`, "status")
		}), "-"},
		{"its own Node's CPUs", "kubecri may advertise only akri.sh resources", unless(by, kubelets, func() error {
			return thief.patchNode(nodeA, `{"status":{"capacity":{"cpu":"999"}}}`, "status")
		}), "-"},
		{"node-b's totals", "kubecri may change only its own node", thief.patchNode(nodeB, `{"status":{"capacity":{"akri.sh/loot":"0"}}}`, "status"), "is not allowed to modify node"},

		{"a lease of its own choice", "whose names begin with kubeslot-discovery-", lease("rogue", nodeA), `cannot create resource "leases"`},
		{"a lease for node-b", "its own node the holder", lease("kubeslot-discovery-loot-0", nodeB), `cannot create resource "leases"`},
		{"a lease of no Configuration", "have that Configuration as its one owner", lease("kubeslot-discovery-loot-0", nodeA), `cannot create resource "leases"`},
	} {
		if by == kubelets && attempt.kubelets == "-" {
			continue
		}
		if by == kubelets && attempt.kubelets != "" {
			attempt.want = attempt.kubelets
		}
		if attempt.err == nil || !strings.Contains(attempt.err.Error(), attempt.want) {
			t.Errorf("%s: %v, want an error with %q", attempt.what, attempt.err, attempt.want)
		}
	}

	// What is the node's own it may do: so it is the rules that refuse the rest, and not a
	// credential that may do nothing. The controller deletes the claim, which does not count.
	r.check(thief.takeFor(nodeA, name+"-7", nil))
	r.awaitClaims("loot", claims)
	r.awaitView("loot")
	r.agree("victim", "loot", 1)
	r.agree("own", "loot", 1)
}

// killKubecri ends node-a's real kubecri, which would undo what a rogue does, until the test's
// end, or until the function that it returns is called.
func (r *rig) killKubecri() (restore func()) {
	r.Helper()
	r.check(shared.Kill(cluster.Kubecri, nodeA, syscall.SIGKILL))
	restore = sync.OnceFunc(func() { r.check(shared.Start(cluster.Kubecri, nodeA)) })
	r.Cleanup(restore)
	return restore
}

// What a node's credential may say is about its own node, and others do not believe
// the rest: devices of other nodes, slots that it does not reach, and slots beyond the
// capacity. Nobody has less for it.
func TestRogueNodeIsNotBelieved(t *testing.T) {
	testAll(t, "kills kubecri again")
	r := newRig(t)
	r.debugEchoUnchecked("stick", "debugEcho", `{"descriptions": ["stick"], "shared": false}`)
	local := r.awaitDevices("stick", 2)
	r.awaitAdvertised("stick", 1, local)
	theirs := local[slices.IndexFunc(local, func(d device) bool { return d.nodes[0] == nodeB })].name
	wide := r.debugEcho("wide", 1, nil, "wide0")[0].name
	thief := r.newRogue()
	restore := r.killKubecri()

	_, hash := slot.SplitInstance(theirs)
	stick := v1alpha1.ConfigurationReference{Namespace: r.ns, Name: "stick"}
	r.check(thief.report("node-a-77", nodeA, nil,
		v1alpha1.Device{Configuration: stick, ID: "stick", Hash: hash},
		v1alpha1.Device{Configuration: stick, ID: "stick" + nodeB, Hash: hash, Shared: true}, // what its hash is made of
		v1alpha1.Device{Configuration: v1alpha1.ConfigurationReference{Namespace: r.ns, Name: "wide"}, ID: "wide0", Shared: true,
			Hash: slot.InstanceHash("wide0", true, "", slot.ShortHash), Properties: map[string]string{"FILL": strings.Repeat("x", 50<<10), "MORE": strings.Repeat("x", 50<<10)}}))
	r.check(thief.takeFor(nodeA, wide+"-1", nil))   // beyond the capacity
	r.check(thief.takeFor(nodeA, theirs+"-0", nil)) // not reached

	r.create(newPod("here", nodeA, map[string]int64{theirs: 1}))
	r.awaitPending("here", "reach no Instance for akri.sh/"+theirs)

	// The slot is given to a pod, and the controller deletes the claim that is in its way.
	r.create(newPod("there", "", map[string]int64{theirs: 1}))
	r.awaitClaims("stick", map[string]holding{theirs + "-0": heldBy(r.awaitRunning("there")).byName()}) // it may start before
	r.agree("there", "stick", 1)
	if node := r.pod("there").Spec.NodeName; node != nodeB {
		t.Errorf("the pod with node-b's device runs on %s", node)
	}
	r.create(newPod("also", nodeB, map[string]int64{"wide": 1}))
	r.agree("also", "wide", 1)
	r.awaitClaims("wide", map[string]holding{wide + "-0": heldBy(r.pod("also"))})
	for _, e := range auditEvents(r) {
		if e.Verb == "delete" && e.ObjectRef.Resource == "slotclaims" && slices.Contains([]string{wide + "-1", theirs + "-0"}, e.ObjectRef.Name) &&
			strings.HasPrefix(e.User.Username, "system:kubecri:") {
			t.Errorf("%s deleted the claim of %s; want the controller to do it", e.User.Username, e.ObjectRef.Name)
		}
	}

	r.await("the Instance of the shared device to say that node-a's report is too large", func() (bool, string) {
		in, err := akri.AkriV0().Instances(r.ns).Get(r.ctx, wide, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		if fill := len(in.Spec.BrokerProperties["FILL"]); fill > 0 {
			t.Fatalf("the Instance has %d bytes of node-a's report", fill)
		}
		problems := strings.Join(in.Status.Problems, "\n")
		return strings.Contains(problems, "of 65536 that are allowed"), problems
	})

	restore()
	r.awaitReady(nodeA)
	r.await("the real kubecri to take back the rogue's slice", func() (bool, string) {
		s, err := akri.KubeslotV1alpha1().DeviceSlices().Get(r.ctx, "node-a-77", metav1.GetOptions{})
		return err != nil || s.Spec.NodeName == nodeA && len(s.Spec.Devices) == 0, fmt.Sprint(s)
	})
	r.awaitDevices("stick", 2)
	if p := r.pod("here"); p.Spec.NodeName != "" || p.Status.Phase != v1.PodPending {
		t.Errorf("the pod for a device that its node does not reach is %s on %s", p.Status.Phase, p.Spec.NodeName)
	}
}
