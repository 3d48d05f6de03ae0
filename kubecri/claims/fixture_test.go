package claims

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	kubeinformers "k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned/fake"
	informers "github.com/kubeslot/kubeslot/types/client/informers/externalversions"
	"github.com/kubeslot/kubeslot/types/slot"
)

// api is an API server that checks resourceVersions, and can be down.
type api struct {
	*fake.Clientset
	mu      sync.Mutex
	down    bool
	updates int
	version int
	// before is called ahead of each update, to get in between.
	before func()
}

func newAPI(t *testing.T, instances ...*akriv0.Instance) *api {
	t.Helper()
	objs := make([]runtime.Object, 0, len(instances))
	for _, in := range instances {
		objs = append(objs, in)
	}
	a := &api{Clientset: fake.NewSimpleClientset(objs...), version: 1}
	a.PrependReactor("*", "instances", func(action ktesting.Action) (bool, runtime.Object, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.down {
			return true, nil, errors.New("connection refused")
		}
		return false, nil, nil
	})
	a.PrependReactor("update", "instances", func(action ktesting.Action) (bool, runtime.Object, error) {
		in := action.(ktesting.UpdateAction).GetObject().(*akriv0.Instance).DeepCopy()
		a.mu.Lock()
		before := a.before
		a.before = nil
		a.mu.Unlock()
		if before != nil {
			before()
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.down {
			return true, nil, errors.New("connection refused")
		}
		gvr := akriv0.SchemeGroupVersion.WithResource("instances")
		got, err := a.Tracker().Get(gvr, in.Namespace, in.Name)
		if err != nil {
			return true, nil, err
		}
		if v := got.(*akriv0.Instance).ResourceVersion; v != in.ResourceVersion {
			return true, nil, apierrors.NewConflict(gvr.GroupResource(), in.Name, errors.New("at "+v))
		}
		a.version++
		a.updates++
		in.ResourceVersion = strconv.Itoa(a.version)
		return true, in, a.Tracker().Update(gvr, in.DeepCopy(), in.Namespace)
	})
	return a
}

func (a *api) set(down bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.down = down
}

func (a *api) writes() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.updates
}

// usage returns a slot's deviceUsage, as stored.
func (a *api) usage(t *testing.T, name string) string {
	t.Helper()
	s := mustSlot(t, name)
	got, err := a.Tracker().Get(akriv0.SchemeGroupVersion.WithResource("instances"), "default", s.Instance)
	if err != nil {
		t.Fatal(err)
	}
	return got.(*akriv0.Instance).Spec.DeviceUsage[name]
}

// write changes an Instance as somebody else would. It goes past the clientset,
// which handles one request at a time, to be possible during another.
func (a *api) write(t *testing.T, instance string, change func(*akriv0.Instance)) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	gvr := akriv0.SchemeGroupVersion.WithResource("instances")
	got, err := a.Tracker().Get(gvr, "default", instance)
	if err != nil {
		t.Fatal(err)
	}
	in := got.(*akriv0.Instance).DeepCopy()
	change(in)
	a.version++
	in.ResourceVersion = strconv.Itoa(a.version)
	if err := a.Tracker().Update(gvr, in, "default"); err != nil {
		t.Fatal(err)
	}
}

// fakeRuntime lists containers.
type fakeRuntime struct {
	mu         sync.Mutex
	down       bool
	containers []*runtimeapi.Container
	stopped    map[string]bool
	pods       map[string]map[string]string            // annotations, by sandbox
	events     chan *runtimeapi.ContainerEventResponse // nil for a runtime without events
}

func (r *fakeRuntime) ListContainers(context.Context, *runtimeapi.ListContainersRequest, ...grpc.CallOption) (*runtimeapi.ListContainersResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down {
		return nil, errors.New("no such file or directory")
	}
	return &runtimeapi.ListContainersResponse{Containers: append([]*runtimeapi.Container(nil), r.containers...)}, nil
}

func (r *fakeRuntime) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest, ...grpc.CallOption) (*runtimeapi.ListPodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	resp := &runtimeapi.ListPodSandboxResponse{}
	for _, c := range r.containers {
		box := &runtimeapi.PodSandbox{Id: c.PodSandboxId, Annotations: r.pods[c.PodSandboxId]}
		if r.stopped[c.PodSandboxId] {
			box.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		}
		resp.Items = append(resp.Items, box)
	}
	return resp, nil
}

