// Package brokers runs, for each Instance, what its Configuration's brokerSpec wants:
// a Pod on some of the nodes that reach the device, or one Job.
//
// What to do is a pure function of what there is (decide.go, jobs.go); the Reconciler
// does it, in an order in which it may be stopped between any two writes.
package brokers

import (
	"context"
	"fmt"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubeslot/kubeslot/controller/instances"
	"github.com/kubeslot/kubeslot/controller/inventory"
	"github.com/kubeslot/kubeslot/controller/limits"
	"github.com/kubeslot/kubeslot/controller/naming"
	"github.com/kubeslot/kubeslot/controller/watch"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// cacheLag is when something is looked at again that the cache may not have yet.
const cacheLag = time.Second

// Config is what a Reconciler needs; all of it is required but SchedulerName and
// PriorityClass.
type Config struct {
	// Client reads Instances from the cache.
	Client client.Client
	// Made reads pods and Jobs from the cache, which has their indexes: watch.Made.
	Made client.Reader
	// Live reads from the API server.
	Live      client.Reader
	Inventory *inventory.Inventory
	Recorder  events.EventRecorder
	Clock     clock.PassiveClock
	// SchedulerName is of the scheduler of brokers whose spec names none; "" is the
	// cluster's default.
	SchedulerName string
	// PriorityClass is of brokers whose spec says nothing of their priority; "" is the
	// cluster's default.
	PriorityClass string
	// Changed is called with each Instance whose brokers fare otherwise than before.
	Changed func(types.NamespacedName)
	// Wake has an Instance looked at: it waited for room within its Configuration's limits, or for
	// its turn in a roll-out.
	Wake func(types.NamespacedName)
}

// Reconciler sees to the brokers of one Instance at a time.
type Reconciler struct {
	Config
	specs   specs
	rollout rollout
	results results
	limits  *limits.Keeper

	mu       sync.Mutex
	uids     map[types.NamespacedName]types.UID // of Instances
	memories map[types.UID]memory               // by Instance
	told     map[types.UID]Problem              // by Instance: what an Event told last
}

var _ reconcile.Reconciler = &Reconciler{}

// New makes a Reconciler.
func New(c Config) *Reconciler {
	r := &Reconciler{
		Config:   c,
		rollout:  rollout{wake: c.Wake},
		results:  results{of: map[types.NamespacedName]map[string]result{}, changed: c.Changed},
		uids:     map[types.NamespacedName]types.UID{},
		memories: map[types.UID]memory{}, told: map[types.UID]Problem{},
	}
	r.limits = limits.New(r.existing, c.Wake)
	return r
}

// Sum tells how a Configuration's brokers fare.
func (r *Reconciler) Sum(configuration types.NamespacedName) Sum {
	s := r.results.sum(configuration)
	s.Limit = r.limits.Sum(configuration)
	return s
}

// Expected reports whether a broker of the Instance runs or is to come; known is false
// when the Instance has not been looked at yet.
func (r *Reconciler) Expected(instance types.NamespacedName) (expected, known bool) {
	return r.results.expected(instance)
}

// Reconcile sees to an Instance's brokers.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	key := request.NamespacedName
	instance, err := watch.Get(ctx, r.Client, key, &akriv0.Instance{})
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read Instance %s: %w", key, err)
	}
	device := r.Inventory.Device(key.Name)
	c := device.Configuration
	if instance == nil {
		r.forget(key)
	}
	orphan := c == nil || c.Namespace != key.Namespace
	if orphan {
		of := naming.ConfigurationOf(key)
		r.specs.forget(of)
		r.rollout.forget(of)
		r.limits.Forget(of)
	}
	var after time.Duration
	switch {
	case instance == nil, instance.DeletionTimestamp != nil, orphan, instances.OfFormer(instance, c):
		// Its brokers go with it: the garbage collector sees to them.
	case instances.NotUpgraded(instance, r.Inventory.LacksSlices) >= 0:
		// Akri's, and some of its nodes do not report yet: their brokers would be taken for surplus.
		after = instances.LookAgain
	default:
		return r.tend(ctx, instance, device)
	}
	r.results.forget(key)
	r.rollout.leave(key)
	return reconcile.Result{RequeueAfter: after}, r.leave(ctx, key)
}

