package brokers

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubeslot/kubeslot/controller/inventory"
	"github.com/kubeslot/kubeslot/controller/naming"
	"github.com/kubeslot/kubeslot/controller/watch"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// rig is a Reconciler before a fake API server, which counts writes and may refuse
// them, and whose pods run once the test says so.
type rig struct {
	*testing.T
	*Reconciler
	inv    *inventory.Inventory
	clock  *clocktesting.FakePassiveClock
	api    client.WithWatch
	fake   client.WithWatch // the API server behind it, for what others write
	events *events.FakeRecorder
	mu     sync.Mutex // of what follows
	writes []string
	refuse func(write string) error // nil: no; before it is done
	lose   func(write string) bool  // its answer, when it is done
	// instances are those for which something was made.
	instances map[string]bool
	changed   []types.NamespacedName
	woken     []types.NamespacedName
	// properties that nodes report of the device, from the next found on
	properties map[string]string
	ahead      time.Duration // the API server's clock, of the controller's
}

func newRig(t *testing.T, objects ...client.Object) *rig {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{akriv0.AddToScheme, corev1.AddToScheme, batchv1.AddToScheme,
		resourceapi.AddToScheme, metav1.AddMetaToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	r := &rig{T: t, inv: inventory.New(), clock: clocktesting.NewFakePassiveClock(start), events: events.NewFakeRecorder(1000),
		properties: map[string]string{"K": "v"}}
	write := func(verb string, o client.Object, do func() error) error {
		r.mu.Lock()
		w := fmt.Sprintf("%s %T %s", verb, o, o.GetName())
		r.writes = append(r.writes, strings.NewReplacer("*v1.", "", "*v0.", "", "-"+instanceName, "").Replace(w))
		r.mu.Unlock()
		if r.refuse != nil {
			if err := r.refuse(w); err != nil {
				return err
			}
		}
		if err := do(); err != nil || r.lose == nil || !r.lose(w) {
			return err
		}
		return apierrors.NewTimeoutError("the answer is lost", 0)
	}
	uid := 0
	builder := fake.NewClientBuilder().WithScheme(scheme).WithTypeConverters(managedfields.NewDeducedTypeConverter()).WithObjects(objects...).
		WithIndex(&corev1.Pod{}, naming.Instance, watch.ByLabel(naming.Instance)).
		WithIndex(&corev1.Pod{}, naming.Configuration, watch.ByLabel(naming.Configuration)).
		WithIndex(&batchv1.Job{}, naming.Instance, watch.ByLabel(naming.Instance)).
		WithIndex(&batchv1.Job{}, naming.Configuration, watch.ByLabel(naming.Configuration))
	r.fake = builder.Build()
	r.api = interceptor.NewClient(r.fake, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			r.mu.Lock()
			if r.instances == nil {
				r.instances = map[string]bool{}
			}
			r.instances[o.GetLabels()[naming.Instance]] = true
			uid++
			o.SetUID(types.UID(fmt.Sprint("made-", uid)))
			r.mu.Unlock()
			o.SetCreationTimestamp(metav1.NewTime(r.clock.Now().Add(r.ahead)))
			return write("create", o, func() error { return c.Create(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return write("patch", o, func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			options := client.DeleteOptions{}
			options.ApplyOptions(opts)
			if options.Preconditions == nil || options.Preconditions.UID == nil || *options.Preconditions.UID != o.GetUID() {
				t.Errorf("deletes %s whichever it is", o.GetName())
			}
			return write("delete", o, func() error { return c.Delete(ctx, o) })
		},
	})
	r.restart()
	return r
}

// restart kills the controller: what it remembers is gone.
func (r *rig) restart() {
	r.Reconciler = New(Config{Client: r.api, Made: r.api, Live: r.api, Inventory: r.inv, Recorder: r.events, Clock: r.clock,
		Changed: func(key types.NamespacedName) { r.note(&r.changed, key) },
		Wake:    func(key types.NamespacedName) { r.note(&r.woken, key) }})
}

func (r *rig) madeFor(instance string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.instances[instance]
}

func (r *rig) note(in *[]types.NamespacedName, key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*in = append(*in, key)
}

// found has nodes report the device.
func (r *rig) found(nodes ...string) {
	for _, node := range nodes {
		r.inv.SetNode(node, inventory.Node{UID: types.UID(node), Ready: true})
		r.inv.SetSlice(&v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-0"}, Spec: v1alpha1.DeviceSliceSpec{NodeName: node, Devices: []v1alpha1.Device{
			{Configuration: v1alpha1.ConfigurationReference{Namespace: "default", Name: "cam"}, ID: "foo0", Hash: "8120fe", Shared: true, Properties: r.properties}}}})
	}
}

