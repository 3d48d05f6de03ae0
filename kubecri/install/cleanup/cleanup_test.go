package cleanup

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubefake "k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"github.com/kubeslot/kubeslot/types/client/clientset/versioned/fake"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

func amounts(names ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for _, name := range names {
		list[corev1.ResourceName(name)] = resource.MustParse("2")
	}
	return list
}

func node() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-a",
			Labels: map[string]string{"gpu.kubeslot.io/count": "8", "nvidia.com/gpu.count": "8"},
			Annotations: map[string]string{"kubeslot.io/plugin-labels": "gpu.kubeslot.io/count,gpu.kubeslot.io/gone",
				"KubeDevice/DeviceInfo": "{}", "kubeslot.io/plugin-resources": "example.com/widget",
				"kubeslot.io/nri-plugin": "kubecri", "other": "stays"}},
		Status: corev1.NodeStatus{
			Capacity:    amounts("cpu", "akri.sh/cam", "example.com/widget", "example.com/others"),
			Allocatable: amounts("cpu", "akri.sh/cam", "example.com/widget", "example.com/others", "akri.sh/gone"),
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
				{Type: "kubeslot.io/ContainersWithoutDevices", Status: corev1.ConditionFalse}, {Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse}},
		},
	}
}

func quickly(t *testing.T) {
	first, second, third := usual, devicePlugin, every
	every = time.Millisecond
	usual = patience{5 * time.Millisecond, time.Minute}
	devicePlugin = patience{100 * time.Millisecond, time.Minute}
	t.Cleanup(func() { usual, devicePlugin, every = first, second, third })
}

func objects() *fake.Clientset {
	slice := func(name, node string) *v1alpha1.DeviceSlice {
		return &v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.DeviceSliceSpec{NodeName: node}}
	}
	claim := func(name, node string) *v1alpha1.SlotClaim {
		return &v1alpha1.SlotClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.SlotClaimSpec{NodeName: node}}
	}
	return fake.NewSimpleClientset(slice("node-a-0", "node-a"), slice("node-b-0", "node-b"), claim("cam-8120fe-0", "node-a"), claim("cam-8120fe-1", "node-b"))
}

func TestNode(t *testing.T) {
	quickly(t)
	kube, client := kubefake.NewClientset(node()), objects()
	removed, err := Node(t.Context(), kube, client, "node-a")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"deviceslice node-a-0", "slotclaim cam-8120fe-0",
		"allocatable akri.sh/cam", "allocatable akri.sh/gone", "allocatable example.com/widget",
		"annotation KubeDevice/DeviceInfo",
		"annotation kubeslot.io/nri-plugin", "annotation kubeslot.io/plugin-labels",
		"annotation kubeslot.io/plugin-resources", "capacity akri.sh/cam", "capacity example.com/widget",
		"condition kubeslot.io/ContainersWithoutDevices", "label gpu.kubeslot.io/count"}
	if diff := cmp.Diff(want, removed); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
	now, err := kube.CoreV1().Nodes().Get(t.Context(), "node-a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rest := node()
	rest.Annotations, rest.Labels = map[string]string{"other": "stays"}, map[string]string{"nvidia.com/gpu.count": "8"}
	rest.Status.Capacity, rest.Status.Allocatable = amounts("cpu", "example.com/others"), amounts("cpu", "example.com/others")
	rest.Status.Conditions = slices.Delete(rest.Status.Conditions, 1, 2)
	if diff := cmp.Diff(rest, now); diff != "" {
		t.Errorf("the node (-want +got):\n%s", diff)
	}
	reports, _ := client.KubeslotV1alpha1().DeviceSlices().List(t.Context(), metav1.ListOptions{})
	claims, _ := client.KubeslotV1alpha1().SlotClaims().List(t.Context(), metav1.ListOptions{})
	if len(reports.Items) != 1 || len(claims.Items) != 1 || claims.Items[0].Name != "cam-8120fe-1" {
		t.Errorf("objects of node-b: %d slices, %d claims", len(reports.Items), len(claims.Items))
	}
	if again, err := Node(t.Context(), kube, client, "node-a"); len(again) > 0 || err != nil {
		t.Errorf("again: %q, %v", again, err)
	}
}

// Whether containers use the slots is not known here: who deletes the claims is told which they are.
func TestClaimed(t *testing.T) {
	client := objects()
	again := &v1alpha1.SlotClaim{ObjectMeta: metav1.ObjectMeta{Name: "cam-8120fe-2"},
		Spec: v1alpha1.SlotClaimSpec{NodeName: "node-a", Pod: &v1alpha1.PodReference{Namespace: "default", Name: "p"}}}
	byDRA := &v1alpha1.SlotClaim{ObjectMeta: metav1.ObjectMeta{Name: "cam-8120fe-3"}, Spec: v1alpha1.SlotClaimSpec{
		NodeName: "node-a", ResourceClaim: &v1alpha1.ResourceClaimReference{Namespace: "default", Name: "gate"}}}
	seen := &v1alpha1.SlotClaim{ObjectMeta: metav1.ObjectMeta{Name: "cam-8120fe-4", Annotations: map[string]string{
		v1alpha1.PodAnnotation: "\x1b[2J"}}, Spec: v1alpha1.SlotClaimSpec{NodeName: "node-a"}}
	for _, claim := range []*v1alpha1.SlotClaim{again, byDRA, seen} {
		if err := client.Tracker().Add(claim); err != nil {
			t.Fatal(err)
		}
	}
	told := Claimed(t.Context(), client, "node-a")
	for _, part := range []string{"4 slots", "cam-8120fe-0 (pod not known)", "cam-8120fe-2 (pod default/p)",
		`cam-8120fe-4 (pod "\x1b[2J")`,
		"cam-8120fe-3 (ResourceClaim default/gate)", "Drain node node-a"} {
		if !strings.Contains(told, part) {
			t.Errorf("%q does not say %q", told, part)
		}
	}
	if told := Claimed(t.Context(), client, "node-c"); told != "" {
		t.Errorf("of a node without claims: %q", told)
	}
}

