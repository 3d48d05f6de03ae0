package source

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/wake"
)

// pause is how long changes are collected before they are told of.
const pause = 200 * time.Millisecond

// Live follows the objects until the context of Watch is done. Safe for concurrent use.
type Live struct {
	kinds   []*liveKind
	missing []string
	dirty   wake.Signal
	changed wake.Signal

	mu      sync.Mutex // serializes Objects
	objects view.Objects
	held    map[types.UID]heldBy
}

// liveKind is one kind that is followed.
type liveKind struct {
	kind
	store   cache.Store // nil for what may not be listed
	changed atomic.Bool // since Objects read it
	err     atomic.Pointer[error]
}

// heldBy is what a pod's annotation gave it, which is not decoded again while it is the
// same.
type heldBy struct {
	assignment, holder string
	held               map[string][]assignment.Grant
	err                error
}

// kindCount is how many kinds there are.
const kindCount = 8

// Reach is how far each kind may be listed. Who has the same Reach may list the same objects.
type Reach struct {
	scopes [kindCount]scope
	// namespace is where the kinds are listed that may not be listed in all; "" when all may.
	namespace string
}

// Reach asks the API server, by listing an object of each kind, how far the user may list them now.
func (s *Source) Reach(ctx context.Context) (Reach, error) {
	var r Reach
	for i, k := range s.kinds() {
		reach, err := s.tryList(&k, func(namespace string) error {
			_, err := k.list(ctx, namespace, metav1.ListOptions{Limit: 1})
			return err
		})
		if err != nil {
			return Reach{}, err
		}
		r.scopes[i] = reach
		if k.namespaced && reach != everywhere {
			r.namespace = s.namespace
		}
	}
	return r, nil
}

// Watch follows the objects that the user may list; see Follow.
func (s *Source) Watch(ctx context.Context) (*Live, error) {
	reach, err := s.Reach(ctx)
	if err != nil {
		return nil, err
	}
	return s.Follow(ctx, reach)
}

// Follow follows the objects of a Reach, and no others. It returns when each kind has been
// read once. Where permissions are taken away later, or the API server
// cannot be reached, it keeps what was read last, and Err says so.
func (s *Source) Follow(ctx context.Context, reach Reach) (*Live, error) {
	kinds := s.kinds()
	l := &Live{dirty: wake.New(), changed: wake.New(), held: map[types.UID]heldBy{}}
	var synced []cache.InformerSynced
	for i := range kinds {
		k := &liveKind{kind: kinds[i]}
		l.kinds = append(l.kinds, k)
		namespace := metav1.NamespaceAll
		switch reach.scopes[i] {
		case nowhere:
			continue
		case oneNamespace:
			namespace = reach.namespace
		}
		informer := cache.NewSharedInformer(l.follow(k, namespace, s.client), k.object, 0)
		if err := informer.SetTransform(trim); err != nil {
			return nil, err
		}
		mark := func() {
			k.changed.Store(true)
			l.dirty.Send()
		}
		registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { mark() }, UpdateFunc: func(any, any) { mark() }, DeleteFunc: func(any) { mark() },
		})
		if err != nil {
			return nil, err
		}
		k.store = informer.GetStore()
		k.changed.Store(true)
		synced = append(synced, registration.HasSynced)
		go informer.RunWithContext(ctx)
	}
	scopes := reach.scopes[:]
	noteScopes(&l.objects, kinds, scopes, reach.namespace)
	l.missing = missing(kinds, scopes)
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil, fmt.Errorf("read the cluster's objects: %w", context.Cause(ctx))
	}
	go l.tell(ctx)
	return l, nil
}

// follow lists and watches a kind, and remembers whether that works. The reflector does
// not tell of each error.
func (l *Live) follow(k *liveKind, namespace string, client any) cache.ListerWatcher {
	note := func(err error) {
		if errors.Is(err, context.Canceled) {
			return
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", k.resource, err)
		}
		if before := k.err.Swap(&err); before != nil && (*before == nil) != (err == nil) || before == nil && err != nil {
			l.dirty.Send()
		}
	}
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := k.list(ctx, namespace, o)
			if !apierrors.IsResourceExpired(err) { // listed again at once
				note(err)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := k.watch(ctx, namespace, o)
			if !apierrors.IsResourceExpired(err) && !apierrors.IsInvalid(err) {
				note(err)
			}
			return w, err
		},
	}, client)
}

// Err says why the objects are not up to date; nil while all kinds are listed and
// watched. Errors of the API server can be told apart in it.
func (l *Live) Err() error {
	for _, k := range l.kinds {
		if err := k.err.Load(); err != nil && *err != nil {
			return *err
		}
	}
	return nil
}

// tell passes on that there are changes, at most once in a pause.
func (l *Live) tell(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.dirty:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		l.changed.Send()
	}
}

// Changed receives when objects, or Err, have changed since it last did, at most five
// times a second. It has one reader, and is never closed.
func (l *Live) Changed() <-chan struct{} { return l.changed }

// Missing names what the user may not list; see List.
func (l *Live) Missing() []string { return l.missing }

// Objects are the objects as they are now. What has not changed since the last call is
// not copied again: all of it is shared, and not to be changed.
func (l *Live) Objects() view.Objects {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range l.kinds {
		if k.store == nil || !k.changed.Swap(false) {
			continue
		}
		list := k.store.List()
		items := make([]runtime.Object, 0, len(list))
		for _, item := range list {
			items = append(items, item.(runtime.Object))
		}
		k.enter(&l.objects, items)
		if k.resource == "pods" {
			l.objects.Held = l.decode(l.objects.Pods)
		}
	}
	return l.objects
}

// decode reads what pods were given, of those whose annotation is another than before.
func (l *Live) decode(pods []corev1.Pod) func(*corev1.Pod) (map[string][]assignment.Grant, error) {
	now := make(map[types.UID]heldBy, len(l.held))
	for i := range pods {
		pod := &pods[i]
		text, given := pod.Annotations[assignment.Annotation]
		if !given || pod.Spec.NodeName == "" {
			continue
		}
		holder := pod.Annotations[assignment.HolderAnnotation]
		h, known := l.held[pod.UID]
		if !known || h.assignment != text || h.holder != holder {
			h = heldBy{assignment: text, holder: holder}
			h.held, h.err = assignment.Held(pod)
		}
		now[pod.UID] = h
	}
	l.held = now
	return func(pod *corev1.Pod) (map[string][]assignment.Grant, error) {
		return now[pod.UID].held, now[pod.UID].err
	}
}

// lastSeen is when an event happened last.
func lastSeen(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	}
	return e.CreationTimestamp.Time
}