// run has all pods become what pods become: bound to the node that they are pinned to,
// and Ready, or in the phase.
func (r *rig) run(phase corev1.PodPhase) {
	r.Helper()
	for _, pod := range r.pods() {
		if isEnded(&pod) || pod.Status.Phase == phase {
			continue
		}
		pod.Spec.NodeName = pod.Labels[naming.TargetNode]
		if err := r.api.Update(r.Context(), &pod); err != nil {
			r.Fatal(err)
		}
		if pod.Status.Phase = phase; phase == corev1.PodRunning {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		} else { // not admitted, say
			pod.Status.StartTime = &metav1.Time{Time: r.clock.Now()}
		}
		if err := r.api.Status().Update(r.Context(), &pod); err != nil {
			r.Fatal(err)
		}
	}
}

func (r *rig) pods() []corev1.Pod {
	r.Helper()
	var list corev1.PodList
	if err := r.api.List(r.Context(), &list); err != nil {
		r.Fatal(err)
	}
	return list.Items
}

func (r *rig) reconcile() (reconcile.Result, error) {
	return r.Reconcile(r.Context(), reconcile.Request{NamespacedName: theKey})
}

// settle reconciles, and lets pods run, until there is nothing left to do, and returns
// the writes.
func (r *rig) settle() []string {
	r.Helper()
	r.writes = nil
	for range 100 {
		before := len(r.writes)
		result, err := r.reconcile()
		r.run(corev1.PodRunning)
		if err == nil && result.RequeueAfter == 0 && len(r.writes) == before {
			return r.writes
		}
		r.clock.SetTime(r.clock.Now().Add(max(result.RequeueAfter, time.Second)))
	}
	r.Fatalf("does not settle: %q", r.writes)
	return nil
}

// state is what the API server has, without UIDs and times.
func (r *rig) state() []string {
	r.Helper()
	var all []string
	for _, p := range r.pods() {
		all = append(all, fmt.Sprintf("Pod %s image %s %v %v", p.Name, p.Spec.Containers[0].Image, p.Labels, p.Annotations))
	}
	var jobs batchv1.JobList
	if err := r.api.List(r.Context(), &jobs); err != nil {
		r.Fatal(err)
	}
	for _, j := range jobs.Items {
		all = append(all, fmt.Sprintf("Job %s %v %v", j.Name, j.Labels, j.Annotations))
	}
	i := &akriv0.Instance{}
	if err := r.api.Get(r.Context(), theKey, i); err != nil {
		r.Fatal(err)
	}
	return append(all, fmt.Sprintf("Instance %v", i.Annotations))
}

func (r *rig) told() string {
	var all []string
	for {
		select {
		case e := <-r.events.Events:
			all = append(all, e)
		default:
			return strings.Join(all, "\n")
		}
	}
}

func (r *rig) sum() Sum { return r.Sum(theConfiguration) }

func changedSpec() *akriv0.Configuration {
	c := configuration(2, strings.Replace(onePod, `"i"`, `"i2"`, 1))
	c.Generation = 2
	return c
}
