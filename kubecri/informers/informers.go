// Package informers has the caches that kubecri fills from the API server: of this node its
// Node object, pods, DeviceSlices and SlotClaims, and all Configurations.
//
// A thousand nodes may start together, and each write of a node is news for the API server's
// watches. So each kind is asked for in the way that costs the API server least (its
// pkg/storage/cacher):
//
//   - A watch of one name is told of that object's events alone. A watch with another field
//     selector is woken by all events of custom resources, which have no index by field. A
//     node mostly has one DeviceSlice, and then that is watched by name (slices.go).
//   - A list that a watch is to begin with (sendInitialEvents) copies and sorts all objects of
//     the kind, also when a selector leaves a few. So what is selected by spec.nodeName is
//     listed first: pods have an index by it, and the others are at least not copied.
//   - What is read first may be as old as the API server's cache, as with lists since ever:
//     the current version would be a question to etcd.
package informers

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	kubeinformers "k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	"github.com/kubeslot/kubeslot/types/client/informers/externalversions"
	akriinformers "github.com/kubeslot/kubeslot/types/client/informers/externalversions/akri/v0"
	kubeslotinformers "github.com/kubeslot/kubeslot/types/client/informers/externalversions/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// Informers are kubecri's caches. They fill between Start and the end of its channel.
type Informers struct {
	Pods           coreinformers.PodInformer             // of this node
	Nodes          coreinformers.NodeInformer            // this node
	Slices         kubeslotinformers.DeviceSliceInformer // of this node
	Claims         kubeslotinformers.SlotClaimInformer   // of this node
	Configurations akriinformers.ConfigurationInformer   // of all namespaces

	slices    *sliceWatcher
	factories []factory
}

// factory runs informers.
type factory interface {
	Start(stop <-chan struct{})
	Shutdown()
}

// New makes the informers of a node. It connects to nothing.
func New(kube kubernetes.Interface, client versioned.Interface, node string) *Informers {
	core := kubeinformers.NewSharedInformerFactoryWithOptions(kube, 0, kubeinformers.WithTransform(withoutManagedFields))
	ours := externalversions.NewSharedInformerFactoryWithOptions(client, 0, externalversions.WithTransform(withoutManagedFields))
	i := &Informers{
		Pods: core.Core().V1().Pods(), Nodes: core.Core().V1().Nodes(),
		Slices: ours.Kubeslot().V1alpha1().DeviceSlices(), Claims: ours.Kubeslot().V1alpha1().SlotClaims(),
		Configurations: ours.Akri().V0().Configurations(),
		slices:         newSliceWatcher(client, node),
		factories:      []factory{core, ours},
	}
	fromCore := func(of runtime.Object, from cache.ListerWatcher) {
		core.InformerFor(of, func(kubernetes.Interface, resync) cache.SharedIndexInformer { return informerOf(of, from) })
	}
	fromOurs := func(of runtime.Object, from cache.ListerWatcher) {
		ours.InformerFor(of, func(versioned.Interface, resync) cache.SharedIndexInformer { return informerOf(of, from) })
	}
	pods, nodes := kube.CoreV1().Pods(metav1.NamespaceAll), kube.CoreV1().Nodes()
	claims, configurations := client.KubeslotV1alpha1().SlotClaims(), client.AkriV0().Configurations(metav1.NamespaceAll)
	here, name := fields.OneTermEqualSelector("spec.nodeName", node), fields.OneTermEqualSelector(metav1.ObjectNameField, node)
	fromCore(&corev1.Pod{}, listed{selecting(pods.List, pods.Watch, here)})
	fromCore(&corev1.Node{}, streamed(selecting(nodes.List, nodes.Watch, name), kube))
	fromOurs(&v1alpha1.SlotClaim{}, listed{selecting(claims.List, claims.Watch, here)})
	fromOurs(&v1alpha1.DeviceSlice{}, listed{i.slices.listWatch()})
	fromOurs(&akriv0.Configuration{}, streamed(selecting(configurations.List, configurations.Watch, fields.Everything()), client))
	return i
}

// Start fills the caches until stop is closed. Informers retry by themselves, without end.
func (i *Informers) Start(stop <-chan struct{}) {
	for _, f := range i.factories {
		f.Start(stop)
	}
}

// Shutdown waits until the informers have ended, after Start's channel was closed.
func (i *Informers) Shutdown() {
	for _, f := range i.factories {
		f.Shutdown()
	}
}

// SliceWritten says that the node has made or updated a DeviceSlice, so that it is watched.
func (i *Informers) SliceWritten(name string) { i.slices.exists(name) }

func informerOf(of runtime.Object, from cache.ListerWatcher) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(from, of, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
}

// selecting lists and watches what the selector selects.
func selecting[L runtime.Object](
	list func(context.Context, metav1.ListOptions) (L, error),
	follow func(context.Context, metav1.ListOptions) (watch.Interface, error), selector fields.Selector,
) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = selector.String()
			return list(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = selector.String()
			return follow(ctx, options)
		},
	}
}

// withoutManagedFields saves their memory: an update without them leaves them as they are.
func withoutManagedFields(obj any) (any, error) {
	if o, err := meta.Accessor(obj); err == nil {
		o.SetManagedFields(nil)
	}
	return obj, nil
}
