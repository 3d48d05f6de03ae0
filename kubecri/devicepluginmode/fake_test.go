package devicepluginmode

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers"
	corev1informers "k8s.io/client-go/informers/core/v1"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/kubecri/crilist"
	"github.com/kubeslot/kubeslot/kubecri/ownwrites"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned/fake"
	"github.com/kubeslot/kubeslot/types/client/informers/externalversions"
	akriinformers "github.com/kubeslot/kubeslot/types/client/informers/externalversions/akri/v0"
	informers "github.com/kubeslot/kubeslot/types/client/informers/externalversions/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// machine is a node's runtime and the kubelet's pod-resources.
type machine struct {
	crilist.Runtime // nil: nothing else is asked

	mu     sync.Mutex
	down   bool
	ended  bool // no sandbox is ready
	listed []*podresourcesapi.PodResources
	// containers are those of ready sandboxes.
	containers []*runtimeapi.Container
}

func (m *machine) List(context.Context, *podresourcesapi.ListPodResourcesRequest, ...grpc.CallOption) (*podresourcesapi.ListPodResourcesResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return nil, status.Error(codes.Unavailable, "no such socket")
	}
	return &podresourcesapi.ListPodResourcesResponse{PodResources: append([]*podresourcesapi.PodResources(nil), m.listed...)}, nil
}

func (*machine) GetAllocatableResources(context.Context, *podresourcesapi.AllocatableResourcesRequest, ...grpc.CallOption) (*podresourcesapi.AllocatableResourcesResponse, error) {
	return nil, errors.New("not asked for")
}

func (*machine) Get(context.Context, *podresourcesapi.GetPodResourcesRequest, ...grpc.CallOption) (*podresourcesapi.GetPodResourcesResponse, error) {
	return nil, errors.New("not asked for")
}

func (m *machine) ListContainers(context.Context, *runtimeapi.ListContainersRequest, ...grpc.CallOption) (*runtimeapi.ListContainersResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &runtimeapi.ListContainersResponse{Containers: append([]*runtimeapi.Container(nil), m.containers...)}, nil
}

func (m *machine) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest, ...grpc.CallOption) (*runtimeapi.ListPodSandboxResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &runtimeapi.ListPodSandboxResponse{}
	for _, c := range m.containers {
		s := &runtimeapi.PodSandbox{Id: c.PodSandboxId}
		if m.ended {
			s.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		}
		r.Items = append(r.Items, s)
	}
	return r, nil
}

func (*machine) GetContainerEvents(context.Context, *runtimeapi.GetEventsRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse], error) {
	return nil, status.Error(codes.Unimplemented, "no events")
}

// rig is a node's Plugins without their loops: a test moves time, shows the node the API's
// news, and takes the inventory.
type rig struct {
	*Plugins
	synced  atomic.Bool // the API server has been read
	shown   time.Time   // when all news were last seen
	api     *api
	machine *machine
	events  *record.FakeRecorder
	clock   *clocktesting.FakePassiveClock
	read    chan struct{} // closed when synced is for good
	ran     bool          // its claims were run
	news    []func()      // of the API, that the node has not seen
}

const capacity = 2

// rigClock is its clock.
type rigClock struct {
	clock.RealClock
	r *rig
}

func (c rigClock) Now() time.Time                  { return c.r.clock.Now() }
func (c rigClock) Since(t time.Time) time.Duration { return c.r.clock.Since(t) }

// gated is an informer that has synced when its rig says so; nobody runs it.
type gated struct {
	cache.SharedIndexInformer
	r *rig
}

func (g gated) HasSynced() bool                     { return g.r.synced.Load() }
func (g gated) HasSyncedChecker() cache.DoneChecker { return g }
func (g gated) Name() string                        { return "rig" }
func (g gated) Done() <-chan struct{}               { return g.r.read }

type (
	configurations struct {
		akriinformers.ConfigurationInformer
		r *rig
	}
	deviceSlices struct {
		informers.DeviceSliceInformer
		r *rig
	}
	claimsHere struct {
		informers.SlotClaimInformer
		r *rig
	}
	pods struct {
		corev1informers.PodInformer
		r *rig
	}
	nodes struct {
		corev1informers.NodeInformer
		r *rig
	}
)

func (i configurations) Informer() cache.SharedIndexInformer {
	return gated{i.ConfigurationInformer.Informer(), i.r}
}

func (i deviceSlices) Informer() cache.SharedIndexInformer {
	return gated{i.DeviceSliceInformer.Informer(), i.r}
}

func (i claimsHere) Informer() cache.SharedIndexInformer {
	return gated{i.SlotClaimInformer.Informer(), i.r}
}

func (i pods) Informer() cache.SharedIndexInformer { return gated{i.PodInformer.Informer(), i.r} }

func (i nodes) Informer() cache.SharedIndexInformer { return gated{i.NodeInformer.Informer(), i.r} }

// newRig makes a node that sees the devices of Configuration cam, and lists them. Those that
// begin with local- are not shared.
func newRig(t testing.TB, a *api, node string, spec akriv0.ConfigurationSpec, devices ...string) *rig {
	t.Helper()
	return newRigWith(t, a, node, spec, func(*Config) {}, devices...)
}

