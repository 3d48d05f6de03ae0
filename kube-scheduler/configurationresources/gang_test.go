package configurationresources

import (
	"context"
	"fmt"
	"maps"
	"testing"

	v1 "k8s.io/api/core/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/informer"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotcache"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// A gang of three with two slots: upstream's scheduler, gangs on, reserves two,
// is refused the third and reverts. Nothing is bound or held, until there is a
// third slot; then all are bound.
func TestGangInTheRealScheduler(t *testing.T) {
	featuregatetesting.SetFeatureGatesDuringTest(t, utilfeature.DefaultFeatureGate,
		featuregatetesting.FeatureOverrides{features.GenericWorkload: true, features.GangScheduling: true})
	members := gang("g", "g1", "g2", "g3")
	group := &schedulingv1alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: "g", Namespace: "default"}}
	group.Spec.SchedulingPolicy.Gang = &schedulingv1alpha2.GangSchedulingPolicy{MinCount: 3}
	objects := []runtime.Object{group}
	for _, name := range []string{"node-a", "node-b"} {
		amounts := v1.ResourceList{"akri.sh/cam": resource.MustParse("100"), "cpu": resource.MustParse("8"), "pods": resource.MustParse("100")}
		objects = append(objects, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
			Status: v1.NodeStatus{Capacity: amounts, Allocatable: amounts}})
	}
	for _, p := range members {
		p.Spec.SchedulerName = v1.DefaultSchedulerName
		objects = append(objects, p)
	}
	client := fake.NewClientset(objects...)
	client.PrependReactor("create", "pods", bindInTracker(client))
	b := runScheduler(t, client)
	shared(b, "cam-000001")
	shared(b, "cam-000002")

	refusals := func() (n int) {
		for _, a := range client.Actions() {
			if a.Matches("patch", "pods/status") {
				n++
			}
		}
		return n
	}
	eventually(t, "the gang to be refused", func() bool { return refusals() >= len(members) })
	state := func() string {
		out := ""
		b.Read(func(l *ledger.Ledger) {
			out = fmt.Sprint("free ", l.Free("cam"))
			for _, p := range members {
				out += fmt.Sprint(" ", l.Holds(string(p.UID)))
			}
		})
		return out
	}
	eventually(t, "the gang to hold nothing", func() bool { return state() == "free 2 [] [] []" })
	if n := len(bindingsOf(client)); n != 0 {
		t.Fatalf("%d of a gang that does not fit are bound", n)
	}

	shared(b, "cam-000003")
	eventually(t, "the gang to be bound", func() bool { return len(bindingsOf(client)) == len(members) })
	slots := map[string]bool{}
	for _, p := range members {
		b.Read(func(l *ledger.Ledger) {
			for _, s := range l.Holds(string(p.UID)) {
				slots[s.String()] = true
			}
		})
	}
	if len(slots) != len(members) {
		t.Errorf("the gang has the slots %v", slots)
	}
}

// runScheduler runs upstream's scheduler with the plugin on a slot cache without
// devices, which the test feeds.
func runScheduler(t *testing.T, client *fake.Clientset) *slotcache.Cache {
	slots, _ := runSchedulerWith(t, client, func(p *Plugin) fwk.Plugin { return p })
	return slots
}

// runSchedulerWith is runScheduler with something made of the plugin.
func runSchedulerWith(t *testing.T, client *fake.Clientset, wrap func(*Plugin) fwk.Plugin) (*slotcache.Cache, *scheduler.Scheduler) {
	logger, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	t.Cleanup(cancel)
	rig := newRig(t)
	informers := scheduler.NewInformerFactory(client, 0)
	factory := func(_ context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		rig.cache.Queue.Activator, rig.cache.Queue.Logger = handle, logger
		pods := informers.Core().V1().Pods()
		if _, err := pods.Informer().AddEventHandler(informer.Handler(rig.cache.SetPod, rig.cache.DeletePod, nil)); err != nil {
			return nil, err
		}
		made := wrap(newPlugin(rig.cache, handle, pods.Lister(), informers.Policy().V1().PodDisruptionBudgets().Lister()))
		go rig.cache.Queue.Run(ctx)
		return made, nil
	}
	cfg, err := latest.Default()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cfg.Profiles[0].PluginConfig {
		if args, ok := c.Args.(*schedulerconfig.NodeResourcesFitArgs); ok {
			args.IgnoredResourceGroups = []string{akriv0.GroupName} // as package defaults has it
		}
	}
	plugins := cfg.Profiles[0].Plugins
	plugins.MultiPoint.Enabled = append(plugins.MultiPoint.Enabled, schedulerconfig.Plugin{Name: Name})
	plugins.Bind.Enabled = []schedulerconfig.Plugin{{Name: Name}}
	s, err := scheduler.New(ctx, client, informers, nil,
		func(string) events.EventRecorderLogger { return &events.FakeRecorder{} },
		scheduler.WithProfiles(cfg.Profiles...),
		scheduler.WithFrameworkOutOfTreeRegistry(frameworkruntime.Registry{Name: factory}))
	if err != nil {
		t.Fatal(err)
	}
	informers.Start(ctx.Done())
	informers.WaitForCacheSync(ctx.Done())
	if err := s.WaitForHandlersSync(ctx); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { s.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return rig.cache, s
}

// bindInTracker carries out bindings in the fake client's store.
func bindInTracker(client *fake.Clientset) clienttesting.ReactionFunc {
	pods := v1.SchemeGroupVersion.WithResource("pods")
	return func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "binding" {
			return false, nil, nil
		}
		b := a.(clienttesting.CreateAction).GetObject().(*v1.Binding)
		stored, err := client.Tracker().Get(pods, a.GetNamespace(), b.Name)
		if err != nil {
			return true, nil, err
		}
		p := stored.(*v1.Pod).DeepCopy()
		if p.Spec.NodeName != "" {
			return true, nil, apierrors.NewConflict(pods.GroupResource(), p.Name, fmt.Errorf("already on %s", p.Spec.NodeName))
		}
		p.Spec.NodeName = b.Target.Name
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		maps.Copy(p.Annotations, b.Annotations)
		return true, b, client.Tracker().Update(pods, p, p.Namespace)
	}
}

func bindingsOf(client *fake.Clientset) []*v1.Binding {
	return (&rig{client: client}).bindings()
}
