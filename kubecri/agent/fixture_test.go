package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/kubeslot/kubeslot/discovery"
	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned/fake"
	"github.com/kubeslot/kubeslot/types/client/informers/externalversions"
	"github.com/kubeslot/kubeslot/types/slot"
)

const ns = "cameras"

// api is the fake clientset, made to enforce resourceVersions and delete
// preconditions of Instances as the API server does.
type api struct {
	*fake.Clientset
	kube *kubefake.Clientset

	mu           sync.Mutex
	version      int
	writes       []string // "update foo", in order
	down         bool
	beforeDelete func(*v0.Instance) // changes what is about to be deleted, once
}

func newAPI(objects ...runtime.Object) *api {
	a := &api{kube: kubefake.NewClientset()}
	for _, o := range objects {
		if i, ok := o.(*v0.Instance); ok {
			a.stamp(i)
		}
	}
	a.Clientset = fake.NewSimpleClientset(objects...)
	a.PrependReactor("*", "instances", a.react)
	return a
}

func (a *api) stamp(i *v0.Instance) {
	a.version++
	i.ResourceVersion = strconv.Itoa(a.version)
	if i.UID == "" {
		i.UID = types.UID("instance-" + i.ResourceVersion)
	}
}

func (a *api) react(action clienttesting.Action) (bool, runtime.Object, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.down && action.GetVerb() != "list" && action.GetVerb() != "watch" {
		return true, nil, errors.New("connection refused")
	}
	gvr, namespace := action.GetResource(), action.GetNamespace()
	current := func(name string) *v0.Instance {
		if obj, err := a.Tracker().Get(gvr, namespace, name); err == nil {
			return obj.(*v0.Instance)
		}
		return nil
	}
	conflict := func(name string) error {
		return apierrors.NewConflict(gvr.GroupResource(), name, errors.New("the object has been modified"))
	}
	switch action := action.(type) {
	case clienttesting.CreateActionImpl:
		i := action.Object.(*v0.Instance).DeepCopy()
		if current(i.Name) != nil {
			return true, nil, apierrors.NewAlreadyExists(gvr.GroupResource(), i.Name)
		}
		a.writes = append(a.writes, "create "+i.Name)
		a.stamp(i)
		return true, i, a.Tracker().Create(gvr, i, namespace)
	case clienttesting.UpdateActionImpl:
		i := action.Object.(*v0.Instance).DeepCopy()
		switch was := current(i.Name); {
		case was == nil:
			return true, nil, apierrors.NewNotFound(gvr.GroupResource(), i.Name)
		case was.ResourceVersion != i.ResourceVersion:
			return true, nil, conflict(i.Name)
		}
		a.writes = append(a.writes, "update "+i.Name)
		a.stamp(i)
		return true, i, a.Tracker().Update(gvr, i, namespace)
	case clienttesting.DeleteActionImpl:
		was := current(action.Name)
		if was == nil {
			return true, nil, apierrors.NewNotFound(gvr.GroupResource(), action.Name)
		}
		if change := a.beforeDelete; change != nil {
			a.beforeDelete = nil
			was = was.DeepCopy()
			change(was)
			a.stamp(was)
			if err := a.Tracker().Update(gvr, was, namespace); err != nil {
				return true, nil, err
			}
		}
		if p := action.DeleteOptions.Preconditions; p != nil {
			if p.UID != nil && *p.UID != was.UID || p.ResourceVersion != nil && *p.ResourceVersion != was.ResourceVersion {
				return true, nil, conflict(action.Name)
			}
		}
		a.writes = append(a.writes, "delete "+action.Name)
		return true, nil, a.Tracker().Delete(gvr, namespace, action.Name)
	}
	return false, nil, nil
}

func (a *api) setDown(down bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.down = down
}

func (a *api) writesTo(instance string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(a.writes), func(w string) bool {
		_, of, _ := cutSpace(w)
		return of != instance
	})
}

func cutSpace(s string) (verb, name string, ok bool) {
	_, err := fmt.Sscan(s, &verb, &name)
	return verb, name, err == nil
}

