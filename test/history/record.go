package history

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
)

// Recorder records a namespace's Pods and Configurations, and the cluster's
// DeviceSlices and SlotClaims.
type Recorder struct {
	kinds     []*cache.ListWatch
	namespace string

	mu     sync.Mutex
	events []Event
	err    error
}

// Record starts recording until ctx ends. The namespace must have no pods yet.
func Record(ctx context.Context, kube kubernetes.Interface, client versioned.Interface, namespace string) (*Recorder, error) {
	r := &Recorder{namespace: namespace, kinds: []*cache.ListWatch{
		listWatch(kube.CoreV1().Pods(namespace)),
		listWatch(client.AkriV0().Configurations(namespace)),
		listWatch(client.KubeslotV1alpha1().DeviceSlices()),
		listWatch(client.KubeslotV1alpha1().SlotClaims()),
	}}
	for _, kind := range r.kinds {
		there, from, err := list(ctx, kind)
		if err != nil {
			return nil, err
		}
		for _, e := range there {
			if e.Pod != nil {
				return nil, fmt.Errorf("namespace %s has pod %s already: a history begins before the first", namespace, e.Pod.Name)
			}
		}
		r.add(there...)
		if err := r.follow(ctx, from, kind); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// listWatch makes a ListWatch of one kind's client.
func listWatch[L runtime.Object](client interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) },
		WatchFuncWithContext: client.Watch,
	}
}

// list returns the kind's objects as they are now, and the list's resource version.
func list(ctx context.Context, kind *cache.ListWatch) (there []Event, asOf string, err error) {
	shown, err := kind.ListWithContext(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, "", err
	}
	listed, err := meta.ListAccessor(shown)
	if err != nil {
		return nil, "", err
	}
	err = meta.EachListItem(shown, func(object runtime.Object) error {
		there = append(there, newEvent(watch.Added, object))
		return nil
	})
	return there, listed.GetResourceVersion(), err
}

func (r *Recorder) add(events ...Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, events...)
}

// follow records one watch. It is taken up again after an interruption, from the
// last event that was seen, so that none is missed.
func (r *Recorder) follow(ctx context.Context, from string, kind cache.WatcherWithContext) error {
	w, err := watchtools.NewRetryWatcherWithContext(ctx, from, kind)
	if err != nil {
		return err
	}
	go func() {
		for shown := range w.ResultChan() {
			if shown.Type == watch.Error {
				r.mu.Lock()
				r.err = fmt.Errorf("the watch has lost events: %w", apierrors.FromObject(shown.Object))
				r.mu.Unlock()
				continue
			}
			e := newEvent(shown.Type, shown.Object)
			if e.Seen = time.Now(); e.object() != nil {
				r.add(e)
			}
		}
	}()
	return nil
}

// Events returns the history up to what the API has now. It waits until that has
// been seen, or ctx ends.
func (r *Recorder) Events(ctx context.Context) ([]Event, error) {
	there, asOf := map[types.UID]string{}, uint64(0)
	for i, kind := range r.kinds {
		shown, version, err := list(ctx, kind)
		if err != nil {
			return nil, err
		}
		if i == 0 { // what comes later may be missing in this list, and there in another
			asOf = revision(version)
		}
		for _, e := range shown {
			there[e.object().GetUID()] = e.object().GetResourceVersion()
		}
	}
	var events []Event
	err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(context.Context) (bool, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		events = r.events
		return caughtUp(events, there, asOf), r.err
	})
	if err != nil {
		return nil, fmt.Errorf("record the history of namespace %s: %w", r.namespace, err)
	}
	return events[:len(events):len(events)], nil
}

// caughtUp reports whether the events lead at least to the objects that were there
// as of a revision, each in its version or a later one, and to no others.
func caughtUp(events []Event, there map[types.UID]string, asOf uint64) bool {
	have, since := map[types.UID]uint64{}, map[types.UID]uint64{}
	gone := map[types.UID]bool{}
	for _, e := range events {
		uid := e.object().GetUID()
		if _, known := since[uid]; !known {
			since[uid] = e.Revision()
		}
		have[uid], gone[uid] = e.Revision(), e.Type == watch.Deleted
	}
	for uid, version := range there {
		if have[uid] < revision(version) {
			return false
		}
	}
	for uid := range have {
		if _, still := there[uid]; !still && !gone[uid] && since[uid] <= asOf {
			return false
		}
	}
	return true
}