func (r *fakeRuntime) GetContainerEvents(ctx context.Context, _ *runtimeapi.GetEventsRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse], error) {
	if r.events == nil {
		return nil, status.Error(codes.Unimplemented, "no events")
	}
	return &eventStream{ctx: ctx, events: r.events}, nil
}

// eventStream ends with io.EOF at each nil event.
type eventStream struct {
	grpc.ClientStream
	ctx    context.Context
	events chan *runtimeapi.ContainerEventResponse
}

func (s *eventStream) Recv() (*runtimeapi.ContainerEventResponse, error) {
	select {
	case e := <-s.events:
		if e == nil {
			return nil, io.EOF
		}
		return e, nil
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

// change changes what the runtime lists.
func (r *fakeRuntime) change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// add creates a container as if through another life of kubecri.
func (r *fakeRuntime) add(t *testing.T, id, podUID string, annotations ...string) {
	t.Helper()
	c := &runtimeapi.Container{Id: id, PodSandboxId: "box-" + podUID, Annotations: map[string]string{},
		State: runtimeapi.ContainerState_CONTAINER_EXITED, // an exited one is restarted, and holds its slots
		Labels: map[string]string{"io.kubernetes.pod.uid": podUID, "io.kubernetes.pod.name": "pod-" + podUID,
			"io.kubernetes.pod.namespace": "ns", "io.kubernetes.container.name": "main"}}
	for _, text := range annotations {
		holder, name, cl := strings.Cut(text, "@")
		if !cl {
			holder, name = "", text
		}
		key, value := slot.Annotation(mustSlot(t, name), holder)
		c.Annotations[key] = value
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.containers = append(r.containers, c)
}

type fixture struct {
	*Claims
	api     *api
	runtime *fakeRuntime
	events  *record.FakeRecorder
}

type setup struct {
	node  string
	grace time.Duration
	clock clock.WithTicker
	pods  *kubefake.Clientset // the pods bound to the node
	down  bool                // the API server, at start
}

// start runs Claims against the API and the runtime.
func start(t *testing.T, a *api, r *fakeRuntime, s setup) *fixture {
	t.Helper()
	if s.node == "" {
		s.node = here
	}
	if s.grace == 0 {
		s.grace = time.Hour
	}
	factory := informers.NewSharedInformerFactory(a, 0)
	if s.pods == nil {
		s.pods = kubefake.NewClientset()
	}
	pods := kubeinformers.NewSharedInformerFactory(s.pods, 0)
	events := record.NewFakeRecorder(10)
	c, err := New(Config{Node: s.node, Client: a, Instances: factory.Akri().V0().Instances(), Configurations: factory.Akri().V0().Configurations(),
		Pods: pods.Core().V1().Pods(), Runtime: r, Events: events, Grace: s.grace, Resync: time.Hour, Clock: s.clock})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	factory.Start(ctx.Done())
	pods.Start(ctx.Done())
	pods.WaitForCacheSync(ctx.Done())
	if !s.down {
		factory.WaitForCacheSync(ctx.Done())
	}
	go func() { defer close(ended); c.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended; factory.Shutdown(); pods.Shutdown() })
	return &fixture{c, a, r, events}
}

func request(t *testing.T, podUID string, resourceAndSlots ...string) Request {
	t.Helper()
	r := Request{Pod: Pod{"ns", "pod-" + podUID, podUID}, Container: "main", Sandbox: "box-" + podUID,
		Grants: grants(t, resourceAndSlots...), Requested: map[string]int64{}}
	for _, g := range r.Grants {
		r.Requested[g.Resource]++
	}
	return r
}

// mustTake takes and creates.
func (f *fixture) mustTake(t *testing.T, id string, r Request) {
	t.Helper()
	taken, err := f.Take(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	taken.Created(id)
}

func (f *fixture) wantUsage(t *testing.T, name, want string) {
	t.Helper()
	var got string
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if got = f.api.usage(t, name); got == want {
			return
		}
	}
	t.Fatalf("deviceUsage of %s is %q, and in 10 s did not become %q", name, got, want)
}
