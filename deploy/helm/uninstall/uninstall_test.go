package uninstall

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	akrifake "github.com/kubeslot/kubeslot/types/client/clientset/versioned/fake"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

const namespace = "kubeslot-system"

// cluster is a fake API server whose kubelets end each pod at once, as ends says.
type cluster struct {
	kube    *fake.Clientset
	client  *akrifake.Clientset
	out     bytes.Buffer
	cleaned []string // nodes without a pod, in the order of their names
	ran     map[string]bool
	slices  []string // by which fields ResourceSlices were deleted
}

func newCluster(ends func(node string) corev1.PodStatus, kube []runtime.Object, akri ...runtime.Object) *cluster {
	c := &cluster{kube: fake.NewClientset(kube...), client: akrifake.NewSimpleClientset(akri...), ran: map[string]bool{}}
	c.kube.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		p := a.(clienttesting.CreateAction).GetObject().(*corev1.Pod)
		if _, err := c.kube.Tracker().Get(a.GetResource(), p.Namespace, p.Name); err == nil {
			return false, nil, nil
		}
		c.ran[p.Spec.NodeName] = true
		p.Status = ends(p.Spec.NodeName)
		return false, nil, nil
	})
	c.kube.PrependReactor("delete-collection", "resourceslices",
		func(a clienttesting.Action) (bool, runtime.Object, error) {
			c.slices = append(c.slices, a.(clienttesting.DeleteCollectionAction).GetListRestrictions().Fields.String())
			return true, nil, nil
		})
	return c
}

func (c *cluster) run(t *testing.T, timeout time.Duration) error {
	t.Helper()
	return c.runWith(t, timeout, &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "cleanup"}},
		NodeSelector: map[string]string{"kubernetes.io/os": "linux"}, Affinity: notVirtual}})
}

// runWith runs the pod on nodes, or cleans none without one.
func (c *cluster) runWith(t *testing.T, timeout time.Duration, pod *corev1.Pod) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return Run(ctx, Config{
		Release: "kubeslot", Namespace: namespace, Pod: pod,
		CleanNode: func(_ context.Context, node string) ([]string, error) {
			c.cleaned = append(c.cleaned, node)
			if node == "lost" {
				return nil, errors.New("no rights")
			}
			return []string{"its resources are gone"}, nil
		},
		Kube: c.kube, Client: c.client, Parallel: 1, Interval: time.Millisecond, Out: &c.out,
	})
}

// notVirtual keeps away from virtual nodes, as kubecri's pods do by default.
var notVirtual = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
	RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: "type", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"virtual-kubelet"}},
		}}},
	},
}}

func node(name string, ready corev1.ConditionStatus, os string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/os": os}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}}
}

func ended(phase corev1.PodPhase, message string) corev1.PodStatus {
	return corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{Message: message, Reason: "Completed"}}}}}
}

func well(string) corev1.PodStatus { return ended(corev1.PodSucceeded, "removed /var/lib/kubecri\n") }

func ours(name, component, on string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{
		"app.kubernetes.io/part-of": "kubeslot", "app.kubernetes.io/instance": "kubeslot", "app.kubernetes.io/name": component}},
		Spec: corev1.PodSpec{NodeName: on}, Status: corev1.PodStatus{Phase: phase}}
}

