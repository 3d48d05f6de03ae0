package history

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"

	ourscheme "github.com/kubeslot/kubeslot/types/client/clientset/versioned/scheme"
)

// registry is the API server's --etcd-prefix.
const registry = "/registry/"

// EtcdRecorder records what Recorder does, from the API server's storage: it misses
// nothing while API servers are killed, whose watches begin anew then. Safe for
// concurrent use.
type EtcdRecorder struct {
	client   *clientv3.Client
	prefixes []string

	mu       sync.Mutex
	advanced chan struct{} // closed and replaced when revision has grown, or err is set
	revision int64         // up to which the events are complete
	events   []Event
	err      error
}

// RecordEtcd records until ctx ends. The namespace must have no pods yet. Its
// Configurations, and DeviceSlices and SlotClaims, that are there are recorded as added.
func RecordEtcd(ctx context.Context, client *clientv3.Client, namespace string) (*EtcdRecorder, error) {
	r := &EtcdRecorder{client: client, advanced: make(chan struct{}), prefixes: []string{
		registry + "pods/" + namespace + "/",
		registry + "akri.sh/configurations/" + namespace + "/",
		registry + "kubeslot.io/deviceslices/",
		registry + "kubeslot.io/slotclaims/",
	}}
	there, err := client.Get(ctx, registry, clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortAscend))
	if err != nil {
		return nil, fmt.Errorf("read what is there: %w", err)
	}
	for _, kv := range there.Kvs {
		e, ok, err := r.decode(watch.Added, kv, kv.ModRevision)
		if err != nil {
			return nil, err
		}
		if ok && e.Pod != nil {
			return nil, fmt.Errorf("namespace %s has pod %s already: a history begins before the first", namespace, e.Pod.Name)
		}
		if ok {
			r.events = append(r.events, e)
		}
	}
	r.revision = there.Header.Revision
	changes := client.Watch(clientv3.WithRequireLeader(ctx), registry, clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithRev(r.revision+1))
	go func() {
		for change := range changes {
			r.changed(ctx, change)
		}
	}()
	return r, nil
}

// changed takes in what the watch has brought.
func (r *EtcdRecorder) changed(ctx context.Context, change clientv3.WatchResponse) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := change.Err(); err != nil && ctx.Err() == nil {
		r.err = fmt.Errorf("the watch of etcd has ended: %w", err)
	}
	for _, event := range change.Events {
		kind, kv := watch.Modified, event.Kv
		switch {
		case event.IsCreate():
			kind = watch.Added
		case event.Type == mvccpb.DELETE:
			kind, kv = watch.Deleted, event.PrevKv
		}
		if kv == nil {
			continue // it was there for no time that the watch knows of
		}
		e, ok, err := r.decode(kind, kv, event.Kv.ModRevision)
		if err != nil {
			r.err = err
		}
		if e.Seen = time.Now(); ok {
			r.events = append(r.events, e)
		}
	}
	r.revision = max(r.revision, change.Header.Revision)
	close(r.advanced)
	r.advanced = make(chan struct{})
}

// decode returns an event of one of the four kinds; ok is false for any other key.
func (r *EtcdRecorder) decode(kind watch.EventType, kv *mvccpb.KeyValue, revision int64) (e Event, ok bool, err error) {
	for _, prefix := range r.prefixes {
		ok = ok || strings.HasPrefix(string(kv.Key), prefix)
	}
	if !ok {
		return Event{}, false, nil
	}
	object, _, err := stored.Decode(kv.Value, nil, nil)
	if err != nil {
		return Event{}, false, fmt.Errorf("%s in etcd: %w", kv.Key, err)
	}
	if meta, is := object.(metav1.Object); is {
		meta.SetResourceVersion(strconv.FormatInt(revision, 10))
	}
	e = newEvent(kind, object)
	if e.object() == nil {
		return Event{}, false, fmt.Errorf("%s in etcd is a %T", kv.Key, object)
	}
	return e, true, nil
}

// stored decodes what API servers store: protobuf of their own kinds, JSON of others.
var stored = func() runtime.Decoder {
	both := runtime.NewScheme()
	utilruntime.Must(scheme.AddToScheme(both))
	utilruntime.Must(ourscheme.AddToScheme(both))
	return serializer.NewCodecFactory(both).UniversalDeserializer()
}()

// Events returns the history up to now. It waits until that has been seen, or ctx
// ends.
func (r *EtcdRecorder) Events(ctx context.Context) ([]Event, error) {
	now, err := r.client.Get(ctx, registry, clientv3.WithCountOnly())
	if err != nil {
		return nil, fmt.Errorf("ask etcd for its revision: %w", err)
	}
	for {
		r.mu.Lock()
		events, seen, advanced, err := r.events, r.revision, r.advanced, r.err
		r.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if seen >= now.Header.Revision {
			return events[:len(events):len(events)], nil
		}
		// Everybody's leases change all the time, so the watch advances by itself.
		select {
		case <-advanced:
		case <-ctx.Done():
			return nil, fmt.Errorf("etcd is at revision %d, and its watch has shown those up to %d: %w", now.Header.Revision, seen, ctx.Err())
		}
	}
}
