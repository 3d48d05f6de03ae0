package e2e

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

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
		v1alpha1.Device{Configuration: stick, ID: "stick" + nodeB, Hash: hash, Shared: true})) // what its hash is made of
	large := v1alpha1.Device{Configuration: v1alpha1.ConfigurationReference{Namespace: r.ns, Name: "wide"}, ID: "wide0", Shared: true,
		Hash: slot.InstanceHash("wide0", true, "", slot.ShortHash), Properties: map[string]string{"FILL": strings.Repeat("x", 50<<10), "MORE": strings.Repeat("x", 50<<10)}}
	if err := thief.report("node-a-78", nodeA, nil, large); err == nil || !strings.Contains(err.Error(), "a device may take at most 64 KiB") {
		t.Errorf("a device of 100 KiB: %v", err)
	}
	thief.akri = akri // nor is it believed where no policy refuses it
	r.check(thief.report("node-a-78", nodeA, nil, large))
	thief = r.newRogue()
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
	for _, name := range []string{"node-a-77", "node-a-78"} {
		r.await("the real kubecri to take back the rogue's slice "+name, func() (bool, string) {
			s, err := akri.KubeslotV1alpha1().DeviceSlices().Get(r.ctx, name, metav1.GetOptions{})
			return err != nil || s.Spec.NodeName == nodeA && len(s.Spec.Devices) == 0, fmt.Sprint(s)
		})
	}
	r.awaitDevices("stick", 2)
	if p := r.pod("here"); p.Spec.NodeName != "" || p.Status.Phase != v1.PodPending {
		t.Errorf("the pod for a device that its node does not reach is %s on %s", p.Status.Phase, p.Spec.NodeName)
	}
}