func lease(namespace, name string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func TestRunCleansEachNodeOnceAndDeletesWhatIsTheReleases(t *testing.T) {
	configuration := func(name string, annotations map[string]string) *akriv0.Configuration {
		return &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: annotations}}
	}
	of := func(release, hook string) map[string]string {
		return map[string]string{"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": namespace, "helm.sh/hook": hook}
	}
	ready := configuration("users", nil)
	ready.Status.Instances, ready.Status.Conditions = 2, []metav1.Condition{{Type: akriv0.ConditionReady, Status: metav1.ConditionTrue, Reason: "DevicesFound"}}
	virtual := node("v", corev1.ConditionTrue, "linux")
	virtual.Labels["type"] = "virtual-kubelet"
	c := newCluster(well, []runtime.Object{
		node("a", corev1.ConditionTrue, "linux"), node("b", corev1.ConditionTrue, "linux"),
		node("w", corev1.ConditionTrue, "windows"), virtual,
		ours("kubeslot-uninstall-a", "uninstall-node", "a", corev1.PodRunning), // of an earlier attempt
		ours("kubeslot-uninstall-x7", "uninstall", "a", corev1.PodRunning),     // this Job's
		lease(namespace, "kubeslot-scheduler"), lease("kube-system", "kubeslot-controller"),
		lease("kube-system", "kube-scheduler"),
		lease("default", "kubeslot-discovery-cam-0"), // its Configuration's
	},
		configuration("charts", of("kubeslot", "post-install,post-rollback")), configuration("of-another", of("other", "post-install")),
		configuration("adopted", of("kubeslot", "")), ready)
	if err := c.run(t, time.Minute); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]bool{"a": true, "b": true}, c.ran); diff != "" {
		t.Errorf("nodes with a pod (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a", "b"}, slices.Sorted(slices.Values(c.cleaned))); diff != "" {
		t.Errorf("nodes cleaned in the API server (-want +got):\n%s", diff)
	}
	if want := "node b: removed /var/lib/kubecri\n"; !strings.Contains(c.out.String(), want) {
		t.Errorf("it says\n%swant %s", &c.out, want)
	}
	pods, _ := c.kube.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	if len(pods.Items) != 1 || pods.Items[0].Name != "kubeslot-uninstall-x7" {
		t.Errorf("pods %v are left, want the Job's alone", pods.Items)
	}
	leases, _ := c.kube.CoordinationV1().Leases("").List(t.Context(), metav1.ListOptions{})
	var names []string
	for _, l := range leases.Items {
		names = append(names, l.Name)
	}
	if diff := cmp.Diff([]string{"kubeslot-discovery-cam-0", "kube-scheduler"}, names); diff != "" {
		t.Errorf("Leases (-want +got):\n%s", diff)
	}
	configurations, _ := c.client.AkriV0().Configurations("").List(t.Context(), metav1.ListOptions{})
	names = nil
	for _, c := range configurations.Items {
		names = append(names, c.Name)
		if ready := meta.FindStatusCondition(c.Status.Conditions, akriv0.ConditionReady); ready == nil || ready.Status != metav1.ConditionFalse || ready.Reason != "NotInstalled" || c.Status.Instances != 0 || len(c.Status.Problems) != 1 {
			t.Errorf("Configuration %s says %+v", c.Name, c.Status)
		}
	}
	if diff := cmp.Diff([]string{"adopted", "of-another", "users"}, names); diff != "" {
		t.Errorf("Configurations (-want +got):\n%s", diff)
	}
}

// Where kubecri is not the release's it runs on, and nodes stay as they are.
func TestRunLeavesNodesOfAnotherKubecri(t *testing.T) {
	users := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "users"}}
	c := newCluster(well, []runtime.Object{node("a", corev1.ConditionTrue, "linux"),
		lease("kube-system", "kubeslot-controller")}, users, claimed("cam-8120fe-0", "a", "cam"))
	if err := c.runWith(t, 10*time.Second, nil); err != nil {
		t.Fatal(err)
	}
	if len(c.ran)+len(c.cleaned) > 0 {
		t.Errorf("nodes with a pod: %v, nodes cleaned: %v", c.ran, c.cleaned)
	}
	leases, _ := c.kube.CoordinationV1().Leases("").List(t.Context(), metav1.ListOptions{})
	left, err := c.client.AkriV0().Configurations("default").Get(t.Context(), "users", metav1.GetOptions{})
	if len(leases.Items) > 0 || err != nil || len(left.Status.Problems) != 1 {
		t.Errorf("Leases %v, Configuration %+v, %v", leases.Items, left, err)
	}
}

