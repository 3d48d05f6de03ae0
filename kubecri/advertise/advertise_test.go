package advertise

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	coreinformers "k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubeslot/kubeslot/kubecri/nodewriter"
	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/types"
	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned/fake"
	"github.com/kubeslot/kubeslot/types/client/informers/externalversions"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

type fixture struct {
	advertiser *Advertiser
	kube       *kubefake.Clientset
	client     *fake.Clientset
}

// start runs an advertiser of node a.
func start(t *testing.T, kube *kubefake.Clientset, change func(*nodewriter.Config, *Config),
	objects ...runtime.Object) *fixture {
	t.Helper()
	f := &fixture{kube: kube, client: fake.NewSimpleClientset(objects...)}
	core := coreinformers.NewSharedInformerFactory(kube, 0)
	ours := externalversions.NewSharedInformerFactory(f.client, 0)
	writer := nodewriter.Config{Node: "a", Client: kube, Nodes: core.Core().V1().Nodes()}
	config := Config{
		Pods: core.Core().V1().Pods(), Slices: ours.Kubeslot().V1alpha1().DeviceSlices(),
		Configurations: ours.Akri().V0().Configurations(),
	}
	if change != nil {
		change(&writer, &config)
	}
	w, err := nodewriter.New(writer)
	if err != nil {
		t.Fatal(err)
	}
	config.Node = w
	a, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	a.lowerAfter = 20 * time.Millisecond
	f.advertiser = a
	ctx, cancel := context.WithCancel(context.Background())
	core.Start(ctx.Done())
	ours.Start(ctx.Done())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		core.Shutdown()
		ours.Shutdown()
	})
	return f
}

// wantStatus waits until the node has the capacity and allocatable, "" for none.
func (f *fixture) wantStatus(t *testing.T, resource, want string) {
	t.Helper()
	await.That(t, "node.status", func() error {
		n, err := f.kube.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for kind, list := range map[string]corev1.ResourceList{"capacity": n.Status.Capacity, "allocatable": n.Status.Allocatable} {
			got := ""
			if q, ok := list[corev1.ResourceName(resource)]; ok {
				got = q.String()
			}
			if got != want {
				return fmt.Errorf("%s of %s is %q, want %q", kind, resource, got, want)
			}
		}
		return nil
	})
}

func (f *fixture) patches() (n int) {
	for _, action := range f.kube.Actions() {
		if p, ok := action.(clienttesting.PatchAction); ok && p.GetSubresource() == "status" {
			n++
		}
	}
	return n
}

func configuration(name string, capacity int32) *v0.Configuration {
	return &v0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "cameras", Name: name}, Spec: v0.ConfigurationSpec{Capacity: capacity}}
}

// deviceSlice is node a's, with local devices of Configuration cameras/cam.
func deviceSlice(name string, ids ...string) *v1alpha1.DeviceSlice {
	s := &v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.DeviceSliceSpec{NodeName: "a"}}
	for _, id := range ids {
		s.Spec.Devices = append(s.Spec.Devices, v1alpha1.Device{ID: id, Hash: slot.InstanceHash(id, false, "a", slot.ShortHash),
			Configuration: v1alpha1.ConfigurationReference{Namespace: "cameras", Name: "cam"}})
	}
	return s
}

