package properties

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeslot/kubeslot/wake"
)

// kind is Secret or ConfigMap.
type kind string

const (
	secret    kind = "Secret"
	configMap kind = "ConfigMap"
)

// reference names an object.
type reference struct {
	kind            kind
	namespace, name string
}

// String returns kind namespace/name.
func (r reference) String() string { return fmt.Sprintf("%s %s/%s", r.kind, r.namespace, r.name) }

// content is what is known of an object.
type content struct {
	read   bool // or tried to
	exists bool
	data   map[string][]byte
	err    error // why it cannot be read; what was known before stays known, so it is nil then
}

// object is a Secret or ConfigMap that is followed. Safe for concurrent use.
type object struct {
	reference
	client kubernetes.Interface
	users  int                // guarded by Reader.mu
	stop   context.CancelFunc // ends run
	done   chan struct{}      // closed when run has ended

	mu          sync.Mutex
	content     content
	subscribers map[wake.Signal]bool
}

func (o *object) get() content {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.content
}

// subscribe sends when the content has changed, until unsubscribe.
func (o *object) subscribe(news wake.Signal) (unsubscribe func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.subscribers[news] = true
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.subscribers, news)
	}
}

func (o *object) set(c content) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c.err != nil && o.content.read && o.content.err == nil && !apierrors.IsForbidden(c.err) {
		return // the API server is away: what it said last stands
	}
	o.content = c
	for news := range o.subscribers {
		news.Send()
	}
}

// run keeps the content up to date until ctx ends.
func (o *object) run(ctx context.Context) {
	retry, mayWatch := firstRetry, true
	for ctx.Err() == nil {
		version, err := o.read(ctx)
		if ctx.Err() != nil {
			return
		}
		pause := reread
		switch {
		case err != nil:
			pause, retry = retry, min(2*retry, reread)
		case mayWatch:
			started := time.Now()
			err := o.watch(ctx, version)
			if mayWatch = !apierrors.IsForbidden(err) && !apierrors.IsMethodNotSupported(err); !mayWatch {
				break
			}
			if time.Since(started) > reread {
				retry = firstRetry
			}
			pause, retry = retry, min(2*retry, reread)
		}
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-ctx.Done():
		}
	}
}

// read gets the object, and returns its resourceVersion, "" for one that does not exist.
func (o *object) read(ctx context.Context) (version string, err error) {
	var is runtime.Object
	if o.kind == secret {
		is, err = o.client.CoreV1().Secrets(o.namespace).Get(ctx, o.name, metav1.GetOptions{})
	} else {
		is, err = o.client.CoreV1().ConfigMaps(o.namespace).Get(ctx, o.name, metav1.GetOptions{})
	}
	switch {
	case apierrors.IsNotFound(err):
		o.set(content{read: true})
		return "", nil
	case err != nil:
		o.set(content{read: true, err: err})
		return "", err
	}
	o.set(contentOf(is))
	return is.(metav1.Object).GetResourceVersion(), nil
}

// watch keeps the content up to date until the watch ends, which is no error.
func (o *object) watch(ctx context.Context, version string) error {
	seconds := int64((watchTime + rand.N(watchTime)) / time.Second)
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, o.name).String(),
		ResourceVersion: version, TimeoutSeconds: &seconds}
	var events watch.Interface
	var err error
	if o.kind == secret {
		events, err = o.client.CoreV1().Secrets(o.namespace).Watch(ctx, options)
	} else {
		events, err = o.client.CoreV1().ConfigMaps(o.namespace).Watch(ctx, options)
	}
	if err != nil {
		return err
	}
	defer events.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, ok := <-events.ResultChan():
			switch {
			case !ok, event.Type == watch.Error: // such as 410 Gone: it is read anew
				return nil
			case event.Object.(metav1.Object).GetName() != o.name:
			case event.Type == watch.Deleted:
				o.set(content{read: true})
			case event.Type == watch.Added, event.Type == watch.Modified:
				o.set(contentOf(event.Object))
			}
		}
	}
}

func contentOf(object runtime.Object) content {
	c := content{read: true, exists: true, data: map[string][]byte{}}
	switch object := object.(type) {
	case *corev1.Secret:
		c.data = object.Data
	case *corev1.ConfigMap:
		maps.Copy(c.data, object.BinaryData)
		for key, value := range object.Data {
			c.data[key] = []byte(value)
		}
	}
	return c
}
