// Package watch feeds the inventory from the API server's watches, and puts what may
// have to change into the controllers' queues.
package watch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kubeslot/kubeslot/controller/inventory"
	"github.com/kubeslot/kubeslot/controller/naming"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/client/restored"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Watch is the one set of handlers that feeds the inventory, be this process the leader or not: see Feed. Its
// sources are synced when the inventory is: no controller works before, so that nothing is taken for gone that
// is not known yet. On a process that does not lead none is started, so that no queue grows that nobody empties.
type Watch struct {
	cache     cache.Cache
	made      cache.Cache // of what the controller made; see Made
	inventory *inventory.Inventory
	// claimGone is called with each claim that is gone.
	claimGone func(types.UID)
	// retryEvery is how often it is tried to watch a kind whose API is not there, such
	// as a CRD that is not installed yet.
	retryEvery time.Duration

	synced chan struct{} // closed when the inventory holds all that there is

	mu     sync.Mutex
	taken  map[Source]bool
	queues map[Source]queue // of the sources that are started
}

// Source is what a controller has put into its queue.
type Source string

// The sources.
const (
	Instances             Source = "Instances"
	Claims                Source = "SlotClaims"
	Brokers               Source = "brokers of Instances"
	InstanceServices      Source = "Services of Instances"
	Configurations        Source = "Configurations"
	ConfigurationServices Source = "Services of Configurations"
	ResourceSlices        Source = "ResourceSlices of Instances"
	DeviceClasses         Source = "DeviceClasses of Configurations"
)

var sources = []Source{
	Instances, Claims, Brokers, InstanceServices, Configurations, ConfigurationServices, ResourceSlices, DeviceClasses,
}

// New makes a Watch.
func New(c, made cache.Cache, inv *inventory.Inventory, claimGone func(types.UID)) *Watch {
	return &Watch{
		cache: c, made: made, inventory: inv, claimGone: claimGone, retryEvery: time.Second,
		synced: make(chan struct{}), taken: map[Source]bool{}, queues: map[Source]queue{},
	}
}

// Source is a controller's source. Jobs and Services are watched for controllers that have taken theirs before
// the inventory is fed.
func (w *Watch) Source(s Source) source.SyncingSource {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.taken[s] = true
	return &attached{w, s}
}

// attached has a queue filled.
type attached struct {
	*Watch
	source Source
}

func (a *attached) String() string { return "inventory source: " + string(a.source) }

// Start attaches the queue.
func (a *attached) Start(_ context.Context, q queue) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queues[a.source] = q
	return nil
}

// WaitForSync ends when the inventory holds all that there is, and this source's queue too:
// what changed before it was attached has been missed. Each source has a WaitForSync of its own.
func (a *attached) WaitForSync(ctx context.Context) error {
	select {
	case <-a.synced:
	case <-ctx.Done():
		return errors.New("the inventory is not synced: " + ctx.Err().Error())
	}
	change := a.inventory.Everything()
	var instances akriv0.InstanceList // some may be of devices that nobody reports
	if err := a.cache.List(ctx, &instances, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list Instances: %w", err)
	}
	for i := range instances.Items {
		key := client.ObjectKeyFromObject(&instances.Items[i])
		change.Instances, change.Brokers = append(change.Instances, key), append(change.Brokers, key)
	}
	a.add(a.source, a.source.concerns(change))
	return nil
}

// Synced reports an error until the inventory holds all that there is.
func (w *Watch) Synced() error {
	select {
	case <-w.synced:
		return nil
	default:
		return errors.New("the caches have not synced yet")
	}
}

// Feed returns the part of the manager that feeds the inventory, and ends the manager with an error when the API
// server was restored from a backup. The next process reads everything anew.
func (w *Watch) Feed(guard *restored.Guard, client rest.Interface) manager.Runnable {
	return &feeder{w, guard, client}
}

type feeder struct {
	*Watch
	guard  *restored.Guard
	client rest.Interface
}

// NeedLeaderElection has it run also while another process leads.
func (*feeder) NeedLeaderElection() bool { return false }

func (f *feeder) Start(ctx context.Context) error {
	caches, err := f.feed(ctx)
	if err != nil || ctx.Err() != nil {
		return err
	}
	return f.guard.Run(ctx, f.client, caches...)
}

