package services

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
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

	"github.com/kubeslot/kubeslot/controller/brokers"
	"github.com/kubeslot/kubeslot/controller/inventory"
	"github.com/kubeslot/kubeslot/controller/limits"
	"github.com/kubeslot/kubeslot/controller/naming"
	"github.com/kubeslot/kubeslot/controller/watch"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// rig has both Reconcilers before a fake API server.
type rig struct {
	*testing.T
	api        client.WithWatch
	events     *events.FakeRecorder
	inv        *inventory.Inventory
	brokers    *brokers.Reconciler
	ofInstance *Reconciler
	ofAll      *Reconciler
	writes     []string
	refuse     func() error
	lost       bool
	clock      *clocktesting.FakePassiveClock
	lists      map[string]int // by type
	withheld   int            // devices without an Instance
}

func newRig(t *testing.T, objects ...client.Object) *rig {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{akriv0.AddToScheme, corev1.AddToScheme, batchv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	r := &rig{T: t, events: events.NewFakeRecorder(100), inv: inventory.New(), lists: map[string]int{},
		clock: clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))}
	write := func(verb string, o client.Object, do func() error) error {
		if _, ok := o.(*corev1.Service); !ok {
			return do()
		}
		r.writes = append(r.writes, verb+" "+o.GetName())
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
	builder := fake.NewClientBuilder().WithScheme(scheme).WithTypeConverters(managedfields.NewDeducedTypeConverter()).WithObjects(objects...)
	for _, label := range []string{naming.Instance, naming.Configuration} {
		for _, o := range []client.Object{&corev1.Service{}, &corev1.Pod{}, &batchv1.Job{}} {
			builder.WithIndex(o, label, watch.ByLabel(label))
		}
	}
	uid := 0
	r.api = interceptor.NewClient(builder.Build(), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			uid++
			o.SetUID(types.UID(fmt.Sprint("made-", uid)))
			return write("create", o, func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return write("update", o, func() error { return c.Update(ctx, o, opts...) })
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			r.lists[fmt.Sprintf("%T", list)]++
			return c.List(ctx, list, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return write("delete", o, func() error { return c.Delete(ctx, o) })
		},
	})
	r.brokers = brokers.New(brokers.Config{Client: r.api, Made: r.api, Live: r.api, Inventory: r.inv, Recorder: events.NewFakeRecorder(100),
		Clock: r.clock, Changed: func(types.NamespacedName) {}, Wake: func(types.NamespacedName) {}})
	r.restart()
	return r
}

func (r *rig) restart() {
	c := Config{Client: r.api, Made: r.api, Live: r.api, Inventory: r.inv, Brokers: r.brokers, Recorder: r.events,
		Clock: r.clock, Instances: func(types.NamespacedName) limits.Sum { return limits.Sum{Withheld: r.withheld} }}
	r.ofInstance, r.ofAll = OfInstances(c), OfConfigurations(c)
}

// reconcile reconciles a Service when it may be looked at again.
func (r *rig) reconcile(of *Reconciler, name string) (reconcile.Result, error) {
	r.clock.SetTime(r.clock.Now().Add(lookInterval))
	return of.Reconcile(r.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "default",
		Name: name}})
}

// settle reconciles both Services until there is nothing left to write.
func (r *rig) settle() []string {
	r.Helper()
	r.writes = nil
	for range 20 {
		before, failed := len(r.writes), false
		for _, one := range []struct {
			*Reconciler
			name string
		}{{r.ofInstance, "cam-8120fe"}, {r.ofAll, "cam"}} {
			result, err := r.reconcile(one.Reconciler, one.name)
			failed = failed || err != nil || result.RequeueAfter == cacheLag
		}
		if !failed && len(r.writes) == before {
			return r.writes
		}
	}
	r.Fatalf("does not settle: %q", r.writes)
	return nil
}

