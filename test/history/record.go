package history

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
)

// Recorder records a namespace's Pods and Instances.
type Recorder struct {
	kube      kubernetes.Interface
	akri      versioned.Interface
	namespace string

	mu     sync.Mutex
	events []Event
	err    error
}

// Record starts recording until ctx ends. The namespace must have no pods yet.
func Record(ctx context.Context, kube kubernetes.Interface, akri versioned.Interface, namespace string) (*Recorder, error) {
	r := &Recorder{kube: kube, akri: akri, namespace: namespace}
	pods, err := kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	if n := len(pods.Items); n > 0 {
		return nil, fmt.Errorf("namespace %s has %d pods already: a history begins before the first", namespace, n)
	}
	instances, err := akri.AkriV0().Instances(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range instances.Items {
		r.events = append(r.events, Event{Type: watch.Added, Instance: &instances.Items[i]})
	}
	err = errors.Join(
		r.follow(ctx, pods.ResourceVersion, func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return kube.CoreV1().Pods(namespace).Watch(ctx, o)
		}),
		r.follow(ctx, instances.ResourceVersion, func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return akri.AkriV0().Instances(namespace).Watch(ctx, o)
		}))
	return r, err
}

// follow records one watch. It is taken up again after an interruption, from the
// last event that was seen, so that none is missed.
func (r *Recorder) follow(ctx context.Context, from string, start cache.WatchFuncWithContext) error {
	w, err := watchtools.NewRetryWatcherWithContext(ctx, from, &cache.ListWatch{WatchFuncWithContext: start})
	if err != nil {
		return err
	}
	go func() {
		for shown := range w.ResultChan() {
			e := Event{Type: shown.Type, Seen: time.Now()}
			switch object := shown.Object.(type) {
			case *v1.Pod:
				e.Pod = object
			case *akriv0.Instance:
				e.Instance = object
			}
			r.mu.Lock()
			switch {
			case shown.Type == watch.Error:
				r.err = fmt.Errorf("the watch has lost events: %w", apierrors.FromObject(shown.Object))
			case e.Pod != nil || e.Instance != nil:
				r.events = append(r.events, e)
			}
			r.mu.Unlock()
		}
	}()
	return nil
}

// Events returns the history up to what the API has now. It waits until that has
// been seen, or ctx ends.
func (r *Recorder) Events(ctx context.Context) ([]Event, error) {
	pods, err := r.kube.CoreV1().Pods(r.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	instances, err := r.akri.AkriV0().Instances(r.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	asOf := revision(pods.ResourceVersion)
	there := map[types.UID]string{}
	for i := range pods.Items {
		there[pods.Items[i].UID] = pods.Items[i].ResourceVersion
	}
	for i := range instances.Items {
		there[instances.Items[i].UID] = instances.Items[i].ResourceVersion
	}
	var events []Event
	err = wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(context.Context) (bool, error) {
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
		var object metav1.Object = e.Instance
		if e.Pod != nil {
			object = e.Pod
		}
		uid := object.GetUID()
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
