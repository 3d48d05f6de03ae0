package configurationresources

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/kubeslot/kubeslot/kube-scheduler/informer"
	"github.com/kubeslot/kubeslot/kube-scheduler/waitreason"
	"github.com/kubeslot/kubeslot/test/await"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

var (
	podsResource  = v1.SchemeGroupVersion.WithResource("pods")
	nodesResource = v1.SchemeGroupVersion.WithResource("nodes")
)

// realScheduler is upstream's scheduler with our plugin, on a slot cache that tests feed. The
// API is a fake one, which carries out bindings.
type realScheduler struct {
	*rig
	scheduler *scheduler.Scheduler
	tries     atomic.Int64 // scheduling cycles, unless the plugin was wrapped
}

// countedPlugin counts scheduling cycles.
type countedPlugin struct {
	*Plugin
	tries *atomic.Int64
}

func (c *countedPlugin) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	c.tries.Add(1)
	return c.Plugin.PreFilter(ctx, state, pod, nodes)
}

// newRealScheduler runs a scheduler in an API with the objects. wrap, if not nil, makes something
// of its plugin.
func newRealScheduler(t *testing.T, wrap func(*Plugin) fwk.Plugin, objects ...runtime.Object) *realScheduler {
	logger, _ := ktesting.NewTestContext(t)
	return newLoggingScheduler(t, logger, wrap, objects...)
}

// newLoggingScheduler is newRealScheduler with a logger of the test's own.
func newLoggingScheduler(t *testing.T, logger klog.Logger, wrap func(*Plugin) fwk.Plugin, objects ...runtime.Object) *realScheduler {
	q := &realScheduler{rig: newLoggingRig(t, logger)}
	q.client = fake.NewClientset(objects...)
	q.client.PrependReactor("create", "pods", bindInTracker(q.client))
	if wrap == nil {
		wrap = func(p *Plugin) fwk.Plugin { return &countedPlugin{Plugin: p, tries: &q.tries} }
	}
	ctx, cancel := context.WithCancel(q.ctx)
	informers := scheduler.NewInformerFactory(q.client, 0, nil)
	var fed cache.ResourceEventHandlerRegistration
	factory := func(_ context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		q.cache.Queue.Activator = handle
		pods := informers.Core().V1().Pods()
		var err error
		fed, err = pods.Informer().AddEventHandler(informer.Handler(q.cache.SetPod, q.cache.DeletePod, nil))
		if err != nil {
			return nil, err
		}
		p := newPlugin(q.cache, handle, pods.Lister(), informers.Policy().V1().PodDisruptionBudgets().Lister())
		p.groups = groupPreemption(handle)
		made := wrap(p)
		go q.cache.Queue.Run(ctx)
		return made, nil
	}
	cfg := must(latest.Default())
	for _, c := range cfg.Profiles[0].PluginConfig {
		if args, ok := c.Args.(*schedulerconfig.NodeResourcesFitArgs); ok {
			args.IgnoredResourceGroups = []string{akriv0.GroupName} // as package defaults has it
		}
	}
	plugins := cfg.Profiles[0].Plugins
	plugins.MultiPoint.Enabled = append(plugins.MultiPoint.Enabled, schedulerconfig.Plugin{Name: Name})
	plugins.Bind.Enabled = []schedulerconfig.Plugin{{Name: Name}}
	plugins.PodGroupPostFilter.Enabled = []schedulerconfig.Plugin{{Name: Name}}
	q.scheduler = must(scheduler.New(ctx, q.client, informers, nil,
		func(string) events.EventRecorderLogger { return &events.FakeRecorder{} },
		scheduler.WithProfiles(cfg.Profiles...),
		scheduler.WithFrameworkOutOfTreeRegistry(frameworkruntime.Registry{Name: factory})))
	informers.Start(ctx.Done())
	informers.WaitForCacheSync(ctx.Done())
	check(q.scheduler.WaitForHandlersSync(ctx))
	await.That(t, "the ledger to have the pods that there are", fed.HasSynced)
	done := make(chan struct{})
	go func() { q.scheduler.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return q
}

// bindInTracker carries out bindings in the fake client's store.
func bindInTracker(client *fake.Clientset) clienttesting.ReactionFunc {
	return func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "binding" {
			return false, nil, nil
		}
		b := a.(clienttesting.CreateAction).GetObject().(*v1.Binding)
		stored, err := client.Tracker().Get(podsResource, a.GetNamespace(), b.Name)
		if err != nil {
			return true, nil, err
		}
		p := stored.(*v1.Pod).DeepCopy()
		if p.Spec.NodeName != "" {
			return true, nil, apierrors.NewConflict(podsResource.GroupResource(), p.Name, fmt.Errorf("already on %s", p.Spec.NodeName))
		}
		p.Spec.NodeName = b.Target.Name
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		maps.Copy(p.Annotations, b.Annotations)
		return true, b, client.Tracker().Update(podsResource, p, p.Namespace)
	}
}