// feed registers the handlers, waits until they have had all that there is, or ctx is done, and returns the
// caches that it comes from.
func (w *Watch) feed(ctx context.Context) (caches []restored.Cache, _ error) {
	var had []toolscache.InformerSynced
	for _, k := range w.kinds() {
		informer := w.informer(ctx, k.cache, k.object)
		if informer == nil {
			return nil, nil // ctx is done
		}
		registration, err := informer.AddEventHandler(k.handler)
		if err != nil {
			return nil, fmt.Errorf("watch %s: %w", k.resource, err)
		}
		had = append(had, registration.HasSynced)
		if c, ok := informer.(toolscache.SharedIndexInformer); ok {
			caches = append(caches, restored.Cache{Resource: k.resource, Informer: c})
		}
	}
	if toolscache.WaitForCacheSync(ctx.Done(), had...) {
		close(w.synced)
	}
	return caches, nil
}

func (w *Watch) informer(ctx context.Context, c cache.Cache, object client.Object) cache.Informer {
	for {
		informer, err := c.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err == nil {
			return informer
		}
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot watch yet")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(w.retryEvery):
		}
	}
}

// kind is a kind that is watched.
type kind struct {
	cache    cache.Cache
	resource schema.GroupVersionResource
	object   client.Object
	handler  toolscache.ResourceEventHandler
}

func (w *Watch) kinds() []kind {
	inv, pods := w.inventory, corev1.SchemeGroupVersion.WithResource("pods")
	all := []kind{
		{w.cache, akriv0.SchemeGroupVersion.WithResource("configurations"), &akriv0.Configuration{}, handler(w, inv.SetConfiguration,
			func(c *akriv0.Configuration) inventory.Change { return inv.DeleteConfiguration(c.Namespace, c.Name) })},
		{w.cache, v1alpha1.SchemeGroupVersion.WithResource("deviceslices"), &v1alpha1.DeviceSlice{}, handler(w, inv.SetSlice,
			func(s *v1alpha1.DeviceSlice) inventory.Change { return inv.DeleteSlice(s.Name) })},
		{w.cache, v1alpha1.SchemeGroupVersion.WithResource("slotclaims"), &v1alpha1.SlotClaim{}, handler(w, inv.SetClaim,
			func(c *v1alpha1.SlotClaim) inventory.Change { w.claimGone(c.UID); return inv.DeleteClaim(c.Name) })},
		{w.cache, corev1.SchemeGroupVersion.WithResource("nodes"), &corev1.Node{}, handler(w,
			func(n *corev1.Node) inventory.Change { return inv.SetNode(n.Name, nodeOf(n)) },
			func(n *corev1.Node) inventory.Change { return inv.DeleteNode(n.Name) })},
		{w.cache, akriv0.SchemeGroupVersion.WithResource("instances"), &akriv0.Instance{}, w.instanceHandler()},
		{w.made, pods, &corev1.Pod{}, w.madeHandler()},
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.taken[Brokers] {
		jobs := batchv1.SchemeGroupVersion.WithResource("jobs")
		all = append(all, kind{w.made, jobs, &batchv1.Job{}, w.madeHandler()})
	}
	if w.taken[InstanceServices] || w.taken[ConfigurationServices] {
		services := corev1.SchemeGroupVersion.WithResource("services")
		all = append(all, kind{w.made, services, &corev1.Service{}, w.madeHandler()})
	}
	return append(all, kind{w.cache, pods, PodMetadata(), handler(w, w.podChanged, w.podChanged)})
}

// instanceHandler has an Instance's brokers looked at only when something of it
// changed that they depend on: each claim changes its deviceUsage.
func (w *Watch) instanceHandler() toolscache.ResourceEventHandler {
	every := handler(w, instanceChanged, instanceChanged)
	every.UpdateFunc = func(oldObj, obj any) {
		before, now := oldObj.(*akriv0.Instance), obj.(*akriv0.Instance)
		change := instanceChanged(now)
		if before.UID == now.UID && (before.DeletionTimestamp == nil) == (now.DeletionTimestamp == nil) && maps.Equal(before.Annotations, now.Annotations) {
			change.Brokers = nil
		}
		w.enqueue(change)
	}
	return every
}

func instanceChanged(i *akriv0.Instance) inventory.Change {
	key := client.ObjectKeyFromObject(i)
	return inventory.Change{Instances: []types.NamespacedName{key}, Brokers: []types.NamespacedName{key}}
}

// madeHandler has looked at what a broker pod, a Job or a Service concerns by its labels: brokers and Service of its
// Instance, status and Service of its Configuration. What DRA has of these does not depend on it.
func (w *Watch) madeHandler() toolscache.ResourceEventHandler {
	changed := func(obj any) {
		if d, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
			obj = d.Obj
		}
		o := obj.(client.Object)
		if instance := o.GetLabels()[naming.Instance]; instance != "" {
			key := []types.NamespacedName{{Namespace: o.GetNamespace(), Name: instance}}
			w.add(Brokers, key)
			w.add(InstanceServices, key)
		}
		if configuration := o.GetLabels()[naming.Configuration]; configuration != "" {
			key := []types.NamespacedName{{Namespace: o.GetNamespace(), Name: configuration}}
			w.add(Configurations, key)
			w.add(ConfigurationServices, key)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    changed,
		UpdateFunc: func(before, now any) { changed(before); changed(now) }, // somebody may have taken a label off
		DeleteFunc: changed,
	}
}

// BrokersChanged has everything looked at that depends on how an Instance's brokers
// fare.
func (w *Watch) BrokersChanged(instance types.NamespacedName) {
	configuration := []types.NamespacedName{naming.ConfigurationOf(instance)}
	w.add(InstanceServices, []types.NamespacedName{instance})
	w.add(Configurations, configuration)
	w.add(ConfigurationServices, configuration)
}

// Look returns a function that has an object looked at by the controller of a source.
func (w *Watch) Look(s Source) func(types.NamespacedName) {
	return func(key types.NamespacedName) { w.add(s, []types.NamespacedName{key}) }
}

func (w *Watch) podChanged(p *metav1.PartialObjectMetadata) inventory.Change {
	return inventory.Change{Claims: w.inventory.ClaimsOfPod(p.UID)}
}

func nodeOf(n *corev1.Node) inventory.Node {
	return inventory.Node{UID: n.UID, Ready: v1alpha1.Ready(n), Labels: n.Labels,
		Unschedulable: n.Spec.Unschedulable, Taints: n.Spec.Taints}
}

// handler makes an informer's handler of one function for an object that is there and
// one for an object that is gone. An informer whose watch was interrupted shows an
// object that was deleted and made again under its name as one update: then the former
// is gone.
func handler[T client.Object](w *Watch, set, gone func(T) inventory.Change) toolscache.ResourceEventHandlerFuncs {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { w.enqueue(set(obj.(T))) },
		UpdateFunc: func(oldObj, obj any) {
			if before := oldObj.(T); before.GetUID() != obj.(T).GetUID() {
				w.enqueue(gone(before))
			}
			w.enqueue(set(obj.(T)))
		},
		DeleteFunc: func(obj any) {
			if d, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = d.Obj
			}
			w.enqueue(gone(obj.(T)))
		},
	}
}

