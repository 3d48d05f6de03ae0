package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/hostpaths"
	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned/fake"
	"github.com/kubeslot/kubeslot/types/client/informers/externalversions"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

const ns = "cameras"

// api is the fake clientsets, made to enforce resourceVersions and preconditions as
// the API server does. It is used in a synctest bubble, where time is ours.
type api struct {
	*fake.Clientset
	kube *kubefake.Clientset

	mu      sync.Mutex
	version int
	calls   []string // "update node-a-0", in order; no lists and watches
	left    int      // calls until the API server is away; negative for never

	// Of the agents that start:
	allowed     hostpaths.Allowed
	noEndpoints bool
}

// newAPI has the objects, and the Nodes node-a and node-b.
func newAPI(objects ...runtime.Object) *api {
	a := &api{kube: kubefake.NewClientset(node("node-a"), node("node-b")), left: -1}
	a.Clientset = fake.NewSimpleClientset(objects...)
	a.PrependReactor("*", "*", a.react(a.Tracker()))
	a.kube.PrependReactor("*", "*", a.react(a.kube.Tracker()))
	return a
}

func (a *api) react(tracker clienttesting.ObjectTracker) clienttesting.ReactionFunc {
	return func(action clienttesting.Action) (bool, runtime.Object, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		gvr, namespace := action.GetResource(), action.GetNamespace()
		var name string
		var is runtime.Object // what is written
		switch action := action.(type) {
		case clienttesting.CreateActionImpl:
			is = action.Object.DeepCopyObject()
		case clienttesting.UpdateActionImpl:
			is = action.Object.DeepCopyObject()
		case clienttesting.DeleteActionImpl:
			name = action.Name
		case clienttesting.GetActionImpl:
			name = action.Name
		default:
			return false, nil, nil
		}
		var m metav1.Object
		if is != nil {
			m, _ = meta.Accessor(is)
			name = m.GetName()
		}
		a.calls = append(a.calls, action.GetVerb()+" "+name)
		if a.left == 0 {
			return true, nil, errors.New("connection refused")
		}
		a.left = max(a.left-1, -1)
		obj, err := tracker.Get(gvr, namespace, name)
		if is == nil || action.GetVerb() == "update" {
			if err != nil {
				return true, nil, err
			}
		} else if err == nil {
			return true, nil, apierrors.NewAlreadyExists(gvr.GroupResource(), name)
		}
		var was metav1.Object
		if obj != nil {
			was, _ = meta.Accessor(obj)
		}
		conflict := apierrors.NewConflict(gvr.GroupResource(), name, errors.New("the object has been modified"))
		switch action := action.(type) {
		case clienttesting.DeleteActionImpl:
			if p := action.DeleteOptions.Preconditions; p != nil && p.UID != nil && *p.UID != was.GetUID() {
				return true, nil, conflict
			}
			return true, nil, tracker.Delete(gvr, namespace, name)
		case clienttesting.GetActionImpl:
			return true, obj, nil
		}
		a.version++
		if action.GetVerb() == "update" {
			if m.GetResourceVersion() != was.GetResourceVersion() {
				return true, nil, conflict
			}
			m.SetResourceVersion(strconv.Itoa(a.version))
			return true, is, tracker.Update(gvr, is, namespace)
		}
		m.SetResourceVersion(strconv.Itoa(a.version))
		m.SetUID(cmp.Or(m.GetUID(), types.UID("uid-"+m.GetResourceVersion())))
		return true, is, tracker.Create(gvr, is, namespace)
	}
}

// outage has the API server be away after the next calls; -1 ends that.
func (a *api) outage(after int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.left = after
}

// called returns the calls since it was asked last, sorted.
func (a *api) called() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	calls := a.calls
	slices.Sort(calls)
	a.calls = nil
	return calls
}

// wantCalls passes time and compares the calls since the last question.
func (a *api) wantCalls(t *testing.T, want ...string) {
	t.Helper()
	pass(time.Second)
	if diff := gocmp.Diff(want, a.called()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// slices are all slices, in order.
func (a *api) slices(t *testing.T) []v1alpha1.DeviceSlice {
	t.Helper()
	list, err := a.KubeslotV1alpha1().DeviceSlices().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.DeviceSlice) int {
		return cmp.Or(cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name))
	})
	return list.Items
}

// want passes time and compares the slices, each written as "node-a-0: foo0 foo1?
// !UnknownHandler", where foo1 is unschedulable.
func (a *api) want(t *testing.T, want ...string) {
	t.Helper()
	pass(2 * time.Second)
	a.wantNow(t, want...)
}

