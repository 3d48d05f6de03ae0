package instances

import (
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubeslot/kubeslot/controller/inventory"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

const hash = "8120fe" // of the shared device foo0

var key = types.NamespacedName{Namespace: "default", Name: "cam-" + hash}

func configuration(capacity int32) *akriv0.Configuration {
	return &akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cam", UID: "cam-uid"},
		Spec:       akriv0.ConfigurationSpec{Capacity: capacity, BrokerProperties: map[string]string{"WIN": "configuration"}},
	}
}

func device(properties map[string]string) v1alpha1.Device {
	return v1alpha1.Device{Configuration: v1alpha1.ConfigurationReference{Namespace: "default", Name: "cam"},
		ID: "foo0", Hash: hash, Shared: true, Properties: properties}
}

func sliceOf(node string, devices ...v1alpha1.Device) *v1alpha1.DeviceSlice {
	return &v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-0"}, Spec: v1alpha1.DeviceSliceSpec{NodeName: node, Devices: devices}}
}

func claimOf(index int, node string, level v1alpha1.Level) *v1alpha1.SlotClaim {
	return v1alpha1.NewSlotClaim(slot.Name{Instance: key.Name, Index: index}, v1alpha1.SlotClaimSpec{NodeName: node, Level: level, Holder: "pod-uid",
		Pod: &v1alpha1.PodReference{Namespace: "default", Name: "p", UID: "pod-uid"}}, metav1.OwnerReference{})
}

// rig is a Reconciler before a fake API server, which counts writes and may refuse
// them.
type rig struct {
	*testing.T
	*Reconciler
	inv           *inventory.Inventory
	clock         *clocktesting.FakePassiveClock
	api           client.WithWatch
	writes        []string              // verbs
	refuse        func() error          // of the next write
	lost          bool                  // the next write is done, and its answer lost
	stale         *akriv0.Instance      // what the cache still has
	drops         bool                  // what a patch says: its CRD does not know the field
	preconditions *metav1.Preconditions // of the last deletion
	mu            sync.Mutex            // of writes, woken and changed
	woken         []string              // Instances that have room now
	changed       int                   // how often the number of those that wait changed
}

func newRig(t *testing.T, objects ...client.Object) *rig {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{akriv0.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	r := &rig{T: t, inv: inventory.New(), clock: clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))}
	write := func(verb string, do func() error) error {
		r.mu.Lock()
		r.writes = append(r.writes, verb)
		r.mu.Unlock()
		if r.refuse != nil {
			if err := r.refuse(); err != nil {
				return err
			}
		}
		if err := do(); err != nil || !r.lost {
			return err
		}
		return apierrors.NewTimeoutError("the answer is lost", 0)
	}
	r.api = interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if i, ok := obj.(*akriv0.Instance); ok && r.stale != nil {
				r.stale.DeepCopyInto(i)
				return nil
			}
			return c.Get(ctx, k, obj, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return write("create", func() error { return c.Create(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
			return write("patch", func() error {
				if r.drops {
					return c.Get(ctx, client.ObjectKeyFromObject(obj), obj)
				}
				return c.Patch(ctx, obj, p, opts...)
			})
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			o := client.DeleteOptions{}
			o.ApplyOptions(opts)
			r.preconditions = o.Preconditions
			return write("delete", func() error { return c.Delete(ctx, obj, opts...) })
		},
	})
	r.restart()
	return r
}

// restart kills the controller: what it remembers is gone.
func (r *rig) restart() {
	locked := func(do func()) {
		r.mu.Lock()
		defer r.mu.Unlock()
		do()
	}
	r.Reconciler = New(r.api, r.inv, r.clock, func(key types.NamespacedName) { locked(func() { r.woken = append(r.woken, key.Name) }) },
		func(types.NamespacedName) { locked(func() { r.changed++ }) })
}

func (r *rig) reconcile() (reconcile.Result, error) {
	r.Helper()
	return r.Reconcile(r.Context(), reconcile.Request{NamespacedName: key})
}

// settle reconciles until there is nothing left to do, and returns the verbs of the
// writes.
func (r *rig) settle() []string {
	r.Helper()
	r.writes = nil
	for range 10 {
		result, err := r.reconcile()
		if err != nil {
			r.Fatal(err)
		}
		if result.RequeueAfter == 0 {
			return r.writes
		}
		r.clock.SetTime(r.clock.Now().Add(result.RequeueAfter))
	}
	r.Fatalf("does not settle: %v", r.writes)
	return nil
}

// instance is what the API server has; nil for none.
func (r *rig) instance() *akriv0.Instance {
	r.Helper()
	i := &akriv0.Instance{}
	stale := r.stale
	r.stale = nil
	defer func() { r.stale = stale }()
	if err := r.api.Get(r.Context(), key, i); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		r.Fatal(err)
	}
	return i
}
