package claims

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ktypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubeslot/kubeslot/controller/inventory"
	"github.com/kubeslot/kubeslot/controller/watch"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

const grace = 30 * time.Second

// rig is a Reconciler with a cache and an API server of their own.
type rig struct {
	*testing.T
	*Reconciler
	inv         *inventory.Inventory
	clock       *clocktesting.FakePassiveClock
	cached, api client.WithWatch
	events      *events.FakeRecorder
	reads       int   // of the API server
	deletes     int   // that were tried
	refuse      error // of deletions
}

func newRig(t *testing.T) *rig {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{akriv0.AddToScheme, v1alpha1.AddToScheme, corev1.AddToScheme,
		coordinationv1.AddToScheme, resourceapi.AddToScheme, metav1.AddMetaToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	r := &rig{T: t, inv: inventory.New(), clock: clocktesting.NewFakePassiveClock(time.Unix(1e9, 0)), events: events.NewFakeRecorder(10)}
	nameOf := func(o client.Object) []string { return []string{o.GetName()} }
	nodeOf := func(o client.Object) []string { return []string{o.(*v1alpha1.DeviceSlice).Spec.NodeName} }
	r.api = interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).
		WithIndex(&v1alpha1.DeviceSlice{}, "spec.nodeName", nodeOf).
		WithIndex(&akriv0.Configuration{}, metav1.ObjectNameField, nameOf).Build(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			r.reads++
			return c.Get(ctx, k, obj, opts...)
		}})
	r.cached = interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).Build(), interceptor.Funcs{
		Get: func(
			ctx context.Context, c client.WithWatch, k client.ObjectKey, obj client.Object, opts ...client.GetOption,
		) error {
			if err := c.Get(ctx, k, obj, opts...); err != nil {
				return err
			}
			return trim(obj)
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			r.deletes++
			if r.refuse != nil {
				return r.refuse
			}
			return r.api.Delete(ctx, obj, opts...)
		}})
	r.restart()
	return r
}

// trim has of a pod what the controller's cache keeps.
func trim(obj client.Object) error {
	pod, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return nil
	}
	for kind, options := range watch.CacheOptions().ByObject {
		if _, ok := kind.(*metav1.PartialObjectMetadata); ok {
			kept, err := options.Transform(pod.DeepCopy())
			if err != nil {
				return err
			}
			*pod = *kept.(*metav1.PartialObjectMetadata)
		}
	}
	return nil
}

func (r *rig) restart() {
	r.Reconciler = New(Config{Client: r.cached, Live: r.api, Inventory: r.inv, Recorder: r.events, Clock: r.clock, Grace: grace})
}

// add makes objects, which cache and API server both have.
func (r *rig) add(objects ...client.Object) {
	r.Helper()
	for _, obj := range objects {
		for _, c := range []client.Client{r.cached, r.api} {
			if err := c.Create(r.Context(), obj.DeepCopyObject().(client.Object)); err != nil {
				r.Fatal(err)
			}
		}
		if c, ok := obj.(*v1alpha1.SlotClaim); ok {
			r.inv.SetClaim(c)
		}
	}
}

// remove deletes from the cache, the API server, or both.
func (r *rig) remove(obj client.Object, from ...client.Client) {
	r.Helper()
	for _, c := range from {
		if err := c.DeleteAllOf(r.Context(), obj, client.InNamespace(obj.GetNamespace())); err != nil {
			r.Fatal(err)
		}
	}
}

// see has the inventory know the device, as seen by node-a.
func (r *rig) see() { r.seenBy("node-a") }

func (r *rig) seenBy(node string) {
	r.inv.SetConfiguration(&akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cam"}})
	r.inv.SetSlice(&v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-0"}, Spec: v1alpha1.DeviceSliceSpec{NodeName: node,
		Devices: []v1alpha1.Device{{Configuration: v1alpha1.ConfigurationReference{Namespace: "default", Name: "cam"},
			ID: "foo0", Shared: true, Hash: slot.InstanceHash("foo0", true, "", slot.ShortHash)}}}})
}

func (r *rig) reconcile() (reconcile.Result, error) {
	return r.Reconcile(r.Context(), reconcile.Request{NamespacedName: ktypes.NamespacedName{Name: claimed}})
}

// keeps checks that the claim is left alone, and looked at again after so long.
func (r *rig) keeps(again time.Duration) {
	r.Helper()
	result, err := r.reconcile()
	if err != nil || result.RequeueAfter != again || r.gone() {
		r.Fatalf("%+v, %v, gone: %v; want it kept, and to be looked at after %s", result, err, r.gone(), again)
	}
}

