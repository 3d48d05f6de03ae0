// Package properties reads the values of a Configuration's discoveryProperties and
// follows their changes in Secrets and ConfigMaps.
//
// Each Secret and ConfigMap that is referred to is read, and then watched by its name, as
// the kubelet does for pods. Where the API server allows get and not watch, it is read
// again each minute. What several Configurations refer to is read once.
package properties

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/wake"
)

// AllNamespaces among the namespaces of a Reader stands for every namespace.
const AllNamespaces = "*"

// Reader reads values. Safe for concurrent use.
type Reader struct {
	client     kubernetes.Interface
	namespaces []string

	mu      sync.Mutex
	objects map[reference]*object // that somebody follows
}

// NewReader returns a Reader. namespaces are those that any Configuration may refer to,
// besides its own.
func NewReader(client kubernetes.Interface, namespaces []string) *Reader {
	return &Reader{client: client, namespaces: namespaces, objects: map[reference]*object{}}
}

// Follow calls changed with the values of the properties once they are known, and then
// whenever they are others, until ctx ends. changed gets an error instead when there are
// no values, or no longer, that says which object is missing or cannot be read; equal
// errors in a row once. It is never called concurrently. The map must not be changed.
//
// An optional reference to what does not exist has no value. Nothing is read for
// properties without valueFrom.
//
// It refuses what is in a namespace that a Configuration of this namespace must not read:
// kubecri's permissions are not those of whoever wrote the Configuration, who could
// otherwise have it read, and send to a device of his own, any Secret that some
// Configuration needs.
func (r *Reader) Follow(ctx context.Context, namespace string, properties []v0.DiscoveryProperty, changed func(values map[string][]byte, err error)) {
	wanted, err := r.references(namespace, properties)
	if err != nil {
		changed(nil, err)
		<-ctx.Done()
		return
	}
	objects := map[reference]*object{}
	for _, ref := range wanted {
		if objects[ref] == nil {
			objects[ref] = r.acquire(ref)
			defer r.release(ref)
		}
	}
	news := wake.New()
	for _, o := range objects {
		defer o.subscribe(news)()
	}
	var last map[string][]byte
	var reported string
	for ctx.Err() == nil {
		values, known, err := resolve(properties, wanted, objects)
		switch {
		case !known: // yet
		case err != nil && err.Error() != reported:
			reported = err.Error()
			changed(nil, err)
		case err == nil && (last == nil || reported != "" || !maps.EqualFunc(last, values, bytes.Equal)):
			last, reported = values, ""
			changed(values, nil)
		}
		select {
		case <-news:
		case <-ctx.Done():
		}
	}
}

// references returns the object that each property refers to, if it does, by its index.
func (r *Reader) references(own string, properties []v0.DiscoveryProperty) (map[int]reference, error) {
	all := map[int]reference{}
	for i, p := range properties {
		var kind kind
		var selector *v0.DiscoveryPropertyKeySelector
		switch {
		case p.Value != nil:
			continue
		case p.ValueFrom != nil && p.ValueFrom.SecretKeyRef != nil:
			kind, selector = secret, p.ValueFrom.SecretKeyRef
		case p.ValueFrom != nil && p.ValueFrom.ConfigMapKeyRef != nil:
			kind, selector = configMap, p.ValueFrom.ConfigMapKeyRef
		default:
			return nil, fmt.Errorf("discovery property %q has neither a value nor a valueFrom", p.Name)
		}
		ref := reference{kind: kind, namespace: selector.Namespace, name: selector.Name}
		if ref.namespace == "" {
			ref.namespace = metav1.NamespaceDefault
		}
		if ref.namespace != own && !slices.Contains(r.namespaces, ref.namespace) && !slices.Contains(r.namespaces, AllNamespaces) {
			return nil, fmt.Errorf("discovery property %q: %s is not in the Configuration's own namespace %q; kubecri's --discovery-property-namespaces=%s would allow it (a reference without namespace means %q)",
				p.Name, ref, own, ref.namespace, metav1.NamespaceDefault)
		}
		all[i] = ref
	}
	return all, nil
}

// resolve returns the values, or what is wrong with them; neither while an object has not
// been read.
func resolve(properties []v0.DiscoveryProperty, wanted map[int]reference, objects map[reference]*object) (values map[string][]byte, known bool, err error) {
	values = make(map[string][]byte, len(properties))
	for i, p := range properties {
		ref, refers := wanted[i]
		if !refers {
			values[p.Name] = []byte(*p.Value)
			continue
		}
		is := objects[ref].get()
		if !is.read {
			return nil, false, nil
		}
		selector := p.ValueFrom.SecretKeyRef
		if ref.kind == configMap {
			selector = p.ValueFrom.ConfigMapKeyRef
		}
		value, ok := is.data[selector.Key]
		switch {
		case apierrors.IsForbidden(is.err):
			return nil, true, fmt.Errorf("discovery property %q: kubecri may not read %s; %s; %w", p.Name, ref, binding(ref, is.err), is.err)
		case is.err != nil:
			return nil, true, fmt.Errorf("discovery property %q: read %s: %w", p.Name, ref, is.err)
		case ok:
			values[p.Name] = value
		case ptr.Deref(selector.Optional, false):
		case !is.exists:
			return nil, true, fmt.Errorf("discovery property %q: there is no %s", p.Name, ref)
		default:
			return nil, true, fmt.Errorf("discovery property %q: %s has no key %q", p.Name, ref, selector.Key)
		}
	}
	return values, true, nil
}

var userPattern = regexp.MustCompile(`User "([^"]{1,253})"`)

// binding says how kubecri is allowed to read an object that the API server has refused
// it: its error names the user.
func binding(ref reference, err error) string {
	subject := "--group=system:kubecris"
	if match := userPattern.FindStringSubmatch(err.Error()); match != nil {
		if account, ok := strings.CutPrefix(match[1], "system:serviceaccount:"); ok {
			subject = "--serviceaccount=" + account
		} else if !strings.HasPrefix(match[1], "system:kubecri:") { // the kubelet's own identity, say
			subject = "--user=" + match[1]
		}
	}
	return fmt.Sprintf("allow it with kubectl create rolebinding kubeslot-discovery-properties --namespace=%s --clusterrole=kubeslot:discovery-properties %s", ref.namespace, subject)
}

// acquire returns the object, which is read from now on if nobody else follows it.
func (r *Reader) acquire(ref reference) *object {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.objects[ref]
	if o == nil {
		ctx, stop := context.WithCancel(context.Background())
		o = &object{reference: ref, client: r.client, stop: stop, done: make(chan struct{}),
			subscribers: map[wake.Signal]bool{}}
		r.objects[ref] = o
		go func() {
			defer close(o.done)
			o.run(ctx)
		}()
	}
	o.users++
	return o
}

// release is called for each acquire. The last one waits until nothing is read any more.
func (r *Reader) release(ref reference) {
	r.mu.Lock()
	o := r.objects[ref]
	o.users--
	last := o.users == 0
	if last {
		delete(r.objects, ref)
	}
	r.mu.Unlock()
	if last {
		o.stop()
		<-o.done
	}
}

// Pauses between readings of one object.
const (
	// reread is how often an object is read that cannot be watched.
	reread = time.Minute
	// firstRetry is after a failure, doubled up to reread.
	firstRetry = time.Second
	// A watch ends by itself after between watchTime and twice that.
	watchTime = 5 * time.Minute
)