func (a *api) wantNow(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	var got []string
	for _, s := range a.slices(t) {
		var ids []string
		for i := range s.Spec.Devices {
			id := s.Spec.Devices[i].ID
			if s.Spec.Devices[i].Unschedulable {
				id += "?"
			}
			ids = append(ids, id)
		}
		slices.Sort(ids)
		for _, p := range s.Spec.Problems {
			ids = append(ids, "!"+p.Reason)
		}
		got = append(got, strings.TrimSpace(s.Name+": "+strings.Join(ids, " ")))
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("slices (-want +got):\n%s", diff)
	}
}

// edit changes a slice as another client would.
func (a *api) edit(t *testing.T, name string, change func(*v1alpha1.DeviceSlice)) {
	t.Helper()
	client := a.KubeslotV1alpha1().DeviceSlices()
	s, err := client.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s = s.DeepCopy()
	change(s)
	if _, err = client.Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (a *api) configure(t *testing.T, c *v0.Configuration) {
	t.Helper()
	client := a.AkriV0().Configurations(c.Namespace)
	was, err := client.Get(t.Context(), c.Name, metav1.GetOptions{})
	if err == nil {
		c.ResourceVersion = was.ResourceVersion
		_, err = client.Update(t.Context(), c, metav1.UpdateOptions{})
	} else {
		_, err = client.Create(t.Context(), c, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// pass lets time pass, and all that is due in it happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// allow sets the paths that devices may have.
func (a *api) allow(t *testing.T, paths ...string) {
	t.Helper()
	var err error
	if a.allowed, err = hostpaths.Parse(paths); err != nil {
		t.Fatal(err)
	}
}

// running is an agent at work.
type running struct {
	*Agent
	*discovery.Registry
	events *record.FakeRecorder
	stop   func() // and waits until nothing is left to do

	mu            sync.Mutex
	notifications []string // what holders were notified of
}

func (a *api) start(t *testing.T, name string, handlers ...discovery.Handler) *running {
	t.Helper()
	factory, core := externalversions.NewSharedInformerFactory(a, 0), coreinformers.NewSharedInformerFactory(a.kube, 0)
	recorder, registry := record.NewFakeRecorder(100), discovery.NewRegistry()
	for _, h := range handlers {
		registry.Add(discovery.NewSource(h, discovery.BuiltInEndpoint))
	}
	r := &running{Registry: registry, events: recorder}
	agent, err := New(Config{
		NodeName: name, Client: a, KubeClient: a.kube, Recorder: recorder, Registry: registry, NotifyHolders: r.notified, AllowedPaths: a.allowed,
		NoEndpoints:    a.noEndpoints,
		Configurations: factory.Akri().V0().Configurations(), Slices: factory.Kubeslot().V1alpha1().DeviceSlices(),
		Nodes: core.Core().V1().Nodes(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	factory.Start(ctx.Done())
	core.Start(ctx.Done())
	go func() {
		defer close(done)
		agent.Run(ctx)
	}()
	stop := sync.OnceFunc(func() {
		cancel()
		<-done
		factory.Shutdown()
		core.Shutdown()
	})
	t.Cleanup(stop)
	r.Agent, r.stop = agent, stop
	return r
}

// notified is Config.NotifyHolders.
func (r *running) notified(instance, reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notifications = append(r.notifications, instance+" "+reason+" "+message)
}

// wantNotified compares what holders were notified of since the last question, each of which must
// begin as is wanted.
func (r *running) wantNotified(t *testing.T, want ...string) {
	t.Helper()
	pass(time.Second)
	r.mu.Lock()
	defer r.mu.Unlock()
	got := slices.Sorted(slices.Values(r.notifications)) // several at once come in no order
	ok := slices.EqualFunc(got, slices.Sorted(slices.Values(want)), strings.HasPrefix)
	if !ok {
		t.Errorf("holders were notified of %q, want %q", r.notifications, want)
	}
	r.notifications = nil
}

// wantEvents passes time and compares the Events since the last question.
func (r *running) wantEvents(t *testing.T, want ...string) {
	t.Helper()
	pass(time.Second)
	var got []string
	for len(r.events.Events) > 0 {
		got = append(got, <-r.events.Events)
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("Events (-want +got):\n%s", diff)
	}
}

func node(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}
}

func configuration(name string) *v0.Configuration {
	return &v0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID("uid-" + name)},
		Spec:       v0.ConfigurationSpec{DiscoveryHandler: v0.DiscoveryHandlerInfo{Name: "echoes"}},
	}
}

func many(n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("foo%d", i))
	}
	return ids
}

// instanceOf names the Instance of a shared device.
func instanceOf(configuration, id string) string {
	return slot.InstanceName(configuration, slot.InstanceHash(id, true, "", slot.ShortHash))
}
