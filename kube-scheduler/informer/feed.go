package informer

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Feed follows the API's objects of one kind without a store of its own: the caller has one,
// and an informer would keep each of tens of thousands a second time. Its functions are called
// by one goroutine.
type Feed[T Object] struct {
	// Names calls visit with those that the caller has.
	Names func(visit func(name string))
	// Relisted, if not nil, is told that a list follows, which is as of the version,
	// and of the UIDs in it.
	Relisted func(version string, uids map[types.UID]bool)
	// Set enters an object that was listed, or that the watch shows.
	Set func(obj T, listed bool)
	// Deleted is for an object that the watch shows deleted, and Missing for one that
	// a list lacks: its deletion was missed.
	Deleted func(obj T)
	Missing func(name string)
	// Trim drops from an object what the caller does not need, before it is given to Set: at
	// start all of them are collected first.
	Trim func(T)
}

// Object is what the API has.
type Object interface {
	runtime.Object
	metav1.Object
}

// ListWatch lists and watches the objects of a client's interface.
func ListWatch[L runtime.Object](list func(context.Context, metav1.ListOptions) (L, error), watch cache.WatchFuncWithContext) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return list(ctx, options)
		},
		WatchFuncWithContext: watch,
	}
}

// Controller makes what follows the objects once it runs. kind is an object of theirs.
func (f *Feed[T]) Controller(logger klog.Logger, client any, objects *cache.ListWatch, kind T, failed cache.WatchErrorHandlerWithContext) cache.Controller {
	return cache.New(&cache.Config{
		ListerWatcher:                cache.ToListWatcherWithWatchListSemantics(objects, client),
		ObjectType:                   kind,
		Queue:                        f.Queue(logger),
		Process:                      f.Follow,
		WatchErrorHandlerWithContext: failed,
	})
}

// Queue is where the watch puts what it sees: a list as a whole, then each change.
func (f *Feed[T]) Queue(logger klog.Logger) *cache.RealFIFO {
	return cache.NewRealFIFOWithOptions(cache.RealFIFOOptions{
		Logger: &logger, AtomicEvents: true,
		Transformer: func(obj any) (any, error) {
			t := obj.(T)
			t.SetManagedFields(nil)
			t.SetOwnerReferences(nil)
			t.SetLabels(nil)
			t.SetAnnotations(nil)
			f.Trim(t)
			return t, nil
		},
	})
}

// Follow enters what the queue gives.
func (f *Feed[T]) Follow(obj any, _ bool) error {
	for _, d := range obj.(cache.Deltas) {
		if list, ok := d.Object.(cache.ReplacedAllInfo); ok {
			f.replace(list)
		} else if obj := d.Object.(T); d.Type == cache.Deleted {
			f.Deleted(obj)
		} else {
			f.Set(obj, false)
		}
	}
	return nil
}

func (f *Feed[T]) replace(list cache.ReplacedAllInfo) {
	listed, uids := make(map[string]bool, len(list.Objects)), make(map[types.UID]bool, len(list.Objects))
	for _, obj := range list.Objects {
		t := obj.(T)
		listed[t.GetName()], uids[t.GetUID()] = true, true
	}
	if f.Relisted != nil {
		f.Relisted(list.ResourceVersion, uids)
	}
	var missing []string
	f.Names(func(name string) {
		if !listed[name] {
			missing = append(missing, name)
		}
	})
	for _, name := range missing {
		f.Missing(name)
	}
	for i, obj := range list.Objects {
		f.Set(obj.(T), true)
		list.Objects[i] = nil // there may be many
	}
}
