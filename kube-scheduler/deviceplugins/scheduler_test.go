package deviceplugins

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2/ktesting"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	configtesting "k8s.io/kubernetes/pkg/scheduler/apis/config/testing"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/kubeslot/kubeslot/kube-scheduler/binding"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// startScheduler runs upstream's scheduler with the plugin of the .so file, on an
// API that binds.
func startScheduler(t *testing.T, client *fake.Clientset) {
	t.Helper()
	_, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	cfg := configtesting.V1ToInternalWithDefaults(t, defaultV1())
	plugins := cfg.Profiles[0].Plugins
	plugins.MultiPoint.Enabled = append(plugins.MultiPoint.Enabled, config.Plugin{Name: Name})
	plugins.Bind.Enabled = append([]config.Plugin{{Name: Name}}, plugins.Bind.Enabled...)
	factory := scheduler.NewInformerFactory(client, 0)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	sched, err := scheduler.New(ctx, client, factory, nil, profile.NewRecorderFactory(broadcaster),
		scheduler.WithProfiles(cfg.Profiles...), scheduler.WithFrameworkOutOfTreeRegistry(frameworkruntime.Registry{
			Name: NewFactory(&Options{Folder: folder(t, nil)}, &binding.Options{}),
		}), scheduler.WithPodInitialBackoffSeconds(1), scheduler.WithPodMaxBackoffSeconds(1))
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	done := make(chan struct{})
	go func() {
		defer close(done)
		sched.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		broadcaster.Shutdown()
	})
}

// binds makes the client's pods bound when a Binding is sent.
func binds(client *fake.Clientset) {
	client.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "binding" {
			return false, nil, nil
		}
		b := a.(clienttesting.CreateAction).GetObject().(*v1.Binding)
		obj, err := client.Tracker().Get(v1.SchemeGroupVersion.WithResource("pods"), b.Namespace, b.Name)
		if err != nil {
			return true, nil, err
		}
		pod := obj.(*v1.Pod).DeepCopy()
		pod.Spec.NodeName = b.Target.Name
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		maps.Copy(pod.Annotations, b.Annotations)
		return true, b, client.Tracker().Update(v1.SchemeGroupVersion.WithResource("pods"), pod, b.Namespace)
	})
}

// The whole of it: a .so plugin in upstream's scheduler places pods, those that wait
// run when there is room, and a new scheduler knows what is taken.
func TestInTheScheduler(t *testing.T) {
	client := fake.NewClientset()
	binds(client)
	ctx := context.Background()
	s := &story{}
	for _, name := range []string{"a", "b"} {
		node := s.node(t, name, "1x2", "")
		node.Status.Allocatable["pods"] = resource.MustParse("100")
		node.Status.Capacity = node.Status.Allocatable
		if _, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create := func(t *testing.T, name, text string) {
		t.Helper()
		p := parsePod(t, name, "", "", text)
		p.Spec.SchedulerName = v1.DefaultSchedulerName
		if _, err := client.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	get := func(t *testing.T, name string) *v1.Pod {
		t.Helper()
		p, err := client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	awaitBound := func(t *testing.T, name string) {
		t.Helper()
		eventually(t, "pod "+name+" is bound", func() bool { return get(t, name).Spec.NodeName != "" })
	}
	awaitRefused := func(t *testing.T, name string, reasons ...string) {
		t.Helper()
		eventually(t, fmt.Sprintf("pod %s is refused with %q", name, reasons), func() bool {
			for _, c := range get(t, name).Status.Conditions {
				missing := false
				for _, reason := range reasons {
					missing = missing || !strings.Contains(c.Message, reason)
				}
				if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse && !missing {
					return true
				}
			}
			return false
		})
	}
	two := "main\nannotation " + `{"runningcontainer":{"main":{"requests":{"example.com/widget":2}}}}`

	t.Run("first scheduler", func(t *testing.T) {
		startScheduler(t, client)
		create(t, "one", two)
		create(t, "two", two)
		create(t, "plain", "main")
		for _, name := range []string{"one", "two", "plain"} {
			awaitBound(t, name)
		}
		if _, ok := get(t, "plain").Annotations[assignment.HolderAnnotation]; ok {
			t.Error("a pod that asks nothing got an assignment")
		}
		if get(t, "one").Spec.NodeName == get(t, "two").Spec.NodeName {
			t.Error("both got the widgets of one node")
		}
		create(t, "three", two)
		create(t, "unknown", "main\nannotation "+`{"runningcontainer":{"main":{"requests":{"example.com/gadget":1}}}}`)
		awaitRefused(t, "three", "0/2 nodes are available", "2 Insufficient main/resource/group/board/*/widget/*/cards")
		awaitRefused(t, "unknown", `2 no device scheduler plugin answers for 1 of "example.com/gadget" for container "main"`)
	})

	// While no scheduler runs, a pod ends and an annotation is corrected.
	if err := client.CoreV1().Pods("default").Delete(ctx, "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	t.Run("second scheduler", func(t *testing.T) {
		startScheduler(t, client)
		awaitBound(t, "three")
		create(t, "four", two)
		awaitRefused(t, "four", "2 Insufficient")
		if err := client.CoreV1().Pods("default").Delete(ctx, "two", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		awaitBound(t, "four")
		p := get(t, "unknown")
		p.Annotations[assignment.Annotation] = "{}"
		p.ResourceVersion = "2" // which the fake API does not count
		if _, err := client.CoreV1().Pods("default").Update(ctx, p, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		awaitBound(t, "unknown")
		// A node that gets widgets is given the pods that wait for them.
		create(t, "five", two)
		awaitRefused(t, "five", "2 Insufficient")
		node := s.node(t, "a", "2x2", "")
		node.Status.Allocatable["pods"] = resource.MustParse("100")
		node.Status.Capacity = node.Status.Allocatable
		if _, err := client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		awaitBound(t, "five")
	})

	if n, err := testutil.GetGaugeMetricValue(loaded.WithLabelValues("widget")); n != 1 || err != nil {
		t.Errorf("metric: %v plugins are loaded, %v", n, err)
	}
	for _, method := range methods {
		n, err := testutil.GetHistogramMetricCount(callDuration.WithLabelValues("widget", method))
		if err != nil || n == 0 && method != "RemoveNode" {
			t.Errorf("metric: %d calls of %s, %v", n, method, err)
		}
	}

	given := map[string]string{}
	for _, name := range []string{"three", "four", "five"} {
		p := get(t, name)
		info, err := assignment.Granted(p.Annotations, string(p.UID), p.Spec.NodeName)
		if err != nil || info == nil {
			t.Fatalf("pod %s: %v, %v", name, info, err)
		}
		from := info.RunningContainers["main"].AllocateFrom
		if len(from) != 2 {
			t.Errorf("pod %s got %v", name, from)
		}
		for _, card := range from {
			key := p.Spec.NodeName + " " + string(card)
			if given[key] != "" || !strings.HasPrefix(string(card), types.DeviceGroupPrefix) {
				t.Errorf("%s is given to %s and to %s", key, given[key], name)
			}
			given[key] = name
		}
	}
}

func defaultV1() (cfg configv1.KubeSchedulerConfiguration) {
	cfg.APIVersion, cfg.Kind = configv1.SchemeGroupVersion.String(), "KubeSchedulerConfiguration"
	return cfg
}