// tend sees to the brokers of an Instance that is to have its own.
func (r *Reconciler) tend(
	ctx context.Context, instance *akriv0.Instance, device inventory.Device,
) (reconcile.Result, error) {
	key := client.ObjectKeyFromObject(instance)
	f, jobs, err := r.read(ctx, instance, device)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("look at the brokers of Instance %s: %w", key, err)
	}
	pods, job, err := r.decide(key, f, jobs)
	if err != nil {
		return reconcile.Result{}, err
	}
	after, err := r.do(ctx, f, &pods, &job)
	r.remember(key, instance.UID, pods.memory)
	found := result{desired: pods.desired + job.desired, ready: pods.ready + job.ready, outdated: pods.outdated,
		updated:  pods.updated,
		withheld: pods.withheld + job.withheld,
		expected: pods.desired > pods.withheld || job.expected, notReady: pods.notReady}
	for _, problem := range []*Problem{pods.problem, job.problem} {
		if problem != nil {
			found.problem = *problem
		}
	}
	r.results.set(key, found)
	r.tell(f, found.problem, pods.restarts)
	return reconcile.Result{RequeueAfter: after}, err
}

// read collects the facts.
func (r *Reconciler) read(ctx context.Context, instance *akriv0.Instance, device inventory.Device) (*facts, []*batchv1.Job, error) {
	c := device.Configuration
	f := &facts{
		now: r.Clock.Now(), instance: instance, configuration: c, spec: r.specs.of(c),
		reported: device.Reported != nil, shared: instance.Spec.Shared, reach: device.Nodes, lost: device.Unschedulable, scheduler: r.SchedulerName, priority: r.PriorityClass,
		memory: r.memory(instance.UID), formers: sets.New[string](),
	}
	if f.properties = instance.Spec.BrokerProperties; f.reported {
		f.shared, f.properties = device.Reported.Shared, device.BrokerProperties()
	}
	podList, jobList, err := r.listMade(ctx, client.InNamespace(instance.Namespace),
		client.MatchingFields{naming.Instance: instance.Name})
	if err != nil {
		return nil, nil, err
	}
	f.exists = count(podList.Items, jobList.Items, r.reach)[instance.Name]
	names := append([]string(nil), f.reach...)
	for i := range podList.Items {
		pod := &podList.Items[i]
		switch owner := metav1.GetControllerOf(pod); {
		case owner == nil:
		case owner.UID == instance.UID:
			f.pods = append(f.pods, pod)
			names = append(names, pod.Spec.NodeName)
		case naming.SameObject(*owner, naming.OwnedBy(instanceKind, instance)):
			f.formers.Insert(pod.Name)
		}
	}
	var jobs []*batchv1.Job
	for i := range jobList.Items {
		if job := &jobList.Items[i]; metav1.IsControlledBy(job, instance) {
			jobs = append(jobs, job)
		}
	}
	if f.spec != nil || len(f.pods) > 0 {
		f.nodes = r.Inventory.Nodes(names)
	}
	return f, jobs, nil
}

// do does what was planned, and returns when to look again. Each write by itself
// brings the brokers nearer to what they should be.
func (r *Reconciler) do(ctx context.Context, f *facts, pods *plan, jobs *jobPlan) (time.Duration, error) {
	if err := r.note(ctx, f, pods.due); err != nil {
		return 0, err
	}
	for _, removal := range pods.remove {
		if err := r.remove(ctx, f, podKind, removal.pod, removal.why); err != nil {
			return 0, err
		}
	}
	if err := r.replace(ctx, f, pods); err != nil {
		return 0, err
	}
	for _, pod := range pods.adopt {
		if err := r.adopt(ctx, pod); err != nil {
			return 0, err
		}
	}
	for _, pod := range pods.create {
		wait, next, err := r.create(ctx, f, podKind, pod, &pods.memory, &pods.problem)
		if err != nil {
			return 0, err
		}
		if wait > 0 {
			pods.lookAgain(wait)
		}
		if !next {
			break
		}
	}
	wait, err := r.doJobs(ctx, f, jobs, &pods.memory)
	if err != nil {
		return 0, err
	}
	if wait > 0 {
		pods.lookAgain(wait)
	}
	return pods.after, nil
}

