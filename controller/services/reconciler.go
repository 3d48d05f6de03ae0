// Package services makes the Services that a Configuration asks for: one for each
// Instance, and one for all, which select the pods of their brokers.
//
// Both are reconciled alike: what differs is the object that owns the Service
// (owners.go).
package services

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubeslot/kubeslot/controller/brokers"
	"github.com/kubeslot/kubeslot/controller/inventory"
	"github.com/kubeslot/kubeslot/controller/limits"
	"github.com/kubeslot/kubeslot/controller/naming"
	"github.com/kubeslot/kubeslot/controller/watch"
)

const (
	// cacheLag is when something is looked at again that the cache may not have yet.
	cacheLag = time.Second
	// refusedAgain is when something is tried again that is refused, or in the way.
	refusedAgain = time.Minute
	// lookInterval is at least between two looks at the Service of one object: one may list the pods
	// of its brokers, and there is an event of each of them. A look at 50,000 takes about 0.1 s.
	lookInterval = 2 * time.Second
)

// Reasons of Events.
const (
	InvalidSpec = "InvalidServiceSpec"
	NameTaken   = "ServiceNameTaken"
	NotWritten  = "ServiceNotWritten"
)

// Config is what a Reconciler needs; all of it is required.
type Config struct {
	// Client reads Instances and Configurations from the cache.
	Client client.Client
	// Made reads pods and Services from the cache, which has their indexes: watch.Made.
	Made client.Reader
	// Live reads Services from the API server.
	Live      client.Reader
	Inventory *inventory.Inventory
	// Instances says how many devices have no Instance.
	Instances func(types.NamespacedName) limits.Sum
	Brokers   *brokers.Reconciler
	Recorder  events.EventRecorder
	Clock     clock.PassiveClock
}

// Reconciler sees to one Service at a time.
type Reconciler struct {
	Config
	find finder

	mu       sync.Mutex
	reported map[types.NamespacedName]string    // what an Event said last
	looked   map[types.NamespacedName]time.Time // when, of objects that have or want a Service
}

var _ reconcile.Reconciler = &Reconciler{}

// Reconcile sees to the Service of one object.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	key := request.NamespacedName
	if early := r.early(key); early > 0 {
		return reconcile.Result{RequeueAfter: early}, nil
	}
	o, err := r.find(ctx, &r.Config, key)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("look for the owner of a Service, %s: %w", key, err)
	}
	if o == nil { // the garbage collector removes its Service
		r.forget(key)
		return reconcile.Result{}, nil
	}
	f := facts{owner: o.reference.UID}
	if o.raw != nil {
		if f.want, err = render(o); err != nil { // what is there is left as it is
			r.tell(o, InvalidSpec, err.Error())
			return reconcile.Result{}, nil
		}
	}
	var services corev1.ServiceList
	if err := o.made(ctx, &r.Config, &services); err != nil {
		return reconcile.Result{}, fmt.Errorf("look at the Service of %s: %w", key, err)
	}
	f.services = services.Items
	if f.want == nil && len(f.services) == 0 {
		r.forget(key)
		return reconcile.Result{}, nil
	}
	if f.expected = o.expected(); !f.keeps() {
		var pods corev1.PodList
		if err := o.made(ctx, &r.Config, &pods); err != nil {
			return reconcile.Result{}, fmt.Errorf("look at the brokers of %s: %w", key, err)
		}
		f.pods = pods.Items
	}
	inTheWay, after, err := r.do(ctx, decide(f), o)
	if err != nil {
		return reconcile.Result{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.looked[key] = r.Clock.Now(); !inTheWay {
		delete(r.reported, key)
	}
	return reconcile.Result{RequeueAfter: after}, nil
}

// early returns how long it is until an object is to be looked at again.
func (r *Reconciler) early(key types.NamespacedName) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.looked[key].Add(lookInterval).Sub(r.Clock.Now())
}

// do writes. It returns whether something is in the way, of which there is an Event, and when to look
// again.
func (r *Reconciler) do(ctx context.Context, s step, o *owner) (inTheWay bool, after time.Duration, _ error) {
	var err error
	switch s.verb {
	case "":
		return false, 0, nil
	case create:
		err = r.Client.Create(ctx, s.service)
	case update:
		// With the resourceVersion that was read: somebody may have got an address.
		err = r.Client.Update(ctx, s.service)
	default:
		err = r.Client.Delete(ctx, s.service, client.Preconditions{UID: &s.service.UID})
	}
	switch {
	case err == nil:
		writes.WithLabelValues(string(s.verb)).Inc()
		klog.FromContext(ctx).V(2).Info("Wrote a Service", "verb", s.verb, "service", klog.KObj(s.service))
		return false, 0, nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return false, 0, nil
	case apierrors.IsAlreadyExists(err):
		return r.taken(ctx, s.service, o)
	case apierrors.IsConflict(err), apierrors.IsNotFound(err): // the cache was behind
		return false, cacheLag, nil
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
		r.tell(o, NotWritten, fmt.Sprintf("%s Service %s: %v", s.verb, s.service.Name, err))
		return true, refusedAgain, nil
	}
	return false, 0, fmt.Errorf("%s Service %s/%s: %w", s.verb, s.service.Namespace, s.service.Name, err)
}

// taken finds out who has the name. A stranger's Service is left alone.
func (r *Reconciler) taken(
	ctx context.Context, want *corev1.Service, o *owner,
) (inTheWay bool, after time.Duration, _ error) {
	there, err := watch.Get(ctx, r.Live, client.ObjectKeyFromObject(want), &corev1.Service{})
	if err != nil {
		return false, 0, fmt.Errorf("read Service %s/%s: %w", want.Namespace, want.Name, err)
	}
	if there == nil {
		return false, cacheLag, nil
	}
	switch has := metav1.GetControllerOf(there); {
	case has != nil && has.UID == o.reference.UID:
		// Ours, and the cache is behind, or it has lost its labels.
		if err := r.Client.Update(ctx, merge(there, want)); err != nil && !apierrors.IsConflict(err) {
			return false, 0, fmt.Errorf("update Service %s/%s: %w", want.Namespace, want.Name, err)
		}
		return false, cacheLag, nil
	case has != nil && naming.SameObject(*has, o.reference):
		return false, cacheLag, nil // of a former object of the name, and going
	}
	r.tell(o, NameTaken, fmt.Sprintf("there is a Service %s that is not the controller's: it is left alone; "+
		"rename or delete it", want.Name))
	return true, refusedAgain, nil
}

// tell attaches an Event to the object, if it is news.
func (r *Reconciler) tell(o *owner, reason, message string) {
	if r.isNews(o.key, reason+message) {
		r.Recorder.Eventf(o.object, nil, corev1.EventTypeWarning, reason, "WriteService", "%s", message)
	}
}

// forget forgets an object that has no Service and wants none.
func (r *Reconciler) forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.reported, key)
	delete(r.looked, key)
}

// isNews reports whether a text is another than the last about an object.
func (r *Reconciler) isNews(key types.NamespacedName, text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.reported[key]
	r.reported[key] = text
	return before != text
}

// owner is what a Service is for.
type owner struct {
	key       types.NamespacedName
	object    runtime.Object
	reference metav1.OwnerReference
	label     string // its label on pods and the Service, by which the cache has an index
	field     string // of the Configuration, where the spec is
	raw       *runtime.RawExtension
	// expected reports whether a broker runs or is to come.
	expected func() bool
}

// finder finds what a Service is for; nil when there is none, or it is going.
type finder func(ctx context.Context, c *Config, key types.NamespacedName) (*owner, error)