func (a *api) instance(t *testing.T, name string) *v0.Instance {
	t.Helper()
	i, err := a.AkriV0().Instances(ns).Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// edit changes an Instance as another client would.
func (a *api) edit(t *testing.T, name string, change func(*v0.Instance)) {
	t.Helper()
	eventually(t, "edit of Instance "+name, func() error {
		i := a.instance(t, name)
		if i == nil {
			return errors.New("it does not exist")
		}
		change(i)
		_, err := a.AkriV0().Instances(ns).Update(t.Context(), i, metav1.UpdateOptions{})
		return err
	})
}

func (a *api) configure(t *testing.T, c *v0.Configuration) {
	t.Helper()
	configurations := a.AkriV0().Configurations(c.Namespace)
	_, err := configurations.Create(t.Context(), c, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = configurations.Update(t.Context(), c, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until check returns nil.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func (a *api) wantInstance(t *testing.T, name string, ok func(*v0.Instance) bool) {
	t.Helper()
	eventually(t, "Instance "+name, func() error {
		if i := a.instance(t, name); i == nil {
			return errors.New("does not exist")
		} else if !ok(i) {
			return fmt.Errorf("not as expected: %+v", i.Spec)
		}
		return nil
	})
}

func (a *api) wantNoInstance(t *testing.T, name string) {
	t.Helper()
	eventually(t, "Instance "+name, func() error {
		if i := a.instance(t, name); i != nil {
			return fmt.Errorf("still there: %+v", i.Spec)
		}
		return nil
	})
}

// echoes is a handler that reports what a test sets.
type echoes struct {
	mu      sync.Mutex
	result  *discovery.Result
	fail    error
	panics  bool
	runs    int
	changed chan struct{}
}

func (h *echoes) Name() string { return "echoes" }

func (h *echoes) Discover(ctx context.Context, _ discovery.Request, report func(discovery.Result)) error {
	h.mu.Lock()
	h.runs++
	h.mu.Unlock()
	var last *discovery.Result
	for {
		h.mu.Lock()
		result, fail, panics, changed := h.result, h.fail, h.panics, h.changed
		h.mu.Unlock()
		if panics {
			panic("index out of range")
		}
		if fail != nil {
			return fail
		}
		if result != nil && result != last {
			report(*result)
			last = result
		}
		select {
		case <-changed:
		case <-ctx.Done():
			report(discovery.Result{}) // as a careless handler might
			return ctx.Err()
		}
	}
}

func (h *echoes) change(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
	if h.changed != nil {
		close(h.changed)
	}
	h.changed = make(chan struct{})
}

// see makes shared devices with the ids be all that there is.
func (h *echoes) see(ids ...string) *echoes { return h.report(true, ids...) }

func (h *echoes) report(shared bool, ids ...string) *echoes {
	result := &discovery.Result{Shared: shared}
	for _, id := range ids {
		result.Devices = append(result.Devices, discovery.Device{ID: id, Properties: map[string]string{"ID": id}})
	}
	h.change(func() { h.result = result })
	return h
}

func silent() *echoes {
	h := &echoes{}
	h.change(func() {})
	return h
}

func seeing(ids ...string) *echoes { return silent().see(ids...) }

// node runs an agent.
type node struct {
	*Agent
	events *record.FakeRecorder
	stop   func() // and waits until nothing is left to do
}

func (a *api) start(t *testing.T, name string, handlers ...discovery.Handler) *node {
	t.Helper()
	factory := externalversions.NewSharedInformerFactory(a, 0)
	recorder := record.NewFakeRecorder(100)
	agent, err := New(Config{
		NodeName: name, Client: a, KubeClient: a.kube, Recorder: recorder, Handlers: handlers,
		Configurations: factory.Akri().V0().Configurations(), Instances: factory.Akri().V0().Instances(),
		Restart: wait.Backoff{Duration: time.Millisecond, Factor: 2, Steps: 5, Cap: 20 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	factory.Start(ctx.Done())
	go func() {
		defer close(done)
		agent.Run(ctx)
	}()
	stop := sync.OnceFunc(func() {
		cancel()
		<-done
		factory.Shutdown()
	})
	t.Cleanup(stop)
	return &node{Agent: agent, events: recorder, stop: stop}
}

func (n *node) wantEvent(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-n.events.Events:
		if got != want {
			t.Fatalf("Event %q, want %q", got, want)
		}
	case <-time.After(20 * time.Second):
		t.Fatalf("no Event, want %q", want)
	}
}

func configuration(name string, capacity int32) *v0.Configuration {
	return &v0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID("uid-" + name)},
		Spec:       v0.ConfigurationSpec{Capacity: capacity, DiscoveryHandler: v0.DiscoveryHandlerInfo{Name: "echoes"}},
	}
}

// instanceOf names the Instance of a shared device.
func instanceOf(configuration, id string) string {
	return slot.InstanceName(configuration, slot.InstanceHash(id, true, "", slot.ShortHash))
}

// rightInstance is what agents of the nodes keep for a shared device.
func rightInstance(c *v0.Configuration, id string, nodes ...string) *v0.Instance {
	device := discovery.Device{ID: id, Properties: map[string]string{"ID": id}}
	var i *v0.Instance
	for _, n := range nodes {
		i = desired(i, c, found{Device: device, shared: true, hash: slot.InstanceHash(id, true, "", slot.ShortHash)}, n)
	}
	return i
}

func hasNodes(nodes ...string) func(*v0.Instance) bool {
	return func(i *v0.Instance) bool {
		return slices.Equal(slices.Sorted(slices.Values(i.Spec.Nodes)), slices.Sorted(slices.Values(nodes)))
	}
}
