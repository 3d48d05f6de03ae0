package deviceplugins

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/kube-scheduler/binding"
	"github.com/kubeslot/kubeslot/kube-scheduler/informer"
	"github.com/kubeslot/kubeslot/kube-scheduler/kubecripods"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// Name of the plugin in a KubeSchedulerConfiguration.
const Name = "DevicePlugins"

// Plugin implements the extension points; one exists for each profile, and all
// of them share one device cache.
type Plugin struct {
	cache  *deviceCache
	binder *binding.Binder
}

var (
	_ fwk.PreFilterPlugin     = (*Plugin)(nil)
	_ fwk.PreFilterExtensions = (*Plugin)(nil)
	_ fwk.FilterPlugin        = (*Plugin)(nil)
	_ fwk.PreScorePlugin      = (*Plugin)(nil)
	_ fwk.ScorePlugin         = (*Plugin)(nil)
	_ fwk.ScoreExtensions     = (*Plugin)(nil)
	_ fwk.ReservePlugin       = (*Plugin)(nil)
	_ fwk.BindPlugin          = (*Plugin)(nil)
	_ fwk.EnqueueExtensions   = (*Plugin)(nil)
	_ fwk.SignPlugin          = (*Plugin)(nil)
)

// NewFactory returns the plugin's factory. The options are read when the first
// profile is made, so that flags may set them until then; the .so files are loaded
// once for all profiles.
func NewFactory(o *Options, b *binding.Options) frameworkruntime.PluginFactory {
	var (
		mu     sync.Mutex
		shared *deviceCache
	)
	return func(ctx context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		mu.Lock()
		defer mu.Unlock()
		signer, err := b.Signer()
		if err != nil {
			return nil, err
		}
		if shared == nil {
			registerMetrics()
			binding.RegisterMetrics()
			schedulers, err := open(ctx, handle.ClientSet(), *o)
			if err != nil {
				return nil, err
			}
			a, err := startDeviceCache(ctx, handle, schedulers)
			if err == nil {
				err = connect(ctx, a, o)
			}
			if err != nil {
				return nil, fmt.Errorf("start plugin %s: %w", Name, err)
			}
			shared = a
		}
		return &Plugin{cache: shared, binder: &binding.Binder{Handle: handle, Signer: signer, Clock: clock.RealClock{}, NRIPlugin: binding.NRIPluginOf(handle.SharedInformerFactory().Core().V1().Nodes().Lister())}}, nil
	}
}

// startDeviceCache makes the device cache. Once there are plugins, it is fed until ctx is done.
func startDeviceCache(ctx context.Context, handle fwk.Handle, schedulers []devicescheduler.DeviceScheduler) (*deviceCache, error) {
	observe := func(plugin, method string, took time.Duration) {
		callDuration.WithLabelValues(plugin, method).Observe(took.Seconds())
	}
	a, err := newDeviceCache(klog.FromContext(ctx).WithName(Name), schedulers, observe, handle, clock.RealClock{})
	if err != nil {
		return nil, err
	}
	informers := handle.SharedInformerFactory().Core().V1()
	a.recorder, a.pods = handle.EventRecorder(), informers.Pods().Lister()
	a.feed = sync.OnceValue(func() error { return a.follow(ctx, informers) })
	if len(schedulers) == 0 {
		return a, nil
	}
	for _, name := range a.host.Plugins() {
		loaded.WithLabelValues(name).Set(1)
		startAtZero(name)
	}
	return a, a.feed()
}

// follow has the informers feed the device cache, which has plugins from now on, until ctx is done.
func (a *deviceCache) follow(ctx context.Context, informers coreinformers.Interface) error {
	for informer, handler := range map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		informers.Nodes().Informer(): informer.Handler(a.setNode, a.deleteNode, sameDevices),
		informers.Pods().Informer():  informer.Handler(a.setPod, a.deletePod, nil),
	} {
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			return fmt.Errorf("watch the API: %w", err)
		}
		a.sources = append(a.sources, registration.HasSynced)
	}
	a.plugins.Store(true)
	go a.run(ctx)
	go a.retry(ctx, clock.RealClock{})
	return nil
}

// Name implements fwk.Plugin.
func (*Plugin) Name() string { return Name }

// EventsToRegister registers what matters apart from the cache: the author
// corrected the annotation for which the pod was refused; kubecri of a node has become Ready, is to
// be no pod any more, or gives out other resources of plugins; a pod is no longer nominated for what
// this one needs; and, while there are no plugins, a node is new. All else, such as new nodes, other
// annotations of nodes, and pods that end, the device cache answers by activating the pods that fit
// then (package requeue).
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	awaitsKubecri := func(pod *v1.Pod) bool {
		w, waits := p.cache.queue.Get(pod.UID)
		return waits && w.kubecriAway.Load()
	}
	return append([]fwk.ClusterEventWithHint{
		informer.On(fwk.Pod, fwk.Update, binding.AfterInputChange),
		informer.On(fwk.Node, fwk.Add|fwk.UpdateNodeAnnotation, informer.Hint(p.afterPluginResources)),
		// Which a nomination's end is to the framework.
		informer.On(fwk.Pod, fwk.Delete, informer.Hint(afterNomination)),
	}, kubecripods.Events(awaitsKubecri)...), nil
}

func afterNomination(_, gone, _ *v1.Pod) bool {
	return gone != nil && gone.Spec.NodeName == "" && gone.Status.NominatedNodeName != "" &&
		(gone.Annotations[assignment.Annotation] != "" || requestsExtended(gone))
}

// afterPluginResources has pods tried when kubecri of a node gives out other resources than before; while
// there are no plugins, also when there is another node.
func (p *Plugin) afterPluginResources(_ *v1.Pod, before, now *v1.Node) bool {
	const key = v1alpha1.PluginResourcesAnnotation
	return now != nil && (before == nil && !p.cache.plugins.Load() ||
		before != nil && before.Annotations[key] != now.Annotations[key])
}

// SignPod keeps pods that ask plugins for something out of opportunistic batching,
// which would reuse one pod's filter results for the next after devices were taken.
func (p *Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if !mightAsk(pod) || !p.cache.plugins.Load() { // without plugins nothing is taken
		return nil, nil
	}
	return nil, fwk.NewStatus(fwk.Unschedulable, "requests devices of plugins")
}

// mightAsk is a quick check before requestOf: the pod has the annotation, or what was meant to be it, or
// requests extended resources in its spec.
func mightAsk(pod *v1.Pod) bool {
	return pod.Annotations[assignment.Annotation] != "" || requestsExtended(pod) ||
		assignment.Misspelt(pod.Annotations) != ""
}
