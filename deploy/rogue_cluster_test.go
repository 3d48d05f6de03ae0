package deploy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

const nodeA, nodeB = "node-a", "node-b"

// way is how the API server knows kubecri of a node.
type way string

const (
	certificate way = "certificate" // of system:kubecri:<node>
	kubelets    way = "kubelet"     // the kubelet's own: system:node:<node>
	podToken    way = "token"       // of a pod of the ServiceAccount kubecri, on the node
)

// system is the namespace of the chart, whose ServiceAccount kubecri the policies know.
const system = "kubeslot-system"

// identity is node-a's credential of one way, with what deploy/ grants for it.
func (r *rig) identity(by way) *rest.Config {
	r.Helper()
	config, err := r.RESTConfig()
	r.check(err)
	switch by {
	case certificate:
		config = rest.AnonymousClientConfig(config)
		config.CertData, config.KeyData, err = r.KubecriCertificate(nodeA)
		r.check(err)
	case kubelets:
		_, err := r.Kubectl(r.Context(), "apply", "-k", "kubelet-identity")
		r.check(err)
		r.Cleanup(func() {
			_, err := r.Kubectl(context.Background(), "delete", "-k", "kubelet-identity")
			r.check(err)
		})
		who := kubelet(nodeA)
		config.Impersonate = rest.ImpersonationConfig{UserName: who.Name, Groups: who.Groups}
	case podToken:
		config = rest.AnonymousClientConfig(config)
		config.BearerToken = r.token(r.podOn(nodeA))
	}
	return config
}

// podOn makes a pod of kubecri's on the node, with the rights that the chart gives it.
func (r *rig) podOn(node string) *corev1.Pod {
	r.Helper()
	r.serviceAccount(system, "kubecri")
	_, err := r.kube.RbacV1().ClusterRoleBindings().Create(r.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "kubeslot:kubecri-of-pods"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "kubeslot:kubecri"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: system, Name: "kubecri"}}}, metav1.CreateOptions{})
	r.made(err)
	p, err := r.kube.CoreV1().Pods(system).Create(r.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "kubecri-"},
		Spec: corev1.PodSpec{NodeName: node, ServiceAccountName: "kubecri", Containers: []corev1.Container{{Name: "kubecri", Image: "kubecri"}}}}, metav1.CreateOptions{})
	r.check(err)
	return p
}

// token is one of the ServiceAccount kubecri: of the pod, nil for none.
func (r *rig) token(of *corev1.Pod) string {
	r.Helper()
	request := &authenticationv1.TokenRequest{}
	if of != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: of.Name, UID: of.UID}
	}
	token, err := r.kube.CoreV1().ServiceAccounts(system).CreateToken(r.Context(), "kubecri", request, metav1.CreateOptions{})
	r.check(err)
	return token.Status.Token
}

// thief has a credential by which node-a's kubecri is known.
type thief struct {
	*rig
	kube     kubernetes.Interface
	kubeslot versioned.Interface
	owner    metav1.OwnerReference // node-a
}

func (r *rig) thief(config *rest.Config) *thief {
	r.Helper()
	config.QPS = -1
	s := &thief{rig: r, owner: r.node(nodeA)}
	var err error
	s.kube, err = kubernetes.NewForConfig(config)
	r.check(err)
	s.kubeslot, err = versioned.NewForConfig(config)
	r.check(err)
	r.await("the credential's rights to be in force", func() (bool, string) {
		_, err := s.kubeslot.KubeslotV1alpha1().DeviceSlices().List(r.Context(), metav1.ListOptions{})
		return err == nil, fmt.Sprint(err)
	})
	return s
}

// claim creates a SlotClaim of the node's.
func (s *thief) claim(node, slotName string, change func(*v1alpha1.SlotClaim)) error {
	name, err := slot.Parse(slotName)
	s.check(err)
	c := v1alpha1.NewSlotClaim(name, v1alpha1.SlotClaimSpec{NodeName: node, Level: v1alpha1.ConfigurationLevel, Holder: "rogue"}, s.node(node))
	if change != nil {
		change(c)
	}
	_, err = s.kubeslot.KubeslotV1alpha1().SlotClaims().Create(s.Context(), c, metav1.CreateOptions{})
	return err
}