// enqueue has everything of a change looked at.
func (w *Watch) enqueue(change inventory.Change) {
	for _, s := range sources {
		w.add(s, s.concerns(change))
	}
}

// concerns is what the source's controller has to look at because of a change.
func (s Source) concerns(change inventory.Change) []types.NamespacedName {
	switch s {
	case Instances:
		return change.Instances
	case Claims:
		keys := make([]types.NamespacedName, len(change.Claims))
		for i, name := range change.Claims {
			keys[i].Name = name
		}
		return keys
	case Brokers, InstanceServices, ResourceSlices:
		return change.Brokers
	case ConfigurationServices:
		return change.Configurations
	case DeviceClasses:
		if len(change.Configurations) == 0 {
			return nil
		}
		return make([]types.NamespacedName, 1) // its controller looks at all
	}
	concerned := map[types.NamespacedName]bool{}
	for _, configuration := range change.Configurations {
		concerned[configuration] = true
	}
	for _, instance := range change.Instances {
		concerned[naming.ConfigurationOf(instance)] = true
	}
	return slices.Collect(maps.Keys(concerned))
}

// add puts keys into a source's queue, once it is started.
func (w *Watch) add(s Source, keys []types.NamespacedName) {
	if len(keys) == 0 {
		return
	}
	w.mu.Lock()
	q := w.queues[s]
	w.mu.Unlock()
	if q == nil {
		return
	}
	for _, key := range keys {
		q.Add(reconcile.Request{NamespacedName: key})
	}
}
