package ui

import (
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
	kubedevice "github.com/kubeslot/kubeslot/types"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// cluster is a cluster's objects, which a test changes; a Live. Safe for concurrent use.
type cluster struct {
	mu      sync.Mutex
	o       view.Objects
	missing []string
	err     error
	changed chan struct{}
}

func newCluster() *cluster { return &cluster{changed: make(chan struct{}, 1)} }

// change changes the objects; the function replaces what it changes, and keeps the rest.
func (c *cluster) change(how func(o *view.Objects)) {
	c.mu.Lock()
	how(&c.o)
	c.mu.Unlock()
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

func (c *cluster) fail(err error) {
	c.change(func(*view.Objects) { c.err = err })
}

func (c *cluster) Objects() view.Objects {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.o
}

func (c *cluster) Missing() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.missing
}

func (c *cluster) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *cluster) Changed() <-chan struct{} { return c.changed }

// added and without make a new slice: a View keeps the old one.
func added[T any](to []T, more ...T) []T { return append(to[:len(to):len(to)], more...) }

func without[T any](from []T, which func(*T) bool) []T {
	var kept []T
	for i := range from {
		if !which(&from[i]) {
			kept = append(kept, from[i])
		}
	}
	return kept
}

// instanceOf is the name of the Instance of a shared device, or of a node's own.
func instanceOf(configuration, id, node string) string {
	return slot.InstanceName(configuration, slot.InstanceHash(id, node == "", node, slot.ShortHash))
}

// configuration adds a Configuration.
func configuration(o *view.Objects, name string, capacity int32, began time.Time) {
	o.Configurations = added(o.Configurations, akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(began)},
		Spec:       akriv0.ConfigurationSpec{Capacity: capacity, DiscoveryHandler: akriv0.DiscoveryHandlerInfo{Name: "debugEcho"}}})
}

// device adds a device that the nodes reach: shared unless it is one node alone.
func device(o *view.Objects, configuration, id string, capacity int32, shared bool, nodes ...string) {
	own := ""
	if !shared {
		own = nodes[0]
	}
	o.Instances = added(o.Instances, akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: instanceOf(configuration, id, own)},
		Spec: akriv0.InstanceSpec{ConfigurationName: configuration, Capacity: capacity, Shared: shared, Nodes: nodes}})
	for _, node := range nodes {
		d := v1alpha1.Device{Configuration: v1alpha1.ConfigurationReference{Namespace: "default", Name: configuration}, ID: id, Shared: shared,
			Hash: slot.InstanceHash(id, shared, own, slot.ShortHash)}
		for i := range o.Slices {
			if o.Slices[i].Spec.NodeName == node {
				o.Slices[i].Spec.Devices = append(o.Slices[i].Spec.Devices, d)
			}
		}
	}
}

// node adds a node that reports devices.
func node(o *view.Objects, name string) {
	o.Nodes = added(o.Nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}})
	o.Slices = added(o.Slices, v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: name + "-0"}, Spec: v1alpha1.DeviceSliceSpec{NodeName: name}})
}

// notReady has the node's kubelet say nothing any more.
func notReady(o *view.Objects, name string) {
	o.Nodes = added(o.Nodes)
	for i := range o.Nodes {
		if o.Nodes[i].Name == name {
			o.Nodes[i].Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
		}
	}
}

// podOf is a pod that asks for devices and has no node.
func podOf(namespace, name, resourceName string, count int64, created time.Time) corev1.Pod {
	list := corev1.ResourceList{corev1.ResourceName(assignment.ResourcePrefix + resourceName): *resource.NewQuantity(count, resource.DecimalSI)}
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name), CreationTimestamp: metav1.NewTime(created)},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: list, Requests: list}}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Reason: "Unschedulable", Message: `0/2 nodes are available: 2 node(s) reach too few Instances for akri.sh/cameras: container "main" needs 3 different ones (uniqueDevices), 2 reached.`, LastTransitionTime: metav1.NewTime(created)}}}}
}

// assigned is the pod on the node, with the slots, not yet started.
func assigned(t testing.TB, p corev1.Pod, node string, resourceName string, at time.Time, slots ...string) corev1.Pod {
	t.Helper()
	var grants []assignment.Grant
	for i, text := range slots {
		name, err := slot.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		grants = append(grants, assignment.Grant{Resource: resourceName, Ordinal: i, Slot: name})
	}
	var c kubedevice.ContainerInfo
	assignment.Set(&c, grants)
	annotations, err := assignment.Encode(&kubedevice.PodInfo{NodeName: node, RunningContainers: map[string]kubedevice.ContainerInfo{"main": c}}, string(p.UID), nil)
	if err != nil {
		t.Fatal(err)
	}
	p.Annotations, p.Spec.NodeName = annotations, node
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at)}}
	return p
}