// newRigWith changes the Config first.
func newRigWith(t testing.TB, a *api, node string, spec akriv0.ConfigurationSpec, change func(*Config),
	devices ...string) *rig {
	t.Helper()
	r := &rig{api: a, machine: &machine{}, events: record.NewFakeRecorder(100),
		clock: clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))}
	r.synced.Store(true)
	r.read = make(chan struct{})
	r.shown = r.clock.Now()
	spec.Capacity = capacity
	kube := kubefake.NewClientset()
	akri := fake.NewSimpleClientset()
	factory, core := externalversions.NewSharedInformerFactory(akri, 0), coreinformers.NewSharedInformerFactory(kube, 0)
	seen := map[string]discovery.Device{}
	own := &v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-0"}, Spec: v1alpha1.DeviceSliceSpec{NodeName: node}}
	for _, d := range devices {
		shared := !strings.HasPrefix(d, "local-")
		listed := v1alpha1.Device{Configuration: v1alpha1.ConfigurationReference{Namespace: "default", Name: "cam"}, ID: d, Shared: shared,
			Hash: slot.InstanceHash(d, shared, node, slot.ShortHash)}
		own.Spec.Devices = append(own.Spec.Devices, listed)
		seen[listed.Instance()] = discovery.Device{ID: d, Properties: map[string]string{"URL": "rtsp://" + d}, Variables: map[string]bool{"URL": true}}
	}
	config := Config{Config: claims.Config{Node: node, Client: client{akri, a},
		Configurations: configurations{factory.Akri().V0().Configurations(), r},
		Claims:         claimsHere{factory.Kubeslot().V1alpha1().SlotClaims(), r},
		Pods:           pods{core.Core().V1().Pods(), r},
		Nodes:          nodes{core.Core().V1().Nodes(), r},
		Runtime:        r.machine, Events: r.events, Clock: rigClock{r: r}},
		Slices:  deviceSlices{factory.Kubeslot().V1alpha1().DeviceSlices(), r},
		Devices: func() (map[string]discovery.Device, <-chan struct{}) { return seen, nil },
		Device: func(_ context.Context, instance string) (discovery.Device, error) {
			if d, ok := seen[instance]; ok {
				return d, nil
			}
			return discovery.Device{}, errors.New("not seen")
		},
		PodResources: r.machine, Directory: t.TempDir()}
	change(&config)
	p, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	r.Plugins = p
	t.Cleanup(func() { // which ends its queue
		ended, end := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
		end()
		if !r.ran {
			p.claims.Run(ended)
		}
	})
	p.watches["cam"] = p.watchClaims("cam", nil)
	p.watches["cam"].informer = gated{p.watches["cam"].informer, r}
	put := func(indexer interface{ Add(any) error }, obj any) {
		if err := indexer.Add(obj); err != nil {
			t.Fatal(err)
		}
	}
	put(p.Configurations.Informer().GetIndexer(), &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cam", UID: "cam-uid"}, Spec: spec})
	put(p.Slices.Informer().GetIndexer(), own)
	put(p.Nodes.Informer().GetIndexer(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, UID: types.UID(node + "-uid")}})
	a.mu.Lock()
	defer a.mu.Unlock()
	a.follow = append(a.follow, func(name slot.Name, c *v1alpha1.SlotClaim, gone bool) {
		r.news = append(r.news, func() {
			r.shows(c, gone)
		})
	})
	for _, c := range a.claims {
		r.shows(c, false)
	}
	p.inventory, _ = p.takeInventory()
	return r
}

// shows has the node's informers show a claim, or that it is gone.
func (r *rig) shows(c *v1alpha1.SlotClaim, gone bool) {
	change := cache.Indexer.Update
	if gone {
		change = cache.Indexer.Delete
	}
	if name, _ := c.Slot(); strings.HasPrefix(name.Instance, "cam-") {
		_ = change(r.watches["cam"].informer.GetIndexer(), c) // of memory
		r.claimChanged(c, gone)
	}
	if c.Spec.NodeName == r.Node {
		_ = change(r.Claims.Informer().GetIndexer(), c)
		r.claims.Saw(c)
	}
}

// step moves the node's time.
func (r *rig) step(d time.Duration) { r.clock.SetTime(r.clock.Now().Add(d)) }

// refresh asks what is in use, and releases what is not. No news is older than ownwrites.ShownWithin then.
func (r *rig) refresh(ctx context.Context) error {
	if r.clock.Since(r.shown) >= ownwrites.ShownWithin/2 {
		r.catchUp(math.MaxInt)
	}
	return r.claims.Refresh(ctx)
}

// catchUp shows the node n of the news that it has not seen.
func (r *rig) catchUp(n int) {
	r.api.mu.Lock()
	n = min(n, len(r.news))
	news := r.news[:n]
	r.news = r.news[n:]
	if len(r.news) == 0 {
		r.shown = r.clock.Now()
	}
	r.api.mu.Unlock()
	for _, f := range news {
		f()
	}
}