// create creates a Pod or a Job, and before it the template of its ResourceClaim. It returns how long to wait
// when it cannot be created now: then something is wrong that another try at once would not cure. next is set
// when that does not hold for another Pod.
func (r *Reconciler) create(
	ctx context.Context, f *facts, kind string, object client.Object, m *memory, problem **Problem,
) (wait time.Duration, next bool, err error) {
	if t := claimTemplate(f); t != nil && !f.templateMade {
		if err = r.createTemplate(ctx, f, t); err != nil {
			kind, object = templateKind, t
		}
		f.templateMade = err == nil
	}
	if err == nil {
		err = r.Client.Create(ctx, object)
	}
	switch {
	case err == nil:
		m.refused, m.refusal = 0, Problem{}
		created.WithLabelValues(kind).Inc()
		klog.FromContext(ctx).V(2).Info("Created a broker", "instance", klog.KObj(f.instance), "kind", kind, "name", object.GetName())
		return 0, true, nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return 0, false, nil // its Instance goes with the namespace
	case apierrors.IsAlreadyExists(err):
		taken, err := r.taken(ctx, f, kind, object)
		if err != nil {
			return 0, false, err
		}
		if taken == nil {
			return cacheLag, false, nil
		}
		*problem, next = taken, kind == podKind
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err),
		kind == templateKind && (apierrors.IsNotFound(err) || meta.IsNoMatchError(err)): // no resource.k8s.io/v1
		*problem = &Problem{NotCreated, fmt.Sprintf("%s %s: %v", kind, object.GetName(), err)}
	default:
		return 0, false, fmt.Errorf("create %s %s/%s: %w", kind, object.GetNamespace(), object.GetName(), err)
	}
	refused.WithLabelValues(kind).Inc()
	m.refused++
	m.refusedAt, m.refusal = f.now, **problem
	return delay(m.refused, maxRefusedDelay), next, nil
}

// taken finds out who has the name of a broker that could not be created; nil when
// there is nothing to do but to wait.
func (r *Reconciler) taken(ctx context.Context, f *facts, kind string, object client.Object) (*Problem, error) {
	there := &metav1.PartialObjectMetadata{}
	there.SetGroupVersionKind(map[string]schema.GroupVersion{podKind: corev1.SchemeGroupVersion,
		jobKind: batchv1.SchemeGroupVersion, templateKind: resourceapi.SchemeGroupVersion}[kind].WithKind(kind))
	there, err := watch.Get(ctx, r.Live, client.ObjectKeyFromObject(object), there)
	if err != nil || there == nil {
		return nil, err
	}
	owner := metav1.GetControllerOf(there)
	if owner != nil && naming.SameObject(*owner, naming.OwnedBy(instanceKind, f.instance)) {
		labels := there.GetLabels()
		if owner.UID == f.instance.UID && (labels[naming.Controller] != naming.ControllerName || labels[naming.Instance] != f.instance.Name) {
			return &Problem{NameTaken, fmt.Sprintf("%s %s has lost one of its labels %s=%s and %s=%s: put them back, or delete it",
				kind, there.GetName(), naming.Controller, naming.ControllerName, naming.Instance, f.instance.Name)}, nil
		}
		return nil, nil // ours, and the cache is behind; or of a former Instance, and going
	}
	return &Problem{NameTaken, fmt.Sprintf("there is a %s %s that is not this Instance's: rename or delete it", kind, there.GetName())}, nil
}
