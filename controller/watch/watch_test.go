package watch

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubeslot/kubeslot/controller/inventory"
	"github.com/kubeslot/kubeslot/controller/naming"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// rig is a Watch on informers that the test drives.
type rig struct {
	*testing.T
	*Watch
	informers  *informertest.FakeInformers
	instances  queue
	claims     queue
	forgotten  []types.UID
	registered chan struct{}
}

// synced is false for informers that have not had all there is.
func newRig(t *testing.T, synced bool) *rig {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{akriv0.AddToScheme, v1alpha1.AddToScheme, corev1.AddToScheme, batchv1.AddToScheme, metav1.AddMetaToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	r := &rig{T: t, informers: &informertest.FakeInformers{Scheme: scheme}, registered: make(chan struct{})}
	if !synced {
		for _, obj := range []client.Object{&akriv0.Configuration{}, &v1alpha1.DeviceSlice{}, &v1alpha1.SlotClaim{}, &corev1.Node{}, &akriv0.Instance{}} {
			i, err := r.informers.FakeInformerFor(t.Context(), obj)
			if err != nil {
				t.Fatal(err)
			}
			*i = *controllertest.NewFakeInformer()
		}
	}
	newQueue := func() queue {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		t.Cleanup(q.ShutDown)
		return q
	}
	r.instances, r.claims = newQueue(), newQueue()
	made := &informertest.FakeInformers{Scheme: scheme}
	r.Watch = New(podsToo{r.informers, r.registered}, made, inventory.New(), func(uid types.UID) { r.forgotten = append(r.forgotten, uid) })
	for _, s := range []Source{Brokers, InstanceServices, ConfigurationServices} {
		r.Source(s)
	}
	return r
}

// fed feeds the inventory, as a process does that does not lead.
func (r *rig) fed() {
	go func() {
		if _, err := r.feed(r.Context()); err != nil {
			r.Error(err)
		}
	}()
}

// podsToo lets the fake informers have pods' metadata, which are the last kind to get
// a handler.
type podsToo struct {
	*informertest.FakeInformers
	registered chan struct{} // closed when all handlers are
}

func (c podsToo) GetInformer(ctx context.Context, obj client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	if _, ok := obj.(*metav1.PartialObjectMetadata); !ok {
		return c.FakeInformers.GetInformer(ctx, obj)
	}
	i, err := c.FakeInformers.GetInformer(ctx, &corev1.Pod{})
	return lastInformer{i, c.registered}, err
}

type lastInformer struct {
	cache.Informer
	registered chan struct{}
}

func (i lastInformer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	defer close(i.registered)
	return i.Informer.AddEventHandler(h)
}

func (r *rig) informer(obj client.Object) *controllertest.FakeInformer {
	r.Helper()
	i, err := r.informers.FakeInformerFor(r.Context(), obj)
	if err != nil {
		r.Fatal(err)
	}
	return i
}

// start starts both sources, and waits until they are synced.
func (r *rig) start() {
	r.Helper()
	r.fed()
	for source, q := range map[interface {
		Start(context.Context, queue) error
		WaitForSync(context.Context) error
	}]queue{r.Source(Instances): r.instances, r.Source(Claims): r.claims} {
		if err := source.Start(r.Context(), q); err != nil {
			r.Fatal(err)
		}
		if err := source.WaitForSync(r.Context()); err != nil {
			r.Fatal(err)
		}
	}
}

// queued takes what a queue has.
func queued(q queue) []string {
	var names []string
	for q.Len() > 0 {
		request, _ := q.Get()
		q.Done(request)
		names = append(names, request.String())
	}
	slices.Sort(names)
	return names
}

func (r *rig) expect(what string, instances, claims []string) {
	r.Helper()
	if d := cmp.Diff(instances, queued(r.instances)); d != "" {
		r.Errorf("%s: Instances to look at (-want +got):\n%s", what, d)
	}
	if d := cmp.Diff(claims, queued(r.claims)); d != "" {
		r.Errorf("%s: claims to look at (-want +got):\n%s", what, d)
	}
}

var (
	cam   = &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cam", UID: "c"}}
	foo   = v1alpha1.Device{Configuration: v1alpha1.ConfigurationReference{Namespace: "default", Name: "cam"}, ID: "foo0", Shared: true, Hash: "8120fe"}
	aFoo  = &v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: "a-0", UID: "s"}, Spec: v1alpha1.DeviceSliceSpec{NodeName: "a", Devices: []v1alpha1.Device{foo}}}
	claim = func(uid types.UID, pod types.UID) *v1alpha1.SlotClaim {
		c := v1alpha1.NewSlotClaim(slot.Name{Instance: "cam-8120fe", Index: 0}, v1alpha1.SlotClaimSpec{NodeName: "a", Holder: string(pod)}, metav1.OwnerReference{})
		c.UID = uid
		return c
	}
	theInstance = []string{"default/cam-8120fe"}
	theClaim    = []string{"/cam-8120fe-0"}
)

