package deviceplugins

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeslot/kubeslot/kube-scheduler/binding"
	"github.com/kubeslot/kubeslot/plugins/example/widget"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
)

// moody is the example plugin with moods: each method can be made to misbehave.
type moody struct {
	widget.Scheduler
	mu    sync.Mutex
	moods map[string]string // by method
}

func newMoody() *moody { return &moody{moods: map[string]string{}} }

func (m *moody) set(method, mood string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.moods[method] = mood
}

func (m *moody) mood(method string) error {
	m.mu.Lock()
	mood := m.moods[method]
	m.mu.Unlock()
	switch mood {
	case "panic":
		panic("out of widgets")
	case "error":
		return fmt.Errorf("out of order")
	}
	return nil
}

func (m *moody) AddNode(name string, info *types.NodeInfo) { _ = m.mood("AddNode") }

func (m *moody) PodFitsDevice(n *types.NodeInfo, p *types.PodInfo, fill bool) (bool, []devicescheduler.PredicateFailureReason, float64) {
	_ = m.mood("PodFitsDevice")
	return m.Scheduler.PodFitsDevice(n, p, fill)
}

func (m *moody) PodAllocate(n *types.NodeInfo, p *types.PodInfo) error {
	if err := m.mood("PodAllocate"); err != nil {
		return err
	}
	return m.Scheduler.PodAllocate(n, p)
}

func (m *moody) TakePodResources(*types.NodeInfo, *types.PodInfo) error {
	return m.mood("TakePodResources")
}

// rig is a plugin without its informers: tests feed the device cache as those would.
type rig struct {
	*Plugin
	ctx       context.Context
	client    *fake.Clientset
	known     cache.Indexer // the pod informer's store
	mu        sync.Mutex
	activated []string
	recorder  *events.FakeRecorder
	clock     *testingclock.FakeClock // of what is tried again, and when
	calls     atomic.Int64            // of plugins
}

type fakeHandle struct {
	fwk.Handle
	client clientset.Interface
}

func (h fakeHandle) ClientSet() clientset.Interface { return h.client }
func (h fakeHandle) APICacher() fwk.APICacher       { return nil }

// Activate implements fwk.PodActivator.
func (r *rig) Activate(_ klog.Logger, pods map[string]*v1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, uid := range slices.Sorted(maps.Keys(pods)) {
		r.activated = append(r.activated, pods[uid].Name)
	}
}

// requeued returns who was activated since it was asked last.
func (r *rig) requeued() []string {
	r.cache.queue.Step()
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.activated = nil }()
	return r.activated
}

func newRig(t testing.TB, schedulers ...devicescheduler.DeviceScheduler) *rig {
	t.Helper()
	logger, ctx := ktesting.NewTestContext(t)
	r := &rig{ctx: ctx, client: fake.NewClientset(), recorder: events.NewFakeRecorder(100), clock: testingclock.NewFakeClock(time.Now())}
	r.client.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, nil })
	r.known = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	a, err := newDeviceCache(logger, schedulers, func(string, string, time.Duration) { r.calls.Add(1) }, r, r.clock)
	if err != nil {
		t.Fatal(err)
	}
	a.recorder, a.pods = r.recorder, corelisters.NewPodLister(r.known)
	r.Plugin = &Plugin{cache: a, binder: &binding.Binder{Handle: fakeHandle{client: r.client}, Clock: r.clock}}
	return r
}

// addNode makes a node known, with so many boards of so many widgets: "2x3".
func (r *rig) addNode(t *testing.T, name, widgets string) *v1.Node {
	t.Helper()
	n := widgetNode(t, name, widgets)
	r.cache.setNode(n)
	return n
}

// widgetNode is a node as the node's half of the example plugin describes it.
func widgetNode(t *testing.T, name, widgets string) *v1.Node {
	t.Helper()
	t.Setenv(widget.LayoutEnv, widgets)
	info, dev := types.NewNodeInfo(), &widget.Device{}
	if err := errors.Join(dev.Start(), dev.UpdateNodeInfo(info)); err != nil {
		t.Fatal(err)
	}
	text, err := assignment.EncodeNode(info)
	if err != nil {
		t.Fatal(err)
	}
	amounts := v1.ResourceList{
		"pods":                           resource.MustParse("100"),
		v1.ResourceName(widget.Resource): *resource.NewQuantity(info.KubeAlloc[widget.Resource], resource.DecimalSI),
	}
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{assignment.Annotation: text}},
		Status: v1.NodeStatus{Capacity: amounts, Allocatable: amounts}}
}

// create makes a pod known as waiting.
func (r *rig) create(t *testing.T, p *v1.Pod) {
	t.Helper()
	if err := r.known.Add(p); err != nil {
		t.Fatal(err)
	}
	r.cache.setPod(p)
}

// bindings returns what was sent to the API.
func (r *rig) bindings() []*v1.Binding {
	var out []*v1.Binding
	for _, a := range r.client.Actions() {
		if a.Matches("create", "pods/binding") {
			out = append(out, a.(clienttesting.CreateAction).GetObject().(*v1.Binding))
		}
	}
	return out
}

func frameworkNode(n *v1.Node) fwk.NodeInfo {
	info := framework.NewNodeInfo()
	info.SetNode(n)
	return info
}

func frameworkPod(t *testing.T, p *v1.Pod) fwk.PodInfo {
	t.Helper()
	info, err := framework.NewPodInfo(p)
	if err != nil {
		t.Fatal(err)
	}
	return info
}
