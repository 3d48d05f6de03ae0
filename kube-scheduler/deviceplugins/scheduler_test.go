package deviceplugins

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/kubeslot/kubeslot/kube-scheduler/binding"
	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// cluster is an API that binds pods, for upstream's scheduler.
type cluster struct {
	*testing.T
	client *fake.Clientset
	events *events.FakeRecorder
}

func newCluster(t *testing.T, objects ...runtime.Object) *cluster {
	client := fake.NewClientset(objects...)
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
		for name, value := range b.Annotations {
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, name, value)
		}
		return true, b, client.Tracker().Update(v1.SchemeGroupVersion.WithResource("pods"), pod, b.Namespace)
	})
	return &cluster{t, client, events.NewFakeRecorder(1000)}
}

// schedule runs upstream's scheduler, with the plugin of the .so file, until stop is called.
func (c *cluster) schedule() (stop func()) {
	c.Helper()
	return c.scheduleWith(&Options{Folder: folder(c.T, nil)})
}

func (c *cluster) scheduleWith(o *Options) (stop func()) {
	c.Helper()
	_, ctx := ktesting.NewTestContext(c.T)
	ctx, cancel := context.WithCancel(ctx)
	cfg, err := latest.Default()
	if err != nil {
		c.Fatal(err)
	}
	plugins := cfg.Profiles[0].Plugins
	plugins.MultiPoint.Enabled = append(plugins.MultiPoint.Enabled, config.Plugin{Name: Name})
	plugins.Bind.Enabled = append([]config.Plugin{{Name: Name}}, plugins.Bind.Enabled...)
	factory := scheduler.NewInformerFactory(c.client, 0, nil)
	sched, err := scheduler.New(ctx, c.client, factory, nil,
		func(string) events.EventRecorderLogger { return c.events },
		scheduler.WithProfiles(cfg.Profiles...), scheduler.WithFrameworkOutOfTreeRegistry(frameworkruntime.Registry{
			Name: NewFactory(o, &binding.Options{}),
		}), scheduler.WithPodInitialBackoffSeconds(1), scheduler.WithPodMaxBackoffSeconds(1))
	if err != nil {
		cancel()
		c.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	done := make(chan struct{})
	go func() {
		defer close(done)
		sched.Run(ctx)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	c.Cleanup(stop)
	return stop
}

// node makes a node, or changes what it has.
func (c *cluster) node(name, widgets string) {
	c.Helper()
	nodes, node := c.client.CoreV1().Nodes(), widgetNode(c.T, name, widgets)
	_, err := nodes.Create(c.Context(), node, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = nodes.Update(c.Context(), node, metav1.UpdateOptions{})
	}
	if err != nil {
		c.Fatal(err)
	}
}

func (c *cluster) create(pods ...*v1.Pod) {
	c.Helper()
	for _, p := range pods {
		if _, err := c.client.CoreV1().Pods(p.Namespace).Create(c.Context(), p, metav1.CreateOptions{}); err != nil {
			c.Fatal(err)
		}
	}
}

func (c *cluster) delete(pod string) {
	c.Helper()
	if err := c.client.CoreV1().Pods("default").Delete(c.Context(), pod, metav1.DeleteOptions{}); err != nil {
		c.Fatal(err)
	}
}

func (c *cluster) pod(name string) *v1.Pod {
	c.Helper()
	p, err := c.client.CoreV1().Pods("default").Get(c.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return p
}

func (c *cluster) awaitBound(pods ...string) {
	c.Helper()
	for _, name := range pods {
		await.That(c.T, "pod "+name+" is bound", func() bool { return c.pod(name).Spec.NodeName != "" })
	}
}

// awaitRefused waits until the pod is refused for all the reasons.
func (c *cluster) awaitRefused(pod string, reasons ...string) {
	c.Helper()
	await.That(c.T, fmt.Sprintf("pod %s is refused with %q", pod, reasons), func() bool {
		for _, condition := range c.pod(pod).Status.Conditions {
			missing := condition.Type != v1.PodScheduled || condition.Status != v1.ConditionFalse
			for _, reason := range reasons {
				missing = missing || !strings.Contains(condition.Message, reason)
			}
			if !missing {
				return true
			}
		}
		return false
	})
}

// haveTheirOwn checks that each pod has n widgets that no other has.
func (c *cluster) haveTheirOwn(n int, pods ...string) {
	c.Helper()
	given := map[string]string{}
	for _, name := range pods {
		p := c.pod(name)
		info, err := assignment.Granted(p.Annotations, string(p.UID), p.Spec.NodeName)
		if err != nil || info == nil {
			c.Fatalf("pod %s: %v, %v", name, info, err)
		}
		from := info.RunningContainers["main"].AllocateFrom
		if len(from) != n {
			c.Errorf("pod %s got %v", name, from)
		}
		for _, card := range from {
			key := p.Spec.NodeName + " " + string(card)
			if given[key] != "" || !strings.HasPrefix(string(card), types.DeviceGroupPrefix) {
				c.Errorf("%s is given to %s and to %s", key, given[key], name)
			}
			given[key] = name
		}
	}
}

// written asks for n of a resource in the annotation alone, of which NodeResourcesFit does not know.
func written(t *testing.T, name, priority, resource string, n int) *v1.Pod {
	t.Helper()
	return parsePod(t, name, "", priority, fmt.Sprintf("main\nannotation {\"runningcontainer\":{\"main\":{\"requests\":{%q:%d}}}}", resource, n))
}

// The whole of it: a .so plugin in upstream's scheduler places pods, those that wait
// run when there is room, and a new scheduler knows what is taken.
func TestInTheScheduler(t *testing.T) {
	c := newCluster(t)
	c.node("a", "1x2")
	c.node("b", "1x2")
	two := func(name string) *v1.Pod { return written(t, name, "", "example.com/widget", 2) }

	stop := c.schedule()
	c.create(two("one"), two("two"), parsePod(t, "plain", "", "", "main"))
	c.awaitBound("one", "two", "plain")
	c.create(parsePod(t, "misspelt", "", "", "main\nannotated KubeDevice/DeviceInfos {}"))
	c.awaitRefused("misspelt", `unknown annotation key "KubeDevice/DeviceInfos"`, `did you mean "KubeDevice/DeviceInfo"?`)
	renamed := c.pod("misspelt")
	delete(renamed.Annotations, "KubeDevice/DeviceInfos")
	renamed.ResourceVersion = "2" // which the fake API does not count
	if _, err := c.client.CoreV1().Pods("default").Update(t.Context(), renamed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitBound("misspelt")
	if _, ok := c.pod("plain").Annotations[assignment.HolderAnnotation]; ok {
		t.Error("a pod that asks nothing got an assignment")
	}
	if c.pod("one").Spec.NodeName == c.pod("two").Spec.NodeName {
		t.Error("both got the widgets of one node")
	}
	c.create(two("three"), written(t, "unknown", "", "example.com/gadget", 1))
	c.awaitRefused("three", "0/2 nodes are available", "2 Insufficient main/resource/group/board/*/widget/*/cards")
	c.awaitRefused("unknown", `2 no device scheduler plugin answers for 1 of "example.com/gadget" for container "main"`)
	stop()

	c.delete("one") // while no scheduler runs
	c.schedule()
	c.awaitBound("three")
	c.create(two("four"))
	c.awaitRefused("four", "2 Insufficient")
	c.delete("two")
	c.awaitBound("four")
	corrected := c.pod("unknown")
	corrected.Annotations[assignment.Annotation] = "{}"
	corrected.ResourceVersion = "2" // which the fake API does not count
	if _, err := c.client.CoreV1().Pods("default").Update(t.Context(), corrected, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitBound("unknown")
	c.create(two("five"))
	c.awaitRefused("five", "2 Insufficient")
	c.node("a", "2x2")
	c.awaitBound("five")
	c.haveTheirOwn(2, "three", "four", "five")

	if n, err := testutil.GetGaugeMetricValue(loaded.WithLabelValues("widget")); n != 1 || err != nil {
		t.Errorf("metric: %v plugins are loaded, %v", n, err)
	}
	for _, method := range methods {
		n, err := testutil.GetHistogramMetricCount(callDuration.WithLabelValues("widget", method))
		if err != nil || n == 0 && method != "RemoveNode" {
			t.Errorf("metric: %d calls of %s, %v", n, method, err)
		}
	}
}
