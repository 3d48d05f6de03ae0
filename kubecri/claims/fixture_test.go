package claims

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeinformers "k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/crilist"
	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/types/assignment"
	informers "github.com/kubeslot/kubeslot/types/client/informers/externalversions"
	"github.com/kubeslot/kubeslot/types/slot"
)

func mustSlot(t testing.TB, name string) slot.Name {
	t.Helper()
	s, err := slot.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// fakeRuntime lists containers.
type fakeRuntime struct {
	crilist.Runtime // nil: nothing else is asked
	mu              sync.Mutex
	down            bool
	containers      []*runtimeapi.Container
	stopped         map[string]bool
	stopping        func(context.Context, *runtimeapi.StopContainerRequest) error // called before each stop
	starting        bool                                                          // no container can be removed
	pods            map[string]map[string]string                                  // annotations, by sandbox
	events          chan *runtimeapi.ContainerEventResponse                       // nil for a runtime without events
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

// StopContainer is as containerd's: it stops what runs, and passes over everything else.
func (r *fakeRuntime) StopContainer(ctx context.Context, in *runtimeapi.StopContainerRequest, _ ...grpc.CallOption) (*runtimeapi.StopContainerResponse, error) {
	r.mu.Lock()
	hook := r.stopping
	r.mu.Unlock()
	if hook != nil {
		if err := hook(ctx, in); err != nil {
			return nil, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.containers {
		if c.Id == in.ContainerId && c.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			c.State = runtimeapi.ContainerState_CONTAINER_EXITED
		}
	}
	return &runtimeapi.StopContainerResponse{}, nil
}

func (r *fakeRuntime) ContainerStatus(_ context.Context, in *runtimeapi.ContainerStatusRequest, _ ...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.containers {
		if c.Id == in.ContainerId {
			return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{Id: c.Id, State: c.State}}, nil
		}
	}
	return nil, status.Error(codes.NotFound, in.ContainerId)
}

func (r *fakeRuntime) RemoveContainer(_ context.Context, in *runtimeapi.RemoveContainerRequest, _ ...grpc.CallOption) (*runtimeapi.RemoveContainerResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.starting {
		return nil, errors.New("container is in starting state, can't be removed")
	}
	r.containers = slices.DeleteFunc(r.containers, func(c *runtimeapi.Container) bool { return c.Id == in.ContainerId })
	return &runtimeapi.RemoveContainerResponse{}, nil
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
func (r *fakeRuntime) add(t *testing.T, id, podUID string, resourceAndSlots ...string) {
	t.Helper()
	c := &runtimeapi.Container{Id: id, PodSandboxId: "box-" + podUID, Annotations: map[string]string{},
		State: runtimeapi.ContainerState_CONTAINER_EXITED, // an exited one is restarted, and holds its slots
		Labels: map[string]string{"io.kubernetes.pod.uid": podUID, "io.kubernetes.pod.name": "pod-" + podUID,
			"io.kubernetes.pod.namespace": "ns", "io.kubernetes.container.name": "main"}}
	for _, g := range grants(t, resourceAndSlots...) {
		holder := podUID
		if g.InstanceLevel() {
			holder = ""
		}
		key, value := slot.Annotation(g.Slot, holder)
		c.Annotations[key] = value
	}
	r.change(func() { r.containers = append(r.containers, c) })
}

type fixture struct {
	*Claims
	api     *api
	runtime *fakeRuntime
	events  *record.FakeRecorder
	kill    func() // ends it, with what it has begun undone
}

type setup struct {
	node  string
	grace time.Duration
	clock clock.WithTicker
	pods  *kubefake.Clientset // the pods bound to the node
	// checkpoint is the path of the file; device then is each Instance's.
	checkpoint string
	device     *discovery.Device // nil: none is seen
	unread     bool              // the API server cannot be reached
	leases     bool              // the node may write its Lease
	kubelet    *Kubelet          // of Config
	// believable is of Config.
	believable func(context.Context) error
	// heldChanged is of Config.
	heldChanged func()
	logger      *klog.Logger // what Run logs to, if set
	// hangs, if set, is called before each renewal of the Lease.
	hangs func(context.Context)
	// inspect is of Config.
	inspect func(context.Context, []*runtimeapi.Container, map[string]*runtimeapi.PodSandbox) map[string]bool
}

// start runs Claims against the API and the runtime, and waits until both have been read.
func start(t *testing.T, a *api, r *fakeRuntime, s setup) *fixture {
	t.Helper()
	if s.node == "" {
		s.node = here
	}
	if s.grace == 0 {
		s.grace = time.Hour
	}
	if s.pods == nil {
		s.pods = kubefake.NewClientset()
	}
	factory := informers.NewSharedInformerFactory(a, 0)
	pods, nodes := kubeinformers.NewSharedInformerFactory(s.pods, 0), kubeinformers.NewSharedInformerFactory(a.kube, 0)
	events := record.NewFakeRecorder(10)
	var leases coordinationclient.LeaseInterface
	var stopper Stopper
	if s.leases {
		leases, stopper = hangingLeases{a.kube.CoordinationV1().Leases("kube-node-lease"), s.hangs}, r
		if s.checkpoint == "" {
			s.checkpoint = filepath.Join(t.TempDir(), "checkpoint")
		}
	}
	c, err := New(Config{Leases: leases, Stopper: stopper, Node: s.node, Client: a, Claims: factory.Kubeslot().V1alpha1().SlotClaims(), Configurations: factory.Akri().V0().Configurations(),
		Kubelet: s.kubelet, Believable: s.believable, Pods: pods.Core().V1().Pods(), Nodes: nodes.Core().V1().Nodes(),
		Namespaces: NamespacesOf(a.kube), Runtime: r, Events: events, Grace: s.grace, Resync: time.Hour,
		Clock:   s.clock,
		Inspect: s.inspect, HeldChanged: s.heldChanged,
		Checkpoint: s.checkpoint, Device: func(string) (discovery.Device, bool) {
			if s.device == nil {
				return discovery.Device{}, false
			}
			return *s.device, true
		}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if s.logger != nil {
		ctx = klog.NewContext(ctx, *s.logger)
	}
	ended := make(chan struct{})
	before := watches(a, a.kube, s.pods)
	if !s.unread {
		factory.Start(ctx.Done())
		pods.Start(ctx.Done())
		nodes.Start(ctx.Done())
	}
	go func() { defer close(ended); c.Run(ctx) }()
	kill := sync.OnceFunc(func() { cancel(); <-ended; factory.Shutdown(); pods.Shutdown(); nodes.Shutdown() })
	t.Cleanup(kill)
	if s.unread {
		return &fixture{c, a, r, events, kill}
	}
	// What is deleted between a list and its watch goes unseen with this fake.
	await.That(t, "the informers", func() bool {
		return watches(a, a.kube, s.pods) >= before+4 && c.config.Pods.Informer().HasSynced()
	})
	if !r.down {
		if err := c.ready(t.Context(), &Request{}); err != nil {
			t.Fatal(err)
		}
	}
	return &fixture{c, a, r, events, kill}
}

type hangingLeases struct {
	coordinationclient.LeaseInterface
	hangs func(context.Context)
}

func (l hangingLeases) Get(ctx context.Context, name string, options metav1.GetOptions) (*coordinationv1.Lease, error) {
	if l.hangs != nil {
		l.hangs(ctx)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return l.LeaseInterface.Get(ctx, name, options)
}

// watches counts those that were begun.
func watches(clients ...interface{ Actions() []ktesting.Action }) (n int) {
	for _, client := range clients {
		for _, action := range client.Actions() {
			if action.GetVerb() == "watch" {
				n++
			}
		}
	}
	return n
}

func grants(t testing.TB, resourceAndSlots ...string) []assignment.Grant {
	t.Helper()
	var grants []assignment.Grant
	ordinal := map[string]int{}
	for i := 0; i < len(resourceAndSlots); i += 2 {
		r := resourceAndSlots[i]
		grants = append(grants, assignment.Grant{Resource: r, Ordinal: ordinal[r], Slot: mustSlot(t, resourceAndSlots[i+1])})
		ordinal[r]++
	}
	return grants
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

// create creates a container of the pod, unless Take says otherwise.
func (f *fixture) create(t *testing.T, id, podUID string, resourceAndSlots ...string) error {
	t.Helper()
	taken, err := f.Take(t.Context(), request(t, podUID, resourceAndSlots...))
	if err == nil {
		f.runtime.add(t, id, podUID, resourceAndSlots...)
		taken.Created(id)
	}
	return err
}

func (f *fixture) mustCreate(t *testing.T, id, podUID string, resourceAndSlots ...string) {
	t.Helper()
	if err := f.create(t, id, podUID, resourceAndSlots...); err != nil {
		t.Fatal(err)
	}
}

// remove removes a container.
func (f *fixture) remove(id string) {
	f.runtime.change(func() {
		f.runtime.containers = slices.DeleteFunc(f.runtime.containers, func(c *runtimeapi.Container) bool { return c.Id == id })
	})
	f.Removed(id)
}

// want waits until the slot is as wanted.
func (f *fixture) want(t *testing.T, name, want string) {
	t.Helper()
	await.That(t, fmt.Sprintf("slot %s to be %q", name, want), func() bool { return f.api.who(t, name) == want })
}

// still checks that the slot is as wanted after all is done that is to be done now.
func (f *fixture) still(t *testing.T, name, want string) {
	t.Helper()
	if err := f.reconcile(t.Context(), mustSlot(t, name)); err != nil {
		t.Fatal(err)
	}
	if got := f.api.who(t, name); got != want {
		t.Errorf("slot %s is %q, want %q", name, got, want)
	}
}

// wantEvent waits for an event that says all of parts.
func (f *fixture) wantEvent(t *testing.T, parts ...string) {
	t.Helper()
	event := await.Next(t, fmt.Sprintf("an event %q", parts), f.events.Events)
	for _, part := range parts {
		if !strings.Contains(event, part) {
			t.Errorf("event %q does not say %q", event, part)
		}
	}
}
