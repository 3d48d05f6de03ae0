package configurationresources

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// feed keeps the ledger in step with the API's objects of one kind. The ledger is
// their store: an informer would keep each of tens of thousands a second time.
type feed[T object] struct {
	// names calls visit with those that the ledger has.
	names func(visit func(name string))
	// relisted, if not nil, is told that a list follows, which is as of the version,
	// and of the UIDs in it.
	relisted func(version string, uids map[types.UID]bool)
	// set enters an object that was listed, or that the watch shows.
	set func(obj T, listed bool)
	// deleted is for an object that the watch shows deleted, and missing for one that
	// a list lacks: its deletion was missed.
	deleted func(obj T)
	missing func(name string)
}

type object interface {
	runtime.Object
	metav1.Object
}

// source is where the objects come from.
type source[L runtime.Object] struct {
	list  func(context.Context, metav1.ListOptions) (L, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

func (s source[L]) listWatch() *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return s.list(ctx, options)
		},
		WatchFuncWithContext: s.watch,
	}
}

// controller follows the objects. trim drops from an object what no decision needs,
// while it is not in the ledger yet: at start all of them are collected first.
func (f *feed[T]) controller(b *slotCache, objects *cache.ListWatch, kind T, trim func(T), failed cache.WatchErrorHandlerWithContext) cache.Controller {
	return cache.New(&cache.Config{
		ListerWatcher:                cache.ToListWatcherWithWatchListSemantics(objects, b.client),
		ObjectType:                   kind,
		Queue:                        f.queue(b, trim),
		Process:                      f.follow,
		WatchErrorHandlerWithContext: failed,
	})
}

// queue is where the watch puts what it sees: a list as a whole, then each change.
func (f *feed[T]) queue(b *slotCache, trim func(T)) *cache.RealFIFO {
	return cache.NewRealFIFOWithOptions(cache.RealFIFOOptions{
		Logger: &b.logger, AtomicEvents: true,
		Transformer: func(obj any) (any, error) {
			t := obj.(T)
			t.SetManagedFields(nil)
			t.SetOwnerReferences(nil)
			t.SetLabels(nil)
			t.SetAnnotations(nil)
			trim(t)
			return t, nil
		},
	})
}

// follow enters what the queue gives.
func (f *feed[T]) follow(obj any, _ bool) error {
	for _, d := range obj.(cache.Deltas) {
		if list, ok := d.Object.(cache.ReplacedAllInfo); ok {
			f.replace(list)
		} else if obj := d.Object.(T); d.Type == cache.Deleted {
			f.deleted(obj)
		} else {
			f.set(obj, false)
		}
	}
	return nil
}

func (f *feed[T]) replace(list cache.ReplacedAllInfo) {
	listed, uids := make(map[string]bool, len(list.Objects)), make(map[types.UID]bool, len(list.Objects))
	for _, obj := range list.Objects {
		t := obj.(T)
		listed[t.GetName()], uids[t.GetUID()] = true, true
	}
	if f.relisted != nil {
		f.relisted(list.ResourceVersion, uids)
	}
	var missing []string
	f.names(func(name string) {
		if !listed[name] {
			missing = append(missing, name)
		}
	})
	for _, name := range missing {
		f.missing(name)
	}
	for i, obj := range list.Objects {
		f.set(obj.(T), true)
		list.Objects[i] = nil // there may be many
	}
}

// done makes an InformerSynced of a channel. Unlike the queue's HasSynced, it may be
// called under the slot cache's lock, for which the queue waits with its own.
func done(synced <-chan struct{}) cache.InformerSynced {
	return func() bool {
		select {
		case <-synced:
			return true
		default:
			return false
		}
	}
}