func TestTheNodeFollowsItsSlicesAndPods(t *testing.T) {
	pod := running("p", counts{"akri.sh/cam": "1"})
	f := start(t, kubefake.NewClientset(node(nil, nil), pod), nil, configuration("cam", 2), deviceSlice("a-0", "gate"))
	f.wantStatus(t, "akri.sh/cam", "2")
	if n := f.patches(); n != 1 {
		t.Errorf("%d patches, want capacity and allocatable in one", n)
	}

	slices := f.client.KubeslotV1alpha1().DeviceSlices()
	if _, err := slices.Create(t.Context(), deviceSlice("a-1", "yard", "gate"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.wantStatus(t, "akri.sh/cam", "4") // a device in two slices is one
	if _, err := f.client.AkriV0().Configurations("cameras").Update(t.Context(), configuration("cam", 5), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.wantStatus(t, "akri.sh/cam", "10")
	for _, name := range []string{"a-0", "a-1"} {
		if err := slices.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	f.wantStatus(t, "akri.sh/cam", "1") // as long as the pod is there
	if err := f.kube.CoreV1().Pods("cameras").Delete(t.Context(), "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.wantStatus(t, "akri.sh/cam", "")
}

func TestCountSlots(t *testing.T) {
	later := metav1.Unix(100, 0)
	another := configuration("cam", 9)
	another.Namespace, another.CreationTimestamp = "other", later
	found := configuration("found", 3)
	found.Spec.Discovery = &v0.Discovery{}
	long := configuration("cam", 2)
	long.Spec.InstanceNameDigits = slot.LongHash
	gate := slot.InstanceName("cam", slot.InstanceHash("gate", false, "a", slot.ShortHash))
	named, young := configuration(gate, 5), configuration("cam", 2) // named as an Instance of cam
	named.CreationTimestamp, young.CreationTimestamp = later, metav1.Unix(200, 0)
	of := deviceSlice("a-1", "lens")
	of.Spec.Devices[0].Configuration.Name = gate
	toDRA, back, foundByDRA := configuration("cam", 2), configuration("cam", 2), configuration("found", 3)
	toDRA.Spec.Allocator, foundByDRA.Spec.Allocator = v0.AllocatorDRA, v0.AllocatorDRA
	foundByDRA.Spec.Discovery = &v0.Discovery{}
	back.Status.Allocator = v0.NewAllocatorStatus(v0.AllocatorDRA, nil) // the scheduler gives no slots yet
	foreign := deviceSlice("b-0", "roof")
	foreign.Spec.NodeName = "b"
	wrong := deviceSlice("a-1", "gate")
	wrong.Spec.Devices[0].ID = "yard"
	for name, tc := range map[string]struct {
		configurations []*v0.Configuration
		slices         []*v1alpha1.DeviceSlice
		reached        Reached
		want           map[string]int64
	}{
		"devices times capacity": {[]*v0.Configuration{configuration("cam", 2)},
			[]*v1alpha1.DeviceSlice{deviceSlice("a-0", "gate", "yard")}, nil, map[string]int64{"cam": 4}},
		"no capacity is 1": {[]*v0.Configuration{configuration("cam", 0)},
			[]*v1alpha1.DeviceSlice{deviceSlice("a-0", "gate")}, nil, map[string]int64{"cam": 1}},
		"another node's slice": {[]*v0.Configuration{configuration("cam", 2)},
			[]*v1alpha1.DeviceSlice{foreign}, nil, map[string]int64{"cam": 0}},
		"a hash that is not the id's": {[]*v0.Configuration{configuration("cam", 2)},
			[]*v1alpha1.DeviceSlice{wrong}, nil, map[string]int64{"cam": 0}},
		"hashes of another length": {[]*v0.Configuration{long}, []*v1alpha1.DeviceSlice{deviceSlice("a-0",
			"gate")}, nil, map[string]int64{"cam": 0}},
		"of a Configuration that is gone": {nil, []*v1alpha1.DeviceSlice{deviceSlice("a-0", "gate")}, nil,
			map[string]int64{}},
		"the oldest of two of one name owns it": {[]*v0.Configuration{another, configuration("cam", 2)},
			[]*v1alpha1.DeviceSlice{deviceSlice("a-0", "gate")}, nil, map[string]int64{"cam": 2}},
		"named as an Instance of an older one": {[]*v0.Configuration{named, configuration("cam", 2)},
			[]*v1alpha1.DeviceSlice{deviceSlice("a-0", "gate", "yard"), of}, nil, map[string]int64{"cam": 4}},
		"named as an Instance of a younger one": {[]*v0.Configuration{named, young},
			[]*v1alpha1.DeviceSlice{deviceSlice("a-0", "gate", "yard"), of}, nil, map[string]int64{"cam": 2, gate: 5}},
		"devices that DRA gives": {[]*v0.Configuration{toDRA},
			[]*v1alpha1.DeviceSlice{deviceSlice("a-0", "gate")}, nil, map[string]int64{"cam": 0}},
		"devices that DRA still gives": {[]*v0.Configuration{back},
			[]*v1alpha1.DeviceSlice{deviceSlice("a-0", "gate")}, nil, map[string]int64{"cam": 0}},
		"devices that other nodes discover and DRA gives": {[]*v0.Configuration{foundByDRA}, nil,
			func(string) (int, bool) { return 7, true }, map[string]int64{"found": 0}},
		"devices that other nodes discover":      {[]*v0.Configuration{found}, nil, func(string) (int, bool) { return 7, true }, map[string]int64{"found": 21}},
		"devices that others discover, not read": {[]*v0.Configuration{found}, nil, func(string) (int, bool) { return 0, false }, map[string]int64{"found": 12}},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.reached == nil {
				tc.reached = func(string) (int, bool) { return 0, false }
			}
			if got := countSlots(tc.configurations, tc.slices, node(nil, counts{"akri.sh/found": "12"}), tc.reached); !maps.Equal(got, tc.want) {
				t.Errorf("countSlots() = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestAWipedStatusIsRestored(t *testing.T) {
	f := start(t, kubefake.NewClientset(node(nil, nil)), nil, configuration("cam", 2), deviceSlice("a-0", "gate"))
	f.wantStatus(t, "akri.sh/cam", "2")
	if _, err := f.kube.CoreV1().Nodes().UpdateStatus(t.Context(), node(nil, nil), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.wantStatus(t, "akri.sh/cam", "2")
}

// What device plugins say is there soon after they say so, and at times anyway.
func TestTheNodeFollowsItsDevicePlugins(t *testing.T) {
	for name, interval := range map[string]time.Duration{"on a change": time.Hour, "at times": 10 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			var gpus atomic.Int64
			gpus.Store(1)
			f := start(t, kubefake.NewClientset(node(nil, nil)), func(w *nodewriter.Config, c *Config) {
				w.Interval = interval
				c.Devices = func() (*types.NodeInfo, bool) {
					info := types.NewNodeInfoWithName("a")
					info.KubeCap["nvidia.com/gpu"] = gpus.Load()
					return info, true
				}
			})
			f.wantStatus(t, "nvidia.com/gpu", "1")
			gpus.Store(2)
			if interval == time.Hour {
				f.advertiser.Changed()
			}
			f.wantStatus(t, "nvidia.com/gpu", "2")
		})
	}
}

func TestARefusedPatchIsTriedAgain(t *testing.T) {
	kube := kubefake.NewClientset(node(nil, nil))
	left := 3
	kube.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		left--
		return left >= 0, nil, errors.New("connection refused")
	})
	f := start(t, kube, nil, configuration("cam", 2), deviceSlice("a-0", "gate"))
	f.wantStatus(t, "akri.sh/cam", "2")
}

func TestANodeThatIsNotThereYet(t *testing.T) {
	f := start(t, kubefake.NewClientset(), nil, configuration("cam", 2), deviceSlice("a-0", "gate"))
	if _, err := f.kube.CoreV1().Nodes().Create(t.Context(), node(nil, nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.wantStatus(t, "akri.sh/cam", "2")
}

func TestNewSaysWhatIsMissing(t *testing.T) {
	if _, err := New(Config{}); err == nil || !strings.Contains(err.Error(),
		"the Node's writer and the informers are required") {
		t.Errorf("New() = %v", err)
	}
}

// What a pod has by DRA, through a DeviceClass's extendedResourceName, is not held as slots.
func TestPodsHoldNoSlotsByDRA(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u",
		Annotations: map[string]string{assignment.HolderAnnotation: "u"}}}
	p.Spec.NodeName = "a"
	p.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"akri.sh/cam": resource.MustParse("1"), "akri.sh/mic": resource.MustParse("2")}}}}
	p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{
		RequestMappings: []corev1.ContainerExtendedResourceRequest{{ContainerName: "main",
			ResourceName: "akri.sh/cam"}}}
	if got := heldByPods("a", owned{}, []*corev1.Pod{p}); got["akri.sh/cam"] != 0 || got["akri.sh/mic"] != 2 {
		t.Errorf("held %v, want the two of akri.sh/mic", got)
	}
}
