// Package watch feeds the inventory from the API server's watches, and puts what may
// have to change into the controllers' queues.
package watch

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kubeslot/kubeslot/controller/inventory"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Watch is the one set of handlers that feeds the inventory. Both of its sources, of
// Instances and of claims, start it, and are synced when the inventory is: no
// controller works before, so that nothing is taken for gone that is not known yet.
type Watch struct {
	cache     cache.Cache
	inventory *inventory.Inventory
	// claimGone is called with each claim that is gone.
	claimGone func(types.UID)
	// retryEvery is how often it is tried to watch a kind whose API is not there, such
	// as a CRD that is not installed yet.
	retryEvery time.Duration

	start  sync.Once
	synced chan struct{} // closed when the inventory holds all that there is

	mu                sync.Mutex
	instances, claims queue // nil before the source is started
}

// New makes a Watch.
func New(c cache.Cache, inv *inventory.Inventory, claimGone func(types.UID)) *Watch {
	return &Watch{cache: c, inventory: inv, claimGone: claimGone, retryEvery: time.Second, synced: make(chan struct{})}
}

// Instances is the source of Instances to look at.
func (w *Watch) Instances() source.SyncingSource {
	return &attached{w, "Instances", func(q queue) { w.instances = q }}
}

// Claims is the source of SlotClaims to look at.
func (w *Watch) Claims() source.SyncingSource {
	return &attached{w, "SlotClaims", func(q queue) { w.claims = q }}
}

// attached has a queue filled.
type attached struct {
	*Watch
	name   string
	attach func(queue)
}

func (a *attached) String() string { return "inventory source: " + a.name }

// Start attaches the queue. Whichever source is started first starts the watches.
func (a *attached) Start(ctx context.Context, q queue) error {
	a.mu.Lock()
	a.attach(q)
	a.mu.Unlock()
	a.start.Do(func() { go a.feed(ctx) })
	return nil
}

// WaitForSync ends when the inventory holds all that there is, and the queue too:
// what changed before it was attached has been missed.
func (a *attached) WaitForSync(ctx context.Context) error {
	select {
	case <-a.synced:
	case <-ctx.Done():
		return errors.New("the inventory is not synced: " + ctx.Err().Error())
	}
	a.enqueue(a.inventory.Everything())
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

// feed registers the handlers and waits until they have had all that there is.
func (w *Watch) feed(ctx context.Context) {
	var had []toolscache.InformerSynced
	for _, k := range w.kinds() {
		informer := w.informer(ctx, k.object)
		if informer == nil {
			return // ctx is done
		}
		registration, err := informer.AddEventHandler(k.handler)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot watch", "kind", k.object)
			return // the source does not sync, and the process ends
		}
		had = append(had, registration.HasSynced)
	}
	if toolscache.WaitForCacheSync(ctx.Done(), had...) {
		close(w.synced)
	}
}

func (w *Watch) informer(ctx context.Context, object client.Object) cache.Informer {
	for {
		informer, err := w.cache.GetInformer(ctx, object, cache.BlockUntilSynced(false))
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
	object  client.Object
	handler toolscache.ResourceEventHandler
}

func (w *Watch) kinds() []kind {
	pods := &metav1.PartialObjectMetadata{}
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	inv := w.inventory
	return []kind{
		{&akriv0.Configuration{}, handler(w, inv.SetConfiguration,
			func(c *akriv0.Configuration) inventory.Change { return inv.DeleteConfiguration(c.Namespace, c.Name) })},
		{&v1alpha1.DeviceSlice{}, handler(w, inv.SetSlice,
			func(s *v1alpha1.DeviceSlice) inventory.Change { return inv.DeleteSlice(s.Name) })},
		{&v1alpha1.SlotClaim{}, handler(w, inv.SetClaim,
			func(c *v1alpha1.SlotClaim) inventory.Change { w.claimGone(c.UID); return inv.DeleteClaim(c.Name) })},
		{&corev1.Node{}, handler(w,
			func(n *corev1.Node) inventory.Change { return inv.SetNode(n.Name, nodeOf(n)) },
			func(n *corev1.Node) inventory.Change { return inv.DeleteNode(n.Name) })},
		{&akriv0.Instance{}, handler(w, instanceChanged, instanceChanged)},
		{pods, handler(w, w.podChanged, w.podChanged)},
	}
}

func instanceChanged(i *akriv0.Instance) inventory.Change {
	return inventory.Change{Instances: []types.NamespacedName{client.ObjectKeyFromObject(i)}}
}

func (w *Watch) podChanged(p *metav1.PartialObjectMetadata) inventory.Change {
	return inventory.Change{Claims: w.inventory.ClaimsOfPod(p.UID)}
}

func nodeOf(n *corev1.Node) inventory.Node {
	node := inventory.Node{UID: n.UID, Labels: n.Labels}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			node.Ready = c.Status == corev1.ConditionTrue
		}
	}
	return node
}

// handler makes an informer's handler of one function for an object that is there and
// one for an object that is gone. An informer whose watch was interrupted shows an
// object that was deleted and made again under its name as one update: then the former
// is gone.
func handler[T client.Object](w *Watch, set, gone func(T) inventory.Change) toolscache.ResourceEventHandler {
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
	w.mu.Lock()
	instances, claims := w.instances, w.claims
	w.mu.Unlock()
	if instances != nil {
		for _, key := range change.Instances {
			instances.Add(reconcile.Request{NamespacedName: key})
		}
	}
	if claims != nil {
		for _, name := range change.Claims {
			claims.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
		}
	}
}
