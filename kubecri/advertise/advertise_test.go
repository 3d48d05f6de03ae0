package advertise

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	coreinformers "k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubeslot/kubeslot/types"
	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned/fake"
	"github.com/kubeslot/kubeslot/types/client/informers/externalversions"
)

type fixture struct {
	advertiser *Advertiser
	kube       *kubefake.Clientset
	akri       *fake.Clientset
}

// start runs an advertiser of node a.
func start(t *testing.T, kube *kubefake.Clientset, change func(*Config), instances ...runtime.Object) *fixture {
	t.Helper()
	f := &fixture{kube: kube, akri: fake.NewSimpleClientset(instances...)}
	core := coreinformers.NewSharedInformerFactory(kube, 0)
	akri := externalversions.NewSharedInformerFactory(f.akri, 0)
	config := Config{
		NodeName: "a", Client: kube, Nodes: core.Core().V1().Nodes(), Pods: core.Core().V1().Pods(),
		Instances: akri.Akri().V0().Instances(), LowerAfter: 20 * time.Millisecond,
	}
	if change != nil {
		change(&config)
	}
	a, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	f.advertiser = a
	ctx, cancel := context.WithCancel(context.Background())
	core.Start(ctx.Done())
	akri.Start(ctx.Done())
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		core.Shutdown()
		akri.Shutdown()
	})
	return f
}

func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// wantStatus waits until the node has the capacity and allocatable, "" for none.
func (f *fixture) wantStatus(t *testing.T, resource, want string) {
	t.Helper()
	eventually(t, "node.status", func() error {
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

func TestTheNodeFollowsItsInstancesAndPods(t *testing.T) {
	pod := running("p", counts{"akri.sh/cam": "1"})
	f := start(t, kubefake.NewClientset(node(nil, nil), pod), nil, instance("cam", "8120fe", 2, "a"))
	f.wantStatus(t, "akri.sh/cam", "2")
	f.wantStatus(t, "akri.sh/cam-8120fe", "2")
	if n := f.patches(); n != 1 {
		t.Errorf("%d patches, want both resources in one", n)
	}

	instances := f.akri.AkriV0().Instances("cameras")
	if _, err := instances.Create(t.Context(), instance("cam", "a19705", 3, "a", "b"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.wantStatus(t, "akri.sh/cam", "5")
	for _, name := range []string{"cam-8120fe", "cam-a19705"} {
		if err := instances.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	f.wantStatus(t, "akri.sh/cam-a19705", "")
	f.wantStatus(t, "akri.sh/cam", "1") // as long as the pod is there
	if err := f.kube.CoreV1().Pods("cameras").Delete(t.Context(), "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.wantStatus(t, "akri.sh/cam", "")
}

func TestAWipedStatusIsRestored(t *testing.T) {
	f := start(t, kubefake.NewClientset(node(nil, nil)), nil, instance("cam", "8120fe", 2, "a"))
	f.wantStatus(t, "akri.sh/cam", "2")
	if _, err := f.kube.CoreV1().Nodes().UpdateStatus(t.Context(), node(nil, nil), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.wantStatus(t, "akri.sh/cam", "2")
}

// Claims come with each container of the whole cluster.
func TestOnlyChangesThatMatterAreLookedInto(t *testing.T) {
	change := func(f func(*v0.Instance), nodes ...string) [2]*v0.Instance {
		old := instance("cam", "8120fe", 2, nodes...)
		is := old.DeepCopy()
		f(is)
		return [2]*v0.Instance{old, is}
	}
	for name, tc := range map[string]struct {
		change [2]*v0.Instance
		want   bool
	}{
		"capacity":           {change(func(i *v0.Instance) { i.Spec.Capacity = 3 }, "a"), true},
		"capacity elsewhere": {change(func(i *v0.Instance) { i.Spec.Capacity = 3 }, "b"), false},
		"joined":             {change(func(i *v0.Instance) { i.Spec.Nodes = []string{"b", "a"} }, "b"), true},
		"left":               {change(func(i *v0.Instance) { i.Spec.Nodes = nil }, "a"), true},
		"another joined":     {change(func(i *v0.Instance) { i.Spec.Nodes = []string{"a", "b"} }, "a"), false},
		"a claim":            {change(func(i *v0.Instance) { i.Spec.DeviceUsage = map[string]string{"cam-8120fe-0": "a"} }, "a"), false},
	} {
		t.Run(name, func(t *testing.T) {
			a := &Advertiser{config: Config{NodeName: "a"}}
			if got := a.matters(tc.change[0], tc.change[1]); got != tc.want {
				t.Errorf("matters() = %v, want %v", got, tc.want)
			}
		})
	}
}

// What device plugins say is there soon after they say so, and at times anyway.
func TestTheNodeFollowsItsDevicePlugins(t *testing.T) {
	for name, interval := range map[string]time.Duration{"told": time.Hour, "at times": 10 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			var gpus atomic.Int64
			gpus.Store(1)
			f := start(t, kubefake.NewClientset(node(nil, nil)), func(c *Config) {
				c.Interval = interval
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
	f := start(t, kube, nil, instance("cam", "8120fe", 2, "a"))
	f.wantStatus(t, "akri.sh/cam", "2")
}

func TestANodeThatIsNotThereYet(t *testing.T) {
	f := start(t, kubefake.NewClientset(), nil, instance("cam", "8120fe", 2, "a"))
	if _, err := f.kube.CoreV1().Nodes().Create(t.Context(), node(nil, nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.wantStatus(t, "akri.sh/cam", "2")
}

func TestNewSaysWhatIsMissing(t *testing.T) {
	_, err := New(Config{NodeName: "a", Interval: -1})
	for _, want := range []string{"Client is missing", "Interval is negative"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New() = %v, want %q", err, want)
		}
	}
}