func claimed(name, node, resourceClaim string) *v1alpha1.SlotClaim {
	return &v1alpha1.SlotClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.SlotClaimSpec{NodeName: node,
		ResourceClaim: &v1alpha1.ResourceClaimReference{Namespace: "default", Name: resourceClaim}}}
}

// A kubelet lets go of no pod whose ResourceClaims it cannot unprepare.
func TestRunSaysWhichPodsCannotGo(t *testing.T) {
	c := newCluster(well, []runtime.Object{node("a", corev1.ConditionTrue, "linux")},
		claimed("cam-8120fe-0", "a", "gate"), claimed("cam-8120fe-1", "a", "gate"),
		claimed("cam-8120fe-2", "a", "door"))
	err := c.run(t, 10*time.Second)
	const want = "driver slots.kubeslot.io: default/door, default/gate. Once such a pod is deleted it stays Terminating"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Run() = %v, want %q", err, want)
	}
	if !c.ran["a"] || len(c.cleaned) != 1 {
		t.Error("the node was not cleaned")
	}
}

func TestRunSaysWhatIsLeft(t *testing.T) { synctest.Test(t, testRunSaysWhatIsLeft) }

func testRunSaysWhatIsLeft(t *testing.T) {
	status := map[string]corev1.PodStatus{
		"fails": ended(corev1.PodFailed, "kubecri still runs on this node"),
		"pulls": {Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "not found"}}}}},
		"full": {Phase: corev1.PodFailed, Reason: "OutOfpods", Message: "too many pods"},
	}
	c := newCluster(func(node string) corev1.PodStatus { return status[node] }, []runtime.Object{
		node("fails", corev1.ConditionTrue, "linux"), node("full", corev1.ConditionTrue, "linux"), node("lost", corev1.ConditionUnknown, "linux"),
		node("off", corev1.ConditionFalse, "linux"), node("pulls", corev1.ConditionTrue, "linux"),
		ours("kubecri-off", "kubecri", "off", corev1.PodRunning), // never ends
	})
	err := c.run(t, 2*time.Second)
	for _, want := range []string{
		"node fails: pod kubeslot-system/kubeslot-uninstall-fails: kubecri still runs on this node; its files stay: remove them there with `kubecri cleanup`",
		"node full: pod kubeslot-system/kubeslot-uninstall-full: OutOfpods: too many pods; its files stay",
		"node off: the node is not ready; its files stay",
		"node lost: the node is not ready; its files stay: remove them there with `kubecri cleanup`\nwhat the API server has of it stays: no rights",
		"the time is over: its container waits: ImagePullBackOff: not found",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Run() = %v\nwant %s", err, want)
		}
	}
	if diff := cmp.Diff([]string{"fails", "full", "lost", "off", "pulls"}, c.cleaned); diff != "" {
		t.Errorf("nodes cleaned in the API server alone (-want +got):\n%s", diff)
	}
	if pods, _ := c.kube.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{}); len(pods.Items) != 1 {
		t.Errorf("%d pods are left, want that of the node that is off", len(pods.Items))
	}
}

// A kubecri that runs would write again what is removed.
func TestRunWaitsForTheReleasesPods(t *testing.T) { synctest.Test(t, testRunWaitsForTheReleasesPods) }

func testRunWaitsForTheReleasesPods(t *testing.T) {
	c := newCluster(well, []runtime.Object{node("a", corev1.ConditionTrue, "linux"), ours("kubecri-a", "kubecri", "a", corev1.PodRunning)})
	lists := 0
	c.kube.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		if lists++; lists == 3 {
			if len(c.ran) > 0 {
				t.Error("a node was cleaned while its kubecri ran")
			}
			_ = c.kube.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), namespace, "kubecri-a")
		}
		return false, nil, nil
	})
	if err := c.run(t, time.Minute); err != nil {
		t.Fatal(err)
	}
	if !c.ran["a"] {
		t.Error("the node was not cleaned")
	}

	c = newCluster(well, []runtime.Object{node("a", corev1.ConditionTrue, "linux"), ours("kubecri-a", "kubecri", "a", corev1.PodRunning)})
	if err := c.run(t, 50*time.Millisecond); err == nil || !strings.Contains(err.Error(), "pods kubecri-a have not ended") {
		t.Errorf("with a pod that never ends Run() = %v", err)
	}
}

