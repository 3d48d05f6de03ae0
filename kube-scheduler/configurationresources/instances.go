package configurationresources

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// instanceController follows the API's Instances. The ledger is its store: an
// informer would keep each of tens of thousands of Instances a second time.
func (b *book) instanceController(failed cache.WatchErrorHandlerWithContext) cache.Controller {
	instances := b.client.AkriV0().Instances(metav1.NamespaceAll)
	return cache.New(&cache.Config{
		ListerWatcher: cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				return instances.List(ctx, options)
			},
			WatchFuncWithContext: instances.Watch,
		}, b.client),
		ObjectType:                   &akriv0.Instance{},
		Queue:                        b.instanceQueue(),
		Process:                      b.followInstances,
		WatchErrorHandlerWithContext: failed,
	})
}

// instanceQueue is where the watch puts what it sees. After an interruption it also
// gives the deletions that were missed: of what the ledger knows and the API lacks.
func (b *book) instanceQueue() cache.Queue {
	return cache.NewRealFIFOWithOptions(cache.RealFIFOOptions{
		Logger: &b.logger, Name: "Instances", KnownObjects: known{b}, Transformer: trim,
	})
}

// followInstances enters what the queue gives. One Instance that took the place of
// another under its name may come as an update.
func (b *book) followInstances(obj any, _ bool) error {
	for _, d := range obj.(cache.Deltas) {
		if missed, ok := d.Object.(cache.DeletedFinalStateUnknown); ok {
			d.Object = missed.Obj
		}
		if in := d.Object.(*akriv0.Instance); d.Type == cache.Deleted {
			b.deleteInstance(in)
		} else {
			b.setInstance(in)
		}
	}
	return nil
}

// known is the ledger's Instances by key.
type known struct{ *book }

// ListKeys implements cache.KeyListerGetter.
func (k known) ListKeys() []string {
	k.mu.RLock()
	defer k.mu.RUnlock()
	var keys []string
	k.ledger.EachInstance(func(namespace, name string) {
		keys = append(keys, cache.NewObjectName(namespace, name).String())
	})
	return keys
}

// GetByKey implements cache.KeyListerGetter. What it returns has its name alone: it
// is for being deleted.
func (k known) GetByKey(key string) (any, bool, error) {
	name, err := cache.ParseObjectName(key)
	if err != nil {
		return nil, false, err
	}
	return &akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}, true, nil
}

// trim drops from an Instance what no decision needs, while it is not in the ledger
// yet: at start all of them are collected first.
func trim(obj any) (any, error) {
	in, ok := obj.(*akriv0.Instance)
	if !ok {
		return obj, nil // a deletion that was missed
	}
	in.ManagedFields, in.OwnerReferences, in.Labels, in.Annotations = nil, nil, nil, nil
	in.Spec.BrokerProperties, in.Spec.CDIName = nil, ""
	return in, nil
}

func (b *book) setInstance(in *akriv0.Instance) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, version := b.ledger.Known(in.Namespace, in.Name); newer(version, in.ResourceVersion) {
		return // refresh was ahead of the watch
	}
	b.wake(b.ledger.SetInstance(in))
}

func (b *book) deleteInstance(in *akriv0.Instance) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wake(b.ledger.DeleteInstance(in))
}

// refresh enters an Instance that was read because a claim on it met something
// unexpected, ahead of the watch. One that the ledger does not have is left to the
// watch: it may have been deleted since it was read.
func (b *book) refresh(in *akriv0.Instance) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if uid, version := b.ledger.Known(in.Namespace, in.Name); uid == string(in.UID) && newer(in.ResourceVersion, version) {
		b.wake(b.ledger.SetInstance(in))
	}
}

// newer reports whether a is a later resource version than b.
func newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}