// stubborn is a node in device-plugin mode, whose kubelet writes its resources again times times. Each
// time it calls wrote.
func stubborn(times int, wrote func()) *kubefake.Clientset {
	n := node()
	n.Labels = map[string]string{v1alpha1.ModeLabel: v1alpha1.ModeDevicePlugin, "other": "stays"}
	kube := kubefake.NewClientset(n)
	nodes := corev1.SchemeGroupVersion.WithResource("nodes")
	last := time.Now()
	kube.PrependReactor("get", "nodes", func(ktesting.Action) (bool, runtime.Object, error) {
		obj, err := kube.Tracker().Get(nodes, "", "node-a")
		if err != nil || times == 0 || time.Since(last) < 20*time.Millisecond {
			return false, nil, nil
		}
		again := obj.(*corev1.Node).DeepCopy()
		for _, name := range []corev1.ResourceName{"akri.sh/cam", "example.com/widget"} {
			again.Status.Capacity[name] = resource.MustParse("0")
		}
		last, times = time.Now(), times-1
		defer wrote()
		return false, nil, kube.Tracker().Update(nodes, again, "")
	})
	return kube
}

// In device-plugin mode the kubelet writes its resources again and again, for a while. The next run
// knows that, too, when one is interrupted; and objects of the API are gone then.
func TestDevicePluginMode(t *testing.T) {
	for name, interrupted := range map[string]bool{"at once": false, "interrupted": true} {
		t.Run(name, func(t *testing.T) {
			quickly(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			writes, client := 0, objects()
			kube := stubborn(3, func() {
				if writes++; interrupted {
					cancel()
				}
			})
			if interrupted {
				if _, err := Node(ctx, kube, client, "node-a"); !errors.Is(err, context.Canceled) {
					t.Fatalf("ended with %v", err)
				}
				if left := Claimed(t.Context(), client, "node-a"); left != "" {
					t.Errorf("after the interruption %s", left)
				}
			}
			removed, err := Node(t.Context(), kube, client, "node-a")
			if err != nil || !slices.Contains(removed, "label kubeslot.io/mode") {
				t.Fatalf("removed %q, %v", removed, err)
			}
			now, err := kube.CoreV1().Nodes().Get(t.Context(), "node-a", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			diff := cmp.Diff(amounts("cpu", "example.com/others"), now.Status.Capacity)
			if diff != "" || writes != 3 || len(now.Labels) != 1 {
				t.Errorf("%d writes of the kubelet: labels %v, capacity (-want +got):\n%s", writes, now.Labels, diff)
			}
		})
	}
}

// Neither a node nor CRDs need be there.
func TestNothingThere(t *testing.T) {
	client := fake.NewSimpleClientset()
	client.PrependReactor("list", "*", func(a ktesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: a.GetResource().Resource}, "")
	})
	if removed, err := Node(t.Context(), kubefake.NewClientset(), client, "node-a"); len(removed) > 0 || err != nil {
		t.Errorf("%q, %v", removed, err)
	}
}

// A kubelet that was about to write the status puts keys back once; somebody who does
// so for ever is an error.
func TestPutBack(t *testing.T) {
	quickly(t)
	for _, test := range []struct {
		times int
		says  string
	}{{1, ""}, {1 << 30, "somebody puts"}} {
		if test.says != "" {
			usual.atMost = 300 * time.Millisecond
		}
		kube := kubefake.NewClientset(node())
		left := test.times
		kube.PrependReactor("get", "nodes", func(ktesting.Action) (bool, runtime.Object, error) {
			obj, err := kube.Tracker().Get(corev1.SchemeGroupVersion.WithResource("nodes"), "", "node-a")
			n, ok := obj.(*corev1.Node)
			if err == nil && ok && left > 0 && n.Annotations["KubeDevice/DeviceInfo"] == "" {
				left--
				n = n.DeepCopy()
				n.Status.Allocatable["akri.sh/cam"], n.Status.Allocatable["example.com/widget"] = resource.MustParse("2"), resource.MustParse("2")
				if err := kube.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), n, ""); err != nil {
					return true, nil, err
				}
				return true, n, nil
			}
			return false, nil, nil
		})
		_, err := Node(t.Context(), kube, fake.NewSimpleClientset(), "node-a")
		if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("put back %d times: %v", test.times, err)
		}
		if err == nil {
			n, _ := kube.CoreV1().Nodes().Get(t.Context(), "node-a", metav1.GetOptions{})
			if len(n.Status.Allocatable) != 2 {
				t.Errorf("still there: %v", n.Status.Allocatable)
			}
		}
	}
}

func TestErrors(t *testing.T) {
	quickly(t)
	client := objects()
	client.PrependReactor("delete", "*", func(ktesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no right") })
	kube := kubefake.NewClientset(node())
	kube.PrependReactor("patch", "nodes", func(ktesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("refused") })
	removed, err := Node(context.Background(), kube, client, "node-a")
	if len(removed) > 0 || err == nil {
		t.Fatalf("%q, %v", removed, err)
	}
	for _, part := range []string{"patch the status of node node-a: refused", "delete deviceslice node-a-0: no right", "delete slotclaim cam-8120fe-0: no right"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not say %q: %v", part, err)
		}
	}
}

func touch(t *testing.T, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