func TestEventsHaveWhatTheyConcernLookedAt(t *testing.T) {
	r := newRig(t, true)
	r.start()
	r.expect("nothing", nil, nil)
	r.informer(cam).Add(cam)
	r.informer(aFoo).Add(aFoo)
	r.expect("found", theInstance, nil)
	r.informer(claim("1", "p")).Add(claim("1", "p"))
	r.expect("claimed", theInstance, theClaim)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "n"}}
	r.informer(node).Add(node)
	r.expect("Node", nil, theClaim)
	ready := node.DeepCopy()
	ready.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	r.informer(node).Update(node, ready)
	r.expect("Node Ready", nil, theClaim)
	r.informer(node).Update(ready, ready)
	r.expect("Node unchanged", nil, nil)
	pod := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "p"}}
	r.informer(&corev1.Pod{}).Delete(pod)
	r.expect("pod gone", nil, theClaim)
	pod.UID = "another"
	r.informer(&corev1.Pod{}).Delete(pod)
	r.expect("another pod gone", nil, nil)
	i := &akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "junk"}}
	r.informer(i).Add(i)
	r.informer(i).Delete(i)
	r.expect("Instance made by hand", []string{"x/junk"}, nil)
	r.informer(node).Delete(node)
	r.expect("Node gone", nil, theClaim)
	r.informer(aFoo).Delete(aFoo)
	r.expect("not seen any more", theInstance, theClaim)
	r.informer(cam).Delete(cam)
	r.expect("Configuration gone", theInstance, theClaim)
}