func (r *rig) configure(instanceSpec, spec string) {
	r.Helper()
	c := &akriv0.Configuration{}
	key := types.NamespacedName{Namespace: "default", Name: "cam"}
	err := r.api.Get(r.Context(), key, c)
	c.Namespace, c.Name = key.Namespace, key.Name
	c.Spec = akriv0.ConfigurationSpec{Capacity: 1, BrokerSpec: &akriv0.BrokerSpec{BrokerPodSpec: rawOf(`{"containers":[{"name":"b"}]}`)},
		InstanceServiceSpec: rawOf(instanceSpec), ConfigurationServiceSpec: rawOf(spec)}
	if err != nil {
		err = r.api.Create(r.Context(), c)
	} else {
		err = r.api.Update(r.Context(), c)
	}
	if err != nil {
		r.Fatal(err)
	}
	r.inv.SetConfiguration(c)
}

func (r *rig) services() string {
	r.Helper()
	var list corev1.ServiceList
	if err := r.api.List(r.Context(), &list); err != nil {
		r.Fatal(err)
	}
	text := ""
	for _, s := range list.Items {
		text += fmt.Sprintf("%s %v %v owned by %s/%s\n", s.Name, s.Spec.Ports, s.Spec.Selector, s.OwnerReferences[0].Kind, s.OwnerReferences[0].Name)
	}
	return text
}

func (r *rig) pod(phase corev1.PodPhase) {
	r.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", Labels: naming.PodLabels("cam", "cam-8120fe", "a", "p")}}
	_ = r.api.Delete(r.Context(), p)
	if p.ResourceVersion = ""; phase == "" {
		return
	}
	if err := r.api.Create(r.Context(), p); err != nil {
		r.Fatal(err)
	}
	p.Status.Phase = phase
	if err := r.api.Status().Update(r.Context(), p); err != nil {
		r.Fatal(err)
	}
}

func found() *akriv0.Instance {
	return &akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cam-8120fe", UID: "instance"}}
}

func (r *rig) report() {
	r.inv.SetNode("a", inventory.Node{UID: "a", Ready: true})
	r.inv.SetSlice(&v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: "a-0"}, Spec: v1alpha1.DeviceSliceSpec{NodeName: "a", Devices: []v1alpha1.Device{
		{Configuration: v1alpha1.ConfigurationReference{Namespace: "default", Name: "cam"}, ID: "foo0", Hash: "8120fe", Shared: true}}}})
}

// look has the brokers looked at, so that it is known that none is to come.
func (r *rig) look() {
	r.Helper()
	if _, err := r.brokers.Reconcile(r.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: "cam-8120fe"}}); err != nil {
		r.Fatal(err)
	}
}

// Each write may fail, or be done and its answer lost, and the controller be killed
// there: it ends up at the same.
func TestServicesWhateverFails(t *testing.T) {
	const other = `{"ports":[{"name":"grpc","port":81}]}`
	steps := []func(*rig){
		func(r *rig) { r.configure(grpc, grpc); r.report() },
		func(r *rig) { r.pod(corev1.PodRunning) },
		func(r *rig) { r.configure(other, grpc) },
		func(r *rig) { r.configure(`{"clusterIP":"None"}`, other) },
		func(r *rig) { r.pod(corev1.PodFailed) },
		func(r *rig) { r.configure("", other) },
		func(r *rig) { r.pod(""); r.inv.DeleteSlice("a-0"); r.look() }, // and no node for another
	}
	play := func(disturb func(*rig)) (states []string, writes []string) {
		r := newRig(t, found())
		disturb(r)
		for _, step := range steps {
			step(r)
			writes = append(writes, r.settle()...)
			states = append(states, r.services())
		}
		return states, writes
	}
	want, writes := play(func(*rig) {})
	if expected := []string{"create cam-8120fe-svc", "create cam-svc", "update cam-8120fe-svc", "delete cam-8120fe-svc", "update cam-svc", "create cam-8120fe-svc", "delete cam-8120fe-svc", "delete cam-svc"}; !slices.Equal(writes, expected) {
		t.Fatalf("writes %q, want %q", writes, expected)
	}
	if want[0] != "" || want[len(want)-1] != "" || strings.Count(want[1], "\n") != 2 || want[4] != want[3] {
		t.Fatalf("services %q", want)
	}
	faults := map[string]error{"internal": apierrors.NewInternalError(errors.New("why")), "conflict": apierrors.NewConflict(corev1.Resource("services"), "x", errors.New("why")), "lost": nil}
	for at := range writes {
		for name, fault := range faults {
			for _, killed := range []bool{false, true} {
				got, _ := play(func(r *rig) {
					n := 0
					r.refuse = func() error {
						n++
						if r.lost = fault == nil && n-1 == at; n-1 != at {
							return nil
						}
						if killed {
							r.restart()
						}
						return fault
					}
				})
				if d := cmp.Diff(want, got); d != "" {
					t.Fatalf("write %d, %s, killed %v (-undisturbed +disturbed):\n%s", at, name, killed, d)
				}
			}
		}
	}
}