// While a node is cleaned the API server may be away for a moment.
func TestRunGoesOnWhenTheAPIServerIsBack(t *testing.T) {
	c := newCluster(well, []runtime.Object{node("a", corev1.ConditionTrue, "linux")})
	for _, verb := range []string{"list", "create", "get", "delete"} {
		times := 0
		c.kube.PrependReactor(verb, "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			times++
			return times <= 2, nil, errors.New("connection refused")
		})
	}
	if err := c.run(t, time.Minute); err != nil || !c.ran["a"] {
		t.Errorf("Run() = %v, with a pod on the node: %t", err, c.ran["a"])
	}
}

func TestRunDeletesTheObjectsOfDRA(t *testing.T) {
	class := func(name, label string) *resourceapi.DeviceClass {
		c := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if label != "" {
			c.Labels = map[string]string{"kubeslot.io/configuration": label}
		}
		return c
	}
	c := newCluster(well, []runtime.Object{class("cam.slots.kubeslot.io", "cam"), class("usb.slots.kubeslot.io", "usb"),
		class("mine", "cam"), class("udev.slots.kubeslot.io", ""), class("gpu.example.com", "")})
	refused := errors.New("not now")
	c.kube.PrependReactor("delete", "deviceclasses", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return a.(clienttesting.DeleteAction).GetName() == "cam.slots.kubeslot.io", nil, refused
	})
	if err := c.run(t, time.Minute); !errors.Is(err, refused) ||
		!strings.Contains(err.Error(), "delete DeviceClass cam.slots.kubeslot.io: ") {
		t.Errorf("Run() = %v, want %v", err, refused)
	}
	left, _ := c.kube.ResourceV1().DeviceClasses().List(t.Context(), metav1.ListOptions{})
	var names []string
	for _, c := range left.Items {
		names = append(names, c.Name)
	}
	want := []string{"cam.slots.kubeslot.io", "gpu.example.com", "mine", "udev.slots.kubeslot.io"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("DeviceClasses (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"spec.driver=slots.kubeslot.io"}, c.slices); diff != "" {
		t.Errorf("ResourceSlices that were deleted (-want +got):\n%s", diff)
	}
}

// An API server without DRA has nothing to delete.
func TestRunWithoutDRA(t *testing.T) {
	c := newCluster(well, nil)
	c.kube.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		resource := a.GetResource()
		return resource.Group == "resource.k8s.io", nil, apierrors.NewNotFound(resource.GroupResource(), "")
	})
	if err := c.run(t, time.Minute); err != nil {
		t.Error(err)
	}
}

// With crds.keep=false the kinds are gone before this runs.
func TestRunWithoutTheKinds(t *testing.T) {
	c := newCluster(well, []runtime.Object{node("a", corev1.ConditionTrue, "linux")})
	c.client.PrependReactor("list", "configurations", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(a.GetResource().GroupResource(), "")
	})
	if err := c.run(t, time.Minute); err != nil {
		t.Error(err)
	}
}

func TestPodName(t *testing.T) {
	long := strings.Repeat("n", 252)
	for _, tc := range []struct{ node, want string }{{"node-a.example", "kubeslot-uninstall-node-a.example"}, {long + "a", ""}} {
		if got := podName(tc.node); len(got) > 253 || tc.want != "" && got != tc.want {
			t.Errorf("podName(%s) = %s (%d characters), want %s", tc.node, got, len(got), tc.want)
		}
	}
	if podName(long+"a") == podName(long+"b") {
		t.Error("two nodes have one pod name")
	}
}