// What the controller made has its Instance and its Configuration looked at, and a
// claim does not have brokers looked at.
func TestWhatIsMadeIsLookedAt(t *testing.T) {
	r := newRig(t, true)
	r.start()
	queues := map[Source]queue{}
	for _, s := range []Source{Brokers, InstanceServices, Configurations, ConfigurationServices, ResourceSlices,
		DeviceClasses} {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		t.Cleanup(q.ShutDown)
		source := r.Source(s)
		if err := errors.Join(source.Start(t.Context(), q), source.WaitForSync(t.Context())); err != nil {
			t.Fatal(err)
		}
		queues[s] = q
	}
	instance, configuration := []string{"default/cam-8120fe"}, []string{"default/cam"}
	expect := func(what string, brokers, instanceServices, configurations, configurationServices []string) {
		t.Helper()
		for s, want := range map[Source][]string{Brokers: brokers, InstanceServices: instanceServices, Configurations: configurations, ConfigurationServices: configurationServices} {
			if d := cmp.Diff(want, queued(queues[s])); d != "" {
				t.Errorf("%s: %s to look at (-want +got):\n%s", what, s, d)
			}
		}
	}
	made := func(obj client.Object) *controllertest.FakeInformer {
		i, err := r.made.(*informertest.FakeInformers).FakeInformerFor(t.Context(), obj)
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	labels := map[string]string{naming.Instance: "cam-8120fe", naming.Configuration: "cam"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", Labels: labels}}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "j", Labels: labels}}
	ofAll := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s", Labels: map[string]string{naming.Configuration: "cam"}}}
	i := &akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cam-8120fe", UID: "u"}}
	used := i.DeepCopy()
	used.Spec.DeviceUsage = map[string]string{"cam-8120fe-0": "a"}
	noted := used.DeepCopy()
	noted.Annotations = map[string]string{naming.JobDone: "x"}
	expect("nothing", nil, nil, nil, nil)
	made(pod).Add(pod)
	expect("pod", instance, instance, configuration, configuration)
	unlabelled := pod.DeepCopy()
	unlabelled.Labels = nil
	made(pod).Update(pod, unlabelled)
	expect("its labels are gone", instance, instance, configuration, configuration)
	made(job).Delete(job)
	expect("job", instance, instance, configuration, configuration)
	made(ofAll).Add(ofAll)
	expect("service", nil, nil, configuration, configuration)
	if n := queues[ResourceSlices].Len() + queues[DeviceClasses].Len(); n > 0 {
		t.Errorf("%d things of DRA are looked at for what brokers do", n)
	}
	r.informer(i).Add(i)
	expect("Instance", instance, instance, configuration, nil)
	r.informer(i).Update(i, used)
	expect("Instance's usage", nil, nil, configuration, nil)
	r.informer(i).Update(used, noted)
	expect("Instance's annotation", instance, instance, configuration, nil)
	r.BrokersChanged(types.NamespacedName{Namespace: "default", Name: "cam-8120fe"})
	expect("its brokers fare otherwise", nil, instance, configuration, configuration)
	r.informer(cam).Add(cam)
	expect("Configuration", nil, nil, configuration, configuration)
	r.informer(aFoo).Add(aFoo)
	expect("found", instance, instance, configuration, nil)
	r.informer(claim("1", "p")).Add(claim("1", "p"))
	expect("claimed", nil, nil, configuration, nil)
}

// A watch that was interrupted shows what it has missed in ways of its own.
func TestMissedEvents(t *testing.T) {
	r := newRig(t, true)
	r.start()
	r.informer(cam).Add(cam)
	r.informer(aFoo).Add(aFoo)
	r.informer(claim("1", "p")).Add(claim("1", "p"))
	r.expect("before", theInstance, theClaim)
	r.informer(claim("1", "p")).Update(claim("1", "p"), claim("2", "q"))
	if !slices.Equal(r.forgotten, []types.UID{"1"}) {
		t.Errorf("forgets %q, want the claim that is gone", r.forgotten)
	}
	r.expect("deleted and made again", theInstance, theClaim)
	if len(r.inventory.ClaimsOfPod("p")) != 0 || len(r.inventory.ClaimsOfPod("q")) != 1 {
		t.Error("the claim is still the former pod's")
	}
	for _, k := range r.kinds() {
		if _, ok := k.object.(*v1alpha1.SlotClaim); ok {
			k.handler.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "cam-8120fe-0", Obj: claim("2", "q")})
		}
	}
	r.expect("deleted, final state unknown", theInstance, theClaim)
	if d := r.inventory.Device("cam-8120fe"); len(d.Claims) != 0 {
		t.Errorf("claims %v", d.Claims)
	}
}

// Where brokers and services are disabled the controller has no permission to watch Jobs and Services.
func TestWatchesWhatItsControllersNeed(t *testing.T) {
	for _, tc := range []struct {
		taken []Source
		want  string
	}{
		{[]Source{Instances, Configurations}, ""},
		{[]Source{Brokers}, "jobs"},
		{[]Source{ConfigurationServices}, "services"},
		{[]Source{Brokers, InstanceServices}, "jobs services"},
	} {
		w := New(nil, nil, inventory.New(), nil)
		for _, s := range tc.taken {
			w.Source(s)
		}
		var got []string
		for _, k := range w.kinds() {
			if r := k.resource.Resource; r == "jobs" || r == "services" {
				got = append(got, r)
			}
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("with the sources %v it watches %q, want %q", tc.taken, got, tc.want)
		}
	}
}