func (r *rig) deletesFor(reason string) {
	r.Helper()
	if _, err := r.reconcile(); err != nil || !r.gone() {
		r.Fatalf("kept (%v), want it deleted", err)
	}
	select {
	case e := <-r.events.Events:
		for _, part := range []string{reason, claimed, "node-a"} {
			if !strings.Contains(e, part) {
				r.Errorf("Event %q lacks %q", e, part)
			}
		}
	default:
		r.Error("no Event")
	}
}

func (r *rig) gone() bool {
	reads := r.reads
	defer func() { r.reads = reads }()
	return apierrors.IsNotFound(r.api.Get(r.Context(), client.ObjectKey{Name: claimed}, &v1alpha1.SlotClaim{}))
}

func TestClaimInUseCostsNoRead(t *testing.T) {
	r := newRig(t)
	r.see()
	r.add(nodeOf("n1", corev1.ConditionTrue), podOn(t, "u1", "node-a", claimed), claimBy("u1", "n1"))
	r.keeps(0)
	if r.reads != 0 {
		t.Errorf("%d reads of the API server", r.reads)
	}
}

func TestClaimThatDoesNotCount(t *testing.T) {
	for name, tc := range map[string]struct {
		halfway func(*rig)
		deleted bool
	}{
		"is deleted after the grace": {func(*rig) {}, true},
		"counts again":               {func(r *rig) { r.see() }, false},
		"its pod shows up":           {func(r *rig) { r.add(podOn(r.T, "u1", "node-a", claimed)) }, false},
		"the controller is killed": {func(r *rig) {
			r.restart()
			r.keeps(grace)
			r.clock.SetTime(r.clock.Now().Add(grace / 2))
			r.keeps(grace / 2)
		}, true},
		"it counted in between": {func(r *rig) {
			r.see()
			r.keeps(0)
			r.inv.DeleteSlice("node-a-0")
			r.keeps(0)
		}, false},
		"nobody else sees the device any more": {func(r *rig) { r.inv.DeleteSlice("node-b-0") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.seenBy("node-b")
			r.add(nodeOf("n1", corev1.ConditionTrue), claimBy("u1", "n1"))
			r.keeps(grace)
			r.clock.SetTime(r.clock.Now().Add(grace / 2))
			r.keeps(grace / 2)
			tc.halfway(r)
			r.clock.SetTime(r.clock.Now().Add(grace / 2))
			if tc.deleted {
				r.deletesFor("DoesNotCount")
				return
			}
			r.keeps(0)
			if len(r.since) != 0 {
				t.Errorf("remembers %v", r.since)
			}
		})
	}
}

// A node that claims what it has never reached keeps the slot's name taken only until the
// controller sees it, also when it claims again and again. A claim that has counted stays.
func TestClaimThatNeverCounted(t *testing.T) {
	r := newRig(t)
	r.seenBy("node-b")
	r.add(nodeOf("n1", corev1.ConditionTrue))
	if _, err := r.reconcile(); err != nil { // no claim yet
		t.Fatal(err)
	}
	first := claimBy("u1", "n1")
	r.add(first)
	r.keeps(grace) // what counted before the controller began is not known
	r.remove(first, r.cached, r.api)
	r.inv.DeleteClaim(claimed)
	r.Forget(first.UID)
	r.clock.SetTime(r.clock.Now().Add(grace))
	for _, uid := range []ktypes.UID{"again-1", "again-2"} {
		claim := claimBy("u1", "n1")
		claim.UID = uid
		r.add(claim)
		r.deletesFor("NeverCounted")
		r.remove(claim, r.cached)
		r.inv.DeleteClaim(claimed)
		r.Forget(uid)
	}
	r.see()
	r.add(claimBy("u1", "n1"))
	r.keeps(0)
	r.inv.DeleteSlice("node-a-0")
	r.keeps(0)
	r.Forget("claim-uid")
	if len(r.since) != 0 || len(r.counted) != 0 {
		t.Errorf("remembers %v and %v of claims that are gone", r.since, r.counted)
	}
}

// A cache that is behind costs a read, and no claim.
func TestCachesAreNotBelieved(t *testing.T) {
	node, pod, claim := nodeOf("n1", corev1.ConditionTrue), podOn(t, "u1", "node-a", claimed), claimBy("u1", "n1")
	for name, behind := range map[string]func(r *rig){
		"no Node yet": func(r *rig) { r.remove(node, r.cached) },
		"no pod yet, and the node was not Ready": func(r *rig) {
			r.remove(pod, r.cached)
			stale := nodeOf("n1", corev1.ConditionUnknown)
			r.remove(node, r.cached)
			if err := r.cached.Create(r.Context(), stale); err != nil {
				r.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.see()
			r.add(node, pod, claim)
			behind(r)
			r.keeps(0)
			if r.reads == 0 || r.deletes != 0 {
				t.Errorf("%d reads, %d deletions", r.reads, r.deletes)
			}
		})
	}
}