// stored is the pod as the API has it.
func stored(client *fake.Clientset, pod string) *v1.Pod {
	return must(client.Tracker().Get(podsResource, "default", pod)).(*v1.Pod)
}

// node is the node that the pod is bound to, "" for none.
func (q *realScheduler) node(pod string) string { return stored(q.client, pod).Spec.NodeName }

func (q *realScheduler) delete(pod string) {
	check(q.client.Tracker().Delete(podsResource, "default", pod))
}

// updateNode changes a node, and returns when the scheduler has asked the hints about that: it adds
// a label afterwards, which matters to nobody, and waits for it.
func (q *realScheduler) updateNode(node *v1.Node) {
	q.Helper()
	check(q.client.Tracker().Update(nodesResource, node.DeepCopy(), ""))
	const seen = "seen"
	labelled := node.DeepCopy()
	labelled.Labels[seen] = string(uuid.NewUUID())
	check(q.client.Tracker().Update(nodesResource, labelled, ""))
	q.eventually("the scheduler to see node "+node.Name, func() bool {
		info := q.scheduler.Cache.Dump().Nodes[node.Name]
		return info != nil && info.Node() != nil && info.Node().Labels[seen] == labelled.Labels[seen]
	})
}

func (q *realScheduler) eventually(what string, ok func() bool) {
	q.Helper()
	await.That(q.T, what, ok)
}

func (q *realScheduler) eventuallyBound(pod, node string) {
	q.Helper()
	q.eventually("pod "+pod+" to be bound", func() bool { return q.node(pod) == node })
}

// rest waits until no pod is to be tried, and returns how many scheduling cycles
// there were.
func (q *realScheduler) rest() int {
	q.Helper()
	q.eventually("the scheduler's queue to be empty", func() bool {
		s := q.scheduler.SchedulingQueue
		none := func(pods []*v1.Pod) bool { return len(pods) == 0 }
		// In the order of a pod's way, which would have to make a whole round meanwhile to be missed.
		return q.cache.Queue.Idle() && none(s.InFlightPods()) && none(s.PodsInBackoffQ()) && none(s.PodsInActiveQ()) &&
			none(s.InFlightPods())
	})
	return int(q.tries.Load())
}

// add creates pods for a node, the first of them with the highest priority, and
// waits until all have been tried.
func (q *realScheduler) add(node string, names ...string) {
	q.Helper()
	priority := int32(1000)
	for some := range slices.Chunk(names, 50) { // the fake client's watch holds 100 events
		for _, name := range some {
			p := withPriority(pod(name, "1"), priority)
			p.Spec.NodeSelector = map[string]string{v1.LabelHostname: node}
			check(q.client.Tracker().Add(p))
			priority--
		}
		for _, name := range some {
			q.eventually("pod "+name+" to be tried", func() bool {
				w, waits := q.cache.Queue.Get(types.UID(name + "-uid"))
				return waits && w.Reason() != waitreason.NotTried || q.node(name) != ""
			})
		}
	}
}