// Nothing is looked at before all is known that there is: what is not known yet would
// be taken for gone.
func TestNothingIsLookedAtBeforeAllIsKnown(t *testing.T) {
	r := newRig(t, false)
	instances, claims := r.Source(Instances), r.Source(Claims)
	r.fed()
	if err := instances.Start(t.Context(), r.instances); err != nil {
		t.Fatal(err)
	}
	<-r.registered
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	if err := instances.WaitForSync(impatient); err == nil || r.Synced() == nil {
		t.Fatal("it is synced before its informers are")
	}
	kinds := []client.Object{cam, aFoo, claim("1", "p"), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, &akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cam-8120fe"}}}
	for _, obj := range kinds {
		if r.Synced() == nil {
			t.Fatalf("it is synced without %T", obj)
		}
		r.informer(obj).Add(obj)
		r.informer(obj).Synced()
	}
	if err := instances.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Synced(); err != nil {
		t.Error(err)
	}
	r.expect("synced", theInstance, nil)
	// The second is started later: it has what came before, too, and the first is not filled again.
	if err := errors.Join(claims.Start(t.Context(), r.claims), claims.WaitForSync(t.Context())); err != nil {
		t.Fatal(err)
	}
	r.expect("the second source", nil, theClaim)
}

// An API that is not there yet, such as a CRD that is not installed, is waited for.
func TestWaitsForAPIs(t *testing.T) {
	r := newRig(t, true)
	var mu sync.Mutex
	tries := 0
	r.retryEvery = time.Millisecond
	r.Watch.cache = failing{r.Watch.cache, func() error {
		mu.Lock()
		defer mu.Unlock()
		if tries++; tries == 1 {
			return errors.New("no matches for kind")
		}
		return nil
	}}
	r.start()
	if tries <= 1 {
		t.Errorf("%d tries", tries)
	}
}

type failing struct {
	cache.Cache
	fail func() error
}

func (f failing) GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	if err := f.fail(); err != nil {
		return nil, err
	}
	return f.Cache.GetInformer(ctx, obj, opts...)
}

// What is trimmed off is most of a pod or a node; what is decided by is kept.
func TestTrim(t *testing.T) {
	pod := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "u", ResourceVersion: "7",
		Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"a": "b"}, OwnerReferences: []metav1.OwnerReference{{}}}}
	pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1e9, 0)}
	got, err := trimPod(pod)
	want := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "u",
		ResourceVersion: "7", DeletionTimestamp: pod.DeletionTimestamp}}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("pod (-want +got), %v:\n%s", err, d)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u", ResourceVersion: "7", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"a": "b"}},
		Spec: corev1.NodeSpec{PodCIDR: "c", Unschedulable: true, Taints: []corev1.Taint{{Key: "k"}}}, Status: corev1.NodeStatus{Images: []corev1.ContainerImage{{}}, Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeDiskPressure}, {Type: corev1.NodeReady, Status: corev1.ConditionTrue, Message: "m"}}}}
	got, err = trimNode(node)
	wantNode := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u", ResourceVersion: "7", Labels: map[string]string{"a": "b"}},
		Spec:   corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{{Key: "k"}}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	if d := cmp.Diff(wantNode, got); d != "" || err != nil {
		t.Errorf("node (-want +got), %v:\n%s", err, d)
	}
	if n := nodeOf(got.(*corev1.Node)); !n.Ready || !n.Unschedulable || len(n.Taints) != 1 || nodeOf(&corev1.Node{}).Ready {
		t.Error("readiness is lost")
	}
	for _, trim := range []toolscache.TransformFunc{trimPod, trimNode} {
		tombstone := toolscache.DeletedFinalStateUnknown{Key: "k"}
		if got, err := trim(tombstone); got != any(tombstone) || err != nil {
			t.Errorf("%v becomes %v, %v", tombstone, got, err)
		}
	}
}