// report creates a DeviceSlice.
func (s *thief) report(name, node string, change func(*v1alpha1.DeviceSlice), devices ...v1alpha1.Device) error {
	o := &v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{s.owner}},
		Spec: v1alpha1.DeviceSliceSpec{NodeName: node, Devices: devices}}
	if change != nil {
		change(o)
	}
	_, err := s.kubeslot.KubeslotV1alpha1().DeviceSlices().Create(s.Context(), o, metav1.CreateOptions{})
	return err
}

func (s *thief) patchInstance(name, patch string) error {
	_, err := s.kubeslot.AkriV0().Instances("default").Patch(s.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

func (s *thief) patchNode(node, patch string, subresources ...string) error {
	_, err := s.kube.CoreV1().Nodes().Patch(s.Context(), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	return err
}

func (s *thief) patchClaim(name, patch string) error {
	_, err := s.kubeslot.KubeslotV1alpha1().SlotClaims().Patch(s.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

func (s *thief) putClaim(name string, change func(*v1alpha1.SlotClaim)) error {
	claims := s.kubeslot.KubeslotV1alpha1().SlotClaims()
	c, err := claims.Get(s.Context(), name, metav1.GetOptions{})
	s.check(err)
	change(c)
	_, err = claims.Update(s.Context(), c, metav1.UpdateOptions{})
	return err
}

func (s *thief) putSlice(name string, change func(*v1alpha1.DeviceSlice)) error {
	reported := s.kubeslot.KubeslotV1alpha1().DeviceSlices()
	o, err := reported.Get(s.Context(), name, metav1.GetOptions{})
	s.check(err)
	change(o)
	_, err = reported.Update(s.Context(), o, metav1.UpdateOptions{})
	return err
}

func (s *thief) lease(name, holder string) error {
	_, err := s.kube.CoordinationV1().Leases("default").Create(s.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}, metav1.CreateOptions{})
	return err
}

// loot is a device of both nodes and of two slots, of which each node has one: what the
// nodes and the controller write. It returns its Instance's name.
func (r *rig) loot() (instance string) {
	r.Helper()
	device := lootDevice()
	instance = device.Instance()
	_, err := r.kubeslot.AkriV0().Instances("default").Create(r.Context(), &akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Name: instance},
		Spec: akriv0.InstanceSpec{ConfigurationName: "loot", CDIName: "akri.sh/loot=loot0", Capacity: 2, Shared: true, Nodes: []string{nodeA, nodeB}}}, metav1.CreateOptions{})
	r.check(err)
	api := r.kubeslot.KubeslotV1alpha1()
	for i, node := range []string{nodeA, nodeB} {
		owner := r.node(node)
		_, err := api.DeviceSlices().Create(r.Context(), &v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-0", OwnerReferences: []metav1.OwnerReference{owner}},
			Spec: v1alpha1.DeviceSliceSpec{NodeName: node, Devices: []v1alpha1.Device{device}}}, metav1.CreateOptions{})
		r.check(err)
		_, err = api.SlotClaims().Create(r.Context(), v1alpha1.NewSlotClaim(slot.Name{Instance: instance, Index: i},
			v1alpha1.SlotClaimSpec{NodeName: node, Level: v1alpha1.ConfigurationLevel, Holder: "pod-of-" + node}, owner), metav1.CreateOptions{})
		r.check(err)
	}
	r.Cleanup(func() {
		ctx, all := context.Background(), metav1.ListOptions{}
		r.check(r.kubeslot.AkriV0().Instances("default").DeleteCollection(ctx, metav1.DeleteOptions{}, all))
		r.check(api.DeviceSlices().DeleteCollection(ctx, metav1.DeleteOptions{}, all))
		r.check(api.SlotClaims().DeleteCollection(ctx, metav1.DeleteOptions{}, all))
	})
	return instance
}

// lootDevice has properties of these sizes.
func lootDevice(sizes ...int) v1alpha1.Device {
	d := v1alpha1.Device{ID: "loot0", Shared: true, Configuration: v1alpha1.ConfigurationReference{Namespace: "default", Name: "loot"},
		Hash: slot.InstanceHash("loot0", true, "", slot.ShortHash), Properties: map[string]string{}}
	for i, size := range sizes {
		d.Properties[fmt.Sprint("FILL", i)] = strings.Repeat("x", size)
	}
	return d
}

// versions are the resource versions of all that a thief may want to change.
func (r *rig) versions() map[string]string {
	r.Helper()
	out, err := r.Kubectl(r.Context(), "get", "instances,deviceslices,slotclaims,nodes,leases", "-A", "-o",
		`jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.resourceVersion}{"\n"}{end}`)
	r.check(err)
	versions := map[string]string{}
	for line := range strings.Lines(out) {
		name, version, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.HasPrefix(name, "Lease/apiserver-") { // which says that the API server lives
			versions[name] = version
		}
	}
	return versions
}

// A node's credential changes nothing that is not the node's, by whichever of the three
// ways it is known: each attempt is refused with the reason, and nothing has changed.
func TestRogueNodeIsRefused(t *testing.T) {
	for _, by := range []way{certificate, kubelets, podToken} {
		t.Run(string(by), func(t *testing.T) { rogueIsRefused(newRig(t), by) })
	}
}

func rogueIsRefused(r *rig, by way) {
	t := r.T
	name := r.loot()
	own, held := name+"-0", name+"-1"
	s := r.thief(r.identity(by))
	before := r.versions()
	if len(before) < 7 {
		t.Fatalf("there is too little to steal: %v", before)
	}
	for _, attempt := range s.attempts(name, own, held) {
		want, do := attempt.want, attempt.do
		if by == kubelets && attempt.kubelets != "" {
			want = attempt.kubelets
		}
		if want == itsRight {
			continue
		}
		if err := do(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", attempt.what, err, want)
		}
	}
	if after := r.versions(); !maps.Equal(before, after) {
		t.Errorf("what there is has changed from\n%v to\n%v", before, after)
	}
	// What is the node's own it may do: so it is the rules that refuse the rest, and not a
	// credential that may do nothing.
	r.check(s.claim(nodeA, name+"-7", nil))
	r.check(s.kubeslot.KubeslotV1alpha1().SlotClaims().Delete(r.Context(), name+"-7", metav1.DeleteOptions{}))
}

// itsRight is what a kubelet may do by its own right.
const itsRight = "its right"

type attempt struct {
	what, want string
	kubelets   string // the message that a kubelet gets instead, or itsRight
	do         func() error
}

// attempts are what a thief tries: own and held are the slots that node-a and node-b have
// of the Instance.
func (s *thief) attempts(name, own, held string) []attempt {
	ctx := s.Context()
	claims, reported := s.kubeslot.KubeslotV1alpha1().SlotClaims(), s.kubeslot.KubeslotV1alpha1().DeviceSlices()
	owned := fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":%q,"uid":"not-there"}]}}`, nodeB)
	const kept, junk = `{"metadata":{"finalizers":["rogue.test/never"]}}`, `{"metadata":{"annotations":{"rogue.test/a":"b"},"labels":{"rogue.test/c":"d"}}}`
	never := []string{"rogue.test/never"}
	const noEdit, noEnd = `cannot patch resource "instances"`, `cannot delete resource "instances"`
	const ownOnly, owner, metadata = "whose spec.nodeName is its own name", "must have its own Node object as the one owner", "of the metadata a node may set"
	instance := func(patch string) func() error { return func() error { return s.patchInstance(name, patch) } }
	claim := func(node, slotName string, change func(*v1alpha1.SlotClaim)) func() error {
		return func() error { return s.claim(node, slotName, change) }
	}
	report := func(name, node string, change func(*v1alpha1.DeviceSlice), devices ...v1alpha1.Device) func() error {
		return func() error { return s.report(name, node, change, devices...) }
	}
	putSlice := func(name string, change func(*v1alpha1.DeviceSlice)) func() error {
		return func() error { return s.putSlice(name, change) }
	}
	patchNode := func(node, patch string, subresources ...string) func() error {
		return func() error { return s.patchNode(node, patch, subresources...) }
	}
	lease := func(name, holder string) func() error { return func() error { return s.lease(name, holder) } }

	return []attempt{
		{"an Instance's capacity", noEdit, "", instance(`{"spec":{"capacity":50}}`)},
		{"an Instance's owners", noEdit, "", instance(owned)},
		{"an Instance's finalizers", noEdit, "", instance(kept)},
		{"an Instance's annotations", noEdit, "", instance(junk)},
		{"an Instance's deviceUsage", noEdit, "", instance(fmt.Sprintf(`{"spec":{"deviceUsage":{%q:""}}}`, held))},
		{"an Instance's end", noEnd, "", func() error {
			return s.kubeslot.AkriV0().Instances("default").Delete(ctx, name, metav1.DeleteOptions{})
		}},

		{"a claim for node-b", ownOnly, "", claim(nodeB, name+"-7", nil)},
		{"a claim that node-b owns", owner, "", claim(nodeA, name+"-7", func(c *v1alpha1.SlotClaim) { c.OwnerReferences[0].Name = nodeB })},
		{"a claim with two owners", owner, "", claim(nodeA, name+"-7", func(c *v1alpha1.SlotClaim) {
			c.OwnerReferences = append(c.OwnerReferences, v1alpha1.NodeOwner(nodeB, "some-uid"))
		})},
		{"a claim with a finalizer", metadata, "", claim(nodeA, name+"-7", func(c *v1alpha1.SlotClaim) { c.Finalizers = never })},
		{"a claim with a label", metadata, "", claim(nodeA, name+"-7", func(c *v1alpha1.SlotClaim) { c.Labels["rogue.test/a"] = "b" })},
		{"a claim on a taken slot", "already exists", "", claim(nodeA, held, nil)},
		{"node-b's claim deleted", ownOnly, "", func() error { return claims.Delete(ctx, held, metav1.DeleteOptions{}) }},
		{"node-b's claim edited", "spec cannot be changed", "", func() error { return s.patchClaim(held, `{"spec":{"nodeName":"node-a"}}`) }},
		{"a pod's name on node-b's claim", ownOnly, "", func() error {
			return s.patchClaim(held, `{"metadata":{"annotations":{"kubeslot.io/pod":"default/mine"}}}`)
		}},
		{"its own claim edited", "spec cannot be changed", "", func() error { return s.patchClaim(own, `{"spec":{"holder":"another"}}`) }},
		{"its own claim's annotations", metadata, "", func() error { return s.patchClaim(own, junk) }},
		{"node-b's claim replaced", `cannot update resource "slotclaims"`, "", func() error {
			return s.putClaim(held, func(c *v1alpha1.SlotClaim) { c.Spec.NodeName, c.OwnerReferences[0] = nodeA, s.owner })
		}},
		{"its own claim replaced", `cannot update resource "slotclaims"`, "", func() error {
			return s.putClaim(own, func(c *v1alpha1.SlotClaim) { c.Finalizers = never })
		}},
		{"its own claim's finalizers", metadata, "", func() error { return s.patchClaim(own, kept) }},

		{"a slice for node-b", ownOnly, "", report("node-a-77", nodeB, nil)},
		{"a slice with node-b's name", "a node may name its DeviceSlices only node-a-", "", report("node-b-77", nodeA, nil)},
		{"a slice of 300 KiB", "may take at most 256 KiB", "", report("node-a-77", nodeA, nil, slices.Repeat([]v1alpha1.Device{lootDevice(60 << 10)}, 5)...)},
		{"a device of 300 KiB", "a device may take at most 64 KiB", "", report("node-a-77", nodeA, nil, lootDevice(60<<10, 60<<10, 60<<10, 60<<10, 60<<10))},
		{"a slice of 65,536 properties", "at most 8192 properties", "", report("node-a-77", nodeA, nil, slices.Repeat([]v1alpha1.Device{lootDevice(make([]int, 256)...)}, 256)...)},
		{"a property of 1 MiB", "Too long", "", report("node-a-77", nodeA, nil, lootDevice(1<<20))},
		{"a slice that node-b owns", owner, "", report("node-a-77", nodeA, func(o *v1alpha1.DeviceSlice) { o.OwnerReferences[0].Name = nodeB })},
		{"a slice with a finalizer", metadata, "", report("node-a-77", nodeA, func(o *v1alpha1.DeviceSlice) { o.Finalizers = never })},
		{"a slice with an annotation", metadata, "", report("node-a-77", nodeA, func(o *v1alpha1.DeviceSlice) { o.Annotations = map[string]string{"rogue.test/a": "b"} })},
		{"node-b's slice emptied", ownOnly, "", putSlice("node-b-0", func(o *v1alpha1.DeviceSlice) { o.Spec.Devices = nil })},
		{"node-b's slice deleted", ownOnly, "", func() error { return reported.Delete(ctx, "node-b-0", metav1.DeleteOptions{}) }},
		{"its own slice's owners", owner, "", putSlice("node-a-0", func(o *v1alpha1.DeviceSlice) { o.OwnerReferences = nil })},
		{"its own slice's finalizers", metadata, "", putSlice("node-a-0", func(o *v1alpha1.DeviceSlice) { o.Finalizers = never })},
		{"a slice beyond the number that a node may have", "a node may name its DeviceSlices only node-a-0 to node-a-99", "", report("node-a-100", nodeA, nil)},

		{"its own Node deleted", `cannot delete resource "nodes"`, "", func() error { return s.kube.CoreV1().Nodes().Delete(ctx, nodeA, metav1.DeleteOptions{}) }},
		{"its own Node's owners", `cannot patch resource "nodes"`, "not allowed to modify ownerReferences", patchNode(nodeA, owned)},
		{"its own Node's owners through its status", "kubecri may change only", "not allowed to modify ownerReferences", patchNode(nodeA, owned, "status")},
		{"its own Node's finalizers through its status", "kubecri may change only", itsRight, patchNode(nodeA, kept, "status")},
		{"its own Node's labels and annotations through its status", "kubecri may change only", itsRight, patchNode(nodeA, junk, "status")},
		{"its own Node's conditions", "kubecri may change only the capacity, the allocatable and the conditions kubeslot.io/*", itsRight,
			patchNode(nodeA, `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`, "status")},
		{"its own Node's CPUs", "kubecri may advertise only akri.sh resources", itsRight, patchNode(nodeA, `{"status":{"capacity":{"cpu":"999"}}}`, "status")},
		{"2,000 resources of its own Node", "a node of at most 512 resources", itsRight, patchNode(nodeA, resources(2000), "status")},
		{"300 resources of its own Node", "at most 256 akri.sh resources", itsRight, patchNode(nodeA, resources(300), "status")},
		{"node-b's totals", "kubecri may change only its own node", "is not allowed to modify node", patchNode(nodeB, `{"status":{"capacity":{"akri.sh/loot":"0"}}}`, "status")},

		{"a lease of its own choice", "whose names begin with kubeslot-discovery-", `cannot create resource "leases"`, lease("rogue", nodeA)},
		{"a lease for node-b", "its own node the holder", `cannot create resource "leases"`, lease("kubeslot-discovery-loot-0", nodeB)},
		{"a lease of no Configuration", "have that Configuration as its one owner", `cannot create resource "leases"`, lease("kubeslot-discovery-loot-0", nodeA)},
	}
}
