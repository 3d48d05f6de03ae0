// Package claims deletes SlotClaims that their node does not release: of nodes that are gone, or
// that somebody or a Configuration says are out of reach (v1alpha1.ReleaseFacts), and claims that have
// not counted and that no pod was assigned. All others are released by their node.
//
// What the caches say only makes a claim suspect. What it is judged by (decide.go) is
// read from the API server, and the deletion is of that very claim, by UID.
package claims

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubeslot/kubeslot/controller/inventory"
	"github.com/kubeslot/kubeslot/controller/watch"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Config is what a Reconciler needs; all of it is required.
type Config struct {
	// Client reads SlotClaims, Nodes and the metadata of pods from the cache.
	Client client.Client
	// Live reads Nodes, Leases, pods, ResourceClaims, DeviceSlices and Configurations from the API server.
	Live      client.Reader
	Inventory *inventory.Inventory
	Recorder  events.EventRecorder
	Clock     clock.PassiveClock
	// Grace is how long a claim that does not count, and may have before the start, is left alone.
	// One that has never counted has no grace.
	Grace time.Duration
}

// Reconciler judges one claim at a time.
type Reconciler struct {
	Config

	mu      sync.Mutex
	since   map[types.UID]time.Time // by claim: since when there is a reason that must stand for the grace
	counted map[types.UID]history   // claims that have counted, or may have
	began   bool                    // the claims that there were at first are in counted
	waiting sets.Set[types.UID]     // claims that wait for nodes that are not Ready
	heard   map[string]renewal      // by node
}

var _ reconcile.Reconciler = &Reconciler{}

// New makes a Reconciler.
func New(c Config) *Reconciler {
	return &Reconciler{Config: c, since: map[types.UID]time.Time{}, counted: map[types.UID]history{},
		waiting: sets.New[types.UID](), heard: map[string]renewal{}}
}

// Reconcile deletes the claim if it is nobody's.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	claim, err := watch.Get(ctx, r.Client, request.NamespacedName, &v1alpha1.SlotClaim{})
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read SlotClaim %s: %w", request.Name, err)
	}
	if claim == nil || claim.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	if err := r.begin(ctx); err != nil {
		return reconcile.Result{}, fmt.Errorf("list the SlotClaims that there are: %w", err)
	}
	suspicious, waits, err := r.suspicious(ctx, claim)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("look at SlotClaim %s: %w", claim.Name, err)
	}
	v := verdict{}
	if suspicious {
		f, err := r.readFacts(ctx, claim)
		if err != nil {
			return reconcile.Result{}, fmt.Errorf("look at SlotClaim %s: %w", claim.Name, err)
		}
		v, waits = judge(f), f.release().Waits()
	}
	r.waits(claim.UID, waits && v.reason == "")
	if left := r.graceLeft(claim.UID, v); v.reason != "" && left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	if v.reason == "" {
		return reconcile.Result{RequeueAfter: v.recheck}, nil
	}
	if v.broker {
		if err := r.deleteBroker(ctx, claim); err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{}, r.delete(ctx, claim, v)
}

// graceLeft is how long the verdict has to stand before it is acted upon.
func (r *Reconciler) graceLeft(uid types.UID, v verdict) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !v.afterGrace {
		delete(r.since, uid)
		return 0
	}
	since, ok := r.since[uid]
	if !ok {
		since = r.Clock.Now()
		r.since[uid] = since
	}
	return r.Grace - r.Clock.Since(since)
}

// Forget is called with each claim that is gone.
func (r *Reconciler) Forget(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.since, uid)
	delete(r.counted, uid)
	r.waiting.Delete(uid)
	unreachableSlots.Set(float64(r.waiting.Len()))
}

// waits notes whether the claim waits for a node that is not Ready.
func (r *Reconciler) waits(uid types.UID, does bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if does {
		r.waiting.Insert(uid)
	} else {
		r.waiting.Delete(uid)
	}
	unreachableSlots.Set(float64(r.waiting.Len()))
}

// begin notes, once, which claims there are: they may have counted before this process looked, be it long until
// each is looked at.
func (r *Reconciler) begin(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.began {
		return nil
	}
	var all v1alpha1.SlotClaimList
	if err := r.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	for i := range all.Items {
		r.counted[all.Items[i].UID] = unknown
	}
	r.began = true
	return nil
}

// judgeCount says whether the claim counts now and whether it may have before.
func (r *Reconciler) judgeCount(claim *v1alpha1.SlotClaim) facts {
	f := facts{claim: claim, doesNotCount: r.Inventory.DoesNotCount(claim)}
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.doesNotCount == nil {
		r.counted[claim.UID] = once
	}
	f.counted = r.counted[claim.UID]
	return f
}

// suspicious reports, by what the caches say, whether somebody else than its node may have to
// delete the claim, and whether it waits for its node.
func (r *Reconciler) suspicious(ctx context.Context, claim *v1alpha1.SlotClaim) (suspicious, waits bool, err error) {
	f := r.judgeCount(claim)
	if f.node, err = watch.Get(ctx, r.Client, types.NamespacedName{Name: claim.Spec.NodeName},
		&corev1.Node{}); err != nil {
		return false, false, err
	}
	podExists, podGoing := true, false
	if p := claim.Spec.Pod; p != nil {
		pod, err := watch.Get(ctx, r.Client, types.NamespacedName{Namespace: p.Namespace, Name: p.Name},
			watch.PodMetadata())
		if err != nil {
			return false, false, err
		}
		podExists = pod != nil && pod.UID == p.UID
		podGoing = podExists && pod.DeletionTimestamp != nil
	}
	release := f.release()
	release.PodRuns, release.PodGoing = podExists, podGoing
	return suspect(f, podExists), release.Waits(), nil
}