// A claim goes with its Node object. Of a node that is not Ready it stays, though its pod is gone, until somebody says that the node is off.
func TestNodeOrPodGone(t *testing.T) {
	node, pod := nodeOf("n1", corev1.ConditionTrue), podOn(t, "u1", "node-a", claimed)
	t.Run("Node", func(t *testing.T) {
		r := newRig(t)
		r.see()
		r.add(node, pod, claimBy("u1", "n1"))
		r.remove(node, r.cached, r.api)
		r.keeps(0) // the pod is still there
		r.remove(pod, r.cached, r.api)
		r.deletesFor("NodeGone")
	})
	t.Run("pod of a node that is not Ready", func(t *testing.T) {
		r := newRig(t)
		r.see()
		r.add(nodeOf("n1", corev1.ConditionUnknown), pod, claimBy("u1", "n1"))
		r.keeps(0)
		r.waitsForNode(0)
		r.remove(pod, r.cached, r.api)
		r.keeps(0)
		r.waitsForNode(1)
		r.update(nodeOf("n1", corev1.ConditionTrue))
		r.keeps(0)
		r.waitsForNode(0)
		off := nodeOf("n1", corev1.ConditionUnknown)
		off.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService}}
		r.update(off)
		r.deletesFor("OutOfService")
		r.waitsForNode(0)
	})
	t.Run("another pod has its name", func(t *testing.T) {
		r := newRig(t)
		r.see()
		r.add(nodeOf("n1", corev1.ConditionUnknown), podOn(t, "u2", "node-a", claimed), claimBy("u1", "n1"))
		r.keeps(0)
		r.waitsForNode(1)
		r.Forget("claim-uid")
		r.waitsForNode(0)
	})
}

func (r *rig) waitsForNode(want int) {
	r.Helper()
	if got := testutil.ToFloat64(unreachableSlots); got != float64(want) {
		r.Fatalf("%v slots wait for their nodes, want %d", got, want)
	}
}

// update gives cache and API server another Node of the name.
func (r *rig) update(node *corev1.Node) {
	r.Helper()
	r.remove(node, r.cached, r.api)
	r.add(node)
}

// A deletion may fail, and the claim may be another by then: never is that deleted.
func TestDeletionMayFail(t *testing.T) {
	r := newRig(t)
	r.see()
	r.add(claimBy("u1", "n1"))
	r.refuse = apierrors.NewInternalError(context.DeadlineExceeded)
	if _, err := r.reconcile(); err == nil || !strings.Contains(err.Error(), claimed) || !strings.Contains(err.Error(), "default/p") || !strings.Contains(err.Error(), "node-a") {
		t.Errorf("error %v, want it to name slot, pod and node", err)
	}
	r.refuse = nil
	r.restart()
	r.deletesFor("NodeGone")
	r.keepsNothing()

	r = newRig(t)
	r.add(claimBy("u1", "n1"))
	r.refuse = apierrors.NewConflict(v1alpha1.Resource("slotclaims"), claimed, context.Canceled)
	if _, err := r.reconcile(); err != nil {
		t.Errorf("the claim is another by now: %v", err)
	}
	var uid *ktypes.UID
	r.cached = interceptor.NewClient(r.cached, interceptor.Funcs{Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, opts ...client.DeleteOption) error {
		o := client.DeleteOptions{}
		o.ApplyOptions(opts)
		uid = o.Preconditions.UID
		return nil
	}})
	r.restart()
	if _, err := r.reconcile(); err != nil || uid == nil || *uid != "claim-uid" {
		t.Errorf("deletes by UID %v (%v), want the claim that was judged", uid, err)
	}
}

// keepsNothing checks that a claim that is gone is forgotten.
func (r *rig) keepsNothing() {
	r.Helper()
	r.Forget("claim-uid")
	if result, err := r.Reconcile(r.Context(), reconcile.Request{NamespacedName: ktypes.NamespacedName{Name: "no-such-0"}}); err != nil || result.RequeueAfter != 0 {
		r.Errorf("a claim that is gone: %+v, %v", result, err)
	}
	if len(r.since) != 0 {
		r.Errorf("remembers %v", r.since)
	}
}