// Devices beyond spec.maxInstances never get brokers, and keep no Service.
func TestDevicesBeyondTheLimitKeepNoService(t *testing.T) {
	r := newRig(t, found())
	r.configure("", grpc)
	r.report()
	r.pod(corev1.PodRunning)
	r.settle()
	slice := &v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: "b-0"},
		Spec: v1alpha1.DeviceSliceSpec{NodeName: "b"}}
	for _, id := range []string{"foo1", "foo2"} {
		slice.Spec.Devices = append(slice.Spec.Devices, v1alpha1.Device{ID: id, Hash: slot.InstanceHash(id,
			true, "b", 6),
			Shared:        true,
			Configuration: v1alpha1.ConfigurationReference{Namespace: "default", Name: "cam"}})
	}
	r.inv.SetSlice(slice)
	r.withheld = 2
	r.pod("")
	r.inv.DeleteSlice("a-0")
	r.look()
	if writes := r.settle(); !slices.Equal(writes, []string{"delete cam-svc"}) {
		t.Errorf("writes %q, want that the Service goes with the last broker", writes)
	}
}

func TestStrangersServiceIsLeftAlone(t *testing.T) {
	stranger := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cam-svc", OwnerReferences: []metav1.OwnerReference{{Kind: "Deployment", Name: "x", UID: "x"}}}}
	r := newRig(t, found(), stranger)
	r.configure("", grpc)
	r.report()
	r.pod(corev1.PodRunning)
	for range 3 {
		if result, err := r.reconcile(r.ofAll, "cam"); err != nil || result.RequeueAfter != refusedAgain {
			t.Errorf("%+v, %v", result, err)
		}
	}
	if s := r.services(); !strings.Contains(s, "Deployment/x") || strings.Count(s, "\n") != 1 {
		t.Errorf("services %s", s)
	}
	told := ""
	for len(r.events.Events) > 0 {
		told += <-r.events.Events
	}
	if strings.Count(told, NameTaken) != 1 {
		t.Errorf("tells %q", told)
	}
	// Ours that has lost its labels is found by its owner.
	if err := r.api.Delete(t.Context(), stranger); err != nil {
		t.Fatal(err)
	}
	r.settle()
	ours := &corev1.Service{}
	if err := r.api.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: "cam-svc"}, ours); err != nil {
		t.Fatal(err)
	}
	ours.Labels = nil
	if err := r.api.Update(t.Context(), ours); err != nil {
		t.Fatal(err)
	}
	r.settle()
	if err := r.api.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: "cam-svc"}, ours); err != nil || ours.Labels[naming.Configuration] != "cam" {
		t.Errorf("%v, %v", ours.Labels, err)
	}
}

func TestInvalidServiceSpec(t *testing.T) {
	r := newRig(t, found())
	r.configure(grpc, grpc)
	r.report()
	r.pod(corev1.PodRunning)
	r.settle()
	before := r.services()
	r.configure(`{"prots":[]}`, grpc)
	r.settle()
	if len(r.events.Events) != 1 || !strings.Contains(<-r.events.Events, `spec.instanceServiceSpec: unknown field "prots"`) || r.services() != before {
		t.Errorf("services %s", r.services())
	}
	r.refuse = func() error {
		return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Service").GroupKind(), "x", nil)
	}
	r.configure(grpc, `{"ports":[{"port":99999}]}`)
	for range 2 {
		if result, err := r.reconcile(r.ofAll, "cam"); err != nil || result.RequeueAfter != refusedAgain {
			t.Errorf("%+v, %v", result, err)
		}
	}
	if len(r.events.Events) != 1 || !strings.Contains(<-r.events.Events, NotWritten) {
		t.Error("what the API server refuses is not told once")
	}
}