// readFacts reads them from the API server.
func (r *Reconciler) readFacts(ctx context.Context, claim *v1alpha1.SlotClaim) (facts, error) {
	f := r.judgeCount(claim)
	var err error
	if f.node, err = watch.Get(ctx, r.Live, types.NamespacedName{Name: claim.Spec.NodeName},
		&corev1.Node{}); err != nil {
		return facts{}, err
	}
	if f.node == nil {
		r.forgetNode(claim.Spec.NodeName)
	}
	if p := claim.Spec.Pod; p != nil {
		if f.pod, err = watch.Get(ctx, r.Live, types.NamespacedName{Namespace: p.Namespace, Name: p.Name},
			&corev1.Pod{}); err != nil {
			return facts{}, err
		}
		if f.pod != nil && f.pod.UID != p.UID {
			f.pod = nil
		}
		if claim.Spec.ReleaseUnreachableAfter != nil && f.node != nil && !v1alpha1.Ready(f.node) {
			if f.silent, err = r.silence(ctx, f.node.Name, claim.Spec.ReleaseUnreachableAfter.Duration); err != nil {
				return facts{}, err
			}
		}
	}
	if f.allocated, err = r.allocated(ctx, claim, f.node); err != nil {
		return facts{}, err
	}
	if f.doesNotCount != nil && f.counted == never && f.node != nil && !assigned(f) {
		reached, err := r.reached(ctx, claim, f)
		if err != nil {
			return facts{}, err
		}
		if reached {
			f.counted = unknown
		}
	}
	return f, nil
}

// reached reports whether the claim counts by what the API server has, or has counted for all
// that the cache tells: the cache may be behind that of claims. A claim beyond the capacity is
// not taken for one that counted because its node lists the device: a node could claim so
// what there will be when the capacity grows.
func (r *Reconciler) reached(ctx context.Context, claim *v1alpha1.SlotClaim, f facts) (bool, error) {
	s, err := claim.Slot()
	if err != nil {
		return false, nil
	}
	c := r.Inventory.Device(s.Instance).Configuration
	switch {
	case c == nil:
		name, _ := slot.SplitInstance(s.Instance)
		now := &akriv0.ConfigurationList{}
		err := r.Live.List(ctx, now, client.MatchingFields{metav1.ObjectNameField: name})
		return len(now.Items) > 0, err
	case errors.Is(f.doesNotCount, v1alpha1.ErrBeyondCapacity): // and the device is listed
		now, err := watch.Get(ctx, r.Live, client.ObjectKeyFromObject(c), &akriv0.Configuration{})
		return now != nil && s.Index < now.Spec.Slots(), err
	}
	return r.listed(ctx, s.Instance, c, f.node)
}

// listed reports whether the node says that it reaches the claim's device, as the API server
// has it. A node in device-plugin mode claims as soon as it has listed a device, and a scheduler with claimMode
// Scheduler before it binds the pod; the cache of DeviceSlices may be behind that of claims. No pod that was assigned
// the slot tells such a claim from that of a node which has never seen the device.
func (r *Reconciler) listed(ctx context.Context, instance string, c *akriv0.Configuration, node *corev1.Node) (bool, error) {
	if c.Spec.Discovery != nil { // others list it
		return labels.SelectorFromSet(c.Spec.Discovery.NodeSelector).Matches(labels.Set(node.Labels)), nil
	}
	all := &v1alpha1.DeviceSliceList{}
	if err := r.Live.List(ctx, all, client.MatchingFields{"spec.nodeName": node.Name}); err != nil {
		return false, fmt.Errorf("list the DeviceSlices of node %s: %w", node.Name, err)
	}
	for _, slice := range all.Items {
		for i := range slice.Spec.Devices {
			if d := &slice.Spec.Devices[i]; d.Instance() == instance && d.Configuration.Namespace == c.Namespace && d.Check(node.Name) == nil {
				return true, nil
			}
		}
	}
	return false, nil
}

// delete deletes the very claim that was judged, and says so where somebody looks.
func (r *Reconciler) delete(ctx context.Context, claim *v1alpha1.SlotClaim, v verdict) error {
	pod := ""
	if p := claim.Spec.Pod; p != nil {
		pod = p.Namespace + "/" + p.Name
	}
	err := r.Client.Delete(ctx, claim, client.Preconditions{UID: &claim.UID})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // gone, or another claim by now
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete SlotClaim %s of node %s, pod %q, because %s: %w", claim.Name, claim.Spec.NodeName, pod, v.message, err)
	}
	deleted.WithLabelValues(v.reason).Inc()
	klog.FromContext(ctx).Info("Deleted a SlotClaim that is nobody's", "slot", claim.Name, "node", claim.Spec.NodeName,
		"pod", pod, "container", claim.Spec.Container, "reason", v.reason, "message", v.message)
	if about := r.about(claim, v); about != nil {
		r.Recorder.Eventf(about, nil, corev1.EventTypeWarning, "SlotClaim"+v.reason, "DeleteSlotClaim",
			"Deleted the claim of slot %s by node %s, for pod %q: %s", claim.Name, claim.Spec.NodeName, pod, v.message)
	}
	return nil
}

// about is what an Event is attached to: the Node, which made the claim, or when it
// is gone the Configuration.
func (r *Reconciler) about(claim *v1alpha1.SlotClaim, v verdict) runtime.Object {
	if v.reason != nodeGone {
		return &corev1.Node{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
			ObjectMeta: metav1.ObjectMeta{Name: claim.Spec.NodeName, UID: claim.OwnerUID()},
		}
	}
	if s, err := claim.Slot(); err == nil {
		if owner := r.Inventory.Device(s.Instance).Configuration; owner != nil {
			return owner
		}
	}
	return nil
}