// running is the assigned pod, started at the time.
func running(p corev1.Pod, at time.Time) corev1.Pod {
	p.Status.Phase = corev1.PodRunning
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(at)}}}}
	return p
}

// claimOf is a node's claim of a slot for a pod.
func claimOf(name string, pod *corev1.Pod, level v1alpha1.Level, at time.Time) v1alpha1.SlotClaim {
	return v1alpha1.SlotClaim{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(at)}, Spec: v1alpha1.SlotClaimSpec{
		NodeName: pod.Spec.NodeName, Container: "main", Level: level, Holder: string(pod.UID),
		Pod: &v1alpha1.PodReference{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}}}
}

// holds has a running pod hold slots of a Configuration.
func holds(t testing.TB, o *view.Objects, namespace, name, node, resourceName string, at time.Time, slots ...string) {
	t.Helper()
	p := running(assigned(t, podOf(namespace, name, resourceName, int64(len(slots)), at), node, resourceName, at, slots...), at)
	o.Pods = added(o.Pods, p)
	for _, s := range slots {
		o.Claims = added(o.Claims, claimOf(s, &p, v1alpha1.ConfigurationLevel, at))
		mirror(t, o, s, &p)
	}
}

// mirror writes into the slot's Instance who uses it, as the controller does.
func mirror(t testing.TB, o *view.Objects, name string, pod *corev1.Pod) {
	t.Helper()
	at, err := slot.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	o.Instances = added(o.Instances)
	for i := range o.Instances {
		if in := &o.Instances[i]; in.Name == at.Instance {
			usage := map[string]string{name: "C:" + string(pod.UID) + ":" + pod.Spec.NodeName}
			maps.Copy(usage, in.Spec.DeviceUsage)
			in.Spec.DeviceUsage = usage
		}
	}
}

// small is a cluster of two nodes: two shared cameras of three slots and a GPU of each
// node of four, a pod that has two cameras, one that is starting and one that waits.
func small(t testing.TB, now time.Time) *cluster {
	c := newCluster()
	o := &c.o
	node(o, "node-a")
	node(o, "node-b")
	configuration(o, "cameras", 3, now.Add(-24*time.Hour))
	configuration(o, "gpus", 4, now.Add(-24*time.Hour))
	device(o, "cameras", "gate", 3, true, "node-a", "node-b")
	device(o, "cameras", "yard", 3, true, "node-a", "node-b")
	device(o, "gpus", "GPU-0", 4, false, "node-a")
	device(o, "gpus", "GPU-0", 4, false, "node-b")
	gate, yard := instanceOf("cameras", "gate", ""), instanceOf("cameras", "yard", "")
	holds(t, o, "default", "viewer-1", "node-a", "cameras", now.Add(-40*time.Minute), gate+"-0", yard+"-0")
	holds(t, o, "team-b", "viewer-2", "node-b", "cameras", now.Add(-12*time.Minute), gate+"-1")
	o.Pods = added(o.Pods, assigned(t, podOf("default", "starts", "gpus", 1, now), "node-a", "gpus", now.Add(-3*time.Second), instanceOf("gpus", "GPU-0", "node-a")+"-0"))
	o.Pods = added(o.Pods, podOf("default", "waits", "cameras", 3, now.Add(-90*time.Second)))
	return c
}

// large is a cluster of so many shared devices with so many slots, of which four in five
// are held, each by a pod of its own.
func large(t testing.TB, instances, capacity int, now time.Time) *cluster {
	c := newCluster()
	o := &c.o
	const nodes = 50
	for i := range nodes {
		node(o, fmt.Sprintf("node-%03d", i))
	}
	configuration(o, "sensors", int32(capacity), now.Add(-24*time.Hour))
	for i := range instances {
		at := fmt.Sprintf("node-%03d", i%nodes)
		id := fmt.Sprintf("sensor-%05d", i)
		device(o, "sensors", id, int32(capacity), false, at)
		name := instanceOf("sensors", id, at)
		usage := map[string]string{}
		o.Instances[i].Spec.DeviceUsage = usage
		for s := range capacity * 4 / 5 {
			p := running(assigned(t, podOf("plant", fmt.Sprintf("reader-%05d-%d", i, s), "sensors", 1, now.Add(-2*time.Hour)), at, "sensors", now.Add(-2*time.Hour), fmt.Sprintf("%s-%d", name, s)), now.Add(-2*time.Hour))
			o.Pods = append(o.Pods, p)
			usage[fmt.Sprintf("%s-%d", name, s)] = "C:" + string(p.UID) + ":" + at
			o.Claims = append(o.Claims, claimOf(fmt.Sprintf("%s-%d", name, s), &p, v1alpha1.ConfigurationLevel, now.Add(-time.Duration(i%110)*time.Minute)))
		}
	}
	return c
}
