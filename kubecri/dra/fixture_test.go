package dra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	kubeinformers "k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/cdi"
	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/test/await"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned/fake"
	informers "github.com/kubeslot/kubeslot/types/client/informers/externalversions"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

const (
	here, there = "node-a", "node-b"
	camera      = "cam-8120fe" // an Instance
	other       = "cam-a19705"
)

// api is an API server that gives SlotClaims UIDs and minds those that a delete asks for.
type api struct {
	*fake.Clientset
	kube *kubefake.Clientset
	mu   sync.Mutex
	uids int
	// fault, if set, stands between a call about SlotClaims and the API server.
	fault func(do func() error) error
	// noneAgain has it not answer who claims a slot again.
	noneAgain atomic.Bool
	// watches are how many of each resource were begun: a fake API server does not tell of what is before.
	watches map[string]int
}

var slotClaims = v1alpha1.SchemeGroupVersion.WithResource("slotclaims")

// configuration is one whose devices DRA gives.
func configuration(capacity int32) *akriv0.Configuration {
	return &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cam"},
		Spec:   akriv0.ConfigurationSpec{Capacity: capacity, Allocator: akriv0.AllocatorDRA},
		Status: akriv0.ConfigurationStatus{Allocator: akriv0.NewAllocatorStatus(akriv0.AllocatorDRA, nil)}}
}

func newAPI(of *akriv0.Configuration, kube ...runtime.Object) *api {
	a := &api{Clientset: fake.NewSimpleClientset(of), kube: kubefake.NewClientset(append(kube, node(here),
		node(there))...), watches: map[string]int{}}
	a.PrependWatchReactor("*", a.watch(a.Tracker()))
	a.kube.PrependWatchReactor("*", a.watch(a.kube.Tracker()))
	a.PrependReactor("*", "slotclaims", func(action ktesting.Action) (bool, runtime.Object, error) {
		var made runtime.Object
		handled := true
		do := func() error {
			switch action := action.(type) {
			case ktesting.CreateAction:
				claim := action.GetObject().(*v1alpha1.SlotClaim).DeepCopy()
				if claim.Spec.MadeAgain && a.noneAgain.Load() {
					return errors.New("connection refused")
				}
				a.uids++
				claim.UID = types.UID(strconv.Itoa(a.uids))
				made = claim
				return a.Tracker().Create(slotClaims, claim, "")
			case ktesting.DeleteActionImpl:
				obj, err := a.Tracker().Get(slotClaims, "", action.Name)
				if err == nil && obj.(*v1alpha1.SlotClaim).UID != *action.DeleteOptions.Preconditions.UID {
					return apierrors.NewConflict(slotClaims.GroupResource(), action.Name, errors.New("another UID"))
				}
				return a.Tracker().Delete(slotClaims, "", action.Name)
			}
			handled = false
			return nil
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.fault == nil || action.GetVerb() == "watch" {
			err := do()
			return handled, made, err
		}
		err := a.fault(do)
		return handled || err != nil, made, err
	})
	return a
}

func (a *api) watch(of ktesting.ObjectTracker) ktesting.WatchReactionFunc {
	return func(action ktesting.Action) (bool, watch.Interface, error) {
		w, err := of.Watch(action.GetResource(), action.GetNamespace())
		a.mu.Lock()
		defer a.mu.Unlock()
		a.watches[action.GetResource().Resource]++
		return true, w, err
	}
}

func (a *api) watched() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.watches)
}

func node(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}
}

func (a *api) set(fault func(do func() error) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fault = fault
}

// put creates a SlotClaim as somebody else would.
func (a *api) put(t *testing.T, name string, spec v1alpha1.SlotClaimSpec) {
	t.Helper()
	parsed, err := slot.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	spec.Level = v1alpha1.ConfigurationLevel
	claim := v1alpha1.NewSlotClaim(parsed, spec, v1alpha1.NodeOwner(spec.NodeName, "uid"))
	if _, err := a.KubeslotV1alpha1().SlotClaims().Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// claimed returns the holders of slots, by slot.
func (a *api) claimed(t *testing.T) map[string]string {
	t.Helper()
	list, err := a.Tracker().List(slotClaims, v1alpha1.SchemeGroupVersion.WithKind("SlotClaim"), "")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, c := range list.(*v1alpha1.SlotClaimList).Items {
		all[c.Name] = c.Spec.Holder
	}
	return all
}

// fakeRuntime has containers, and CDI on.
type fakeRuntime struct {
	claims.Runtime
	dir        string
	mu         sync.Mutex
	containers []*runtimeapi.Container
	asked      func() // if set, is called when it is asked for them
}

// has sets the containers.
func (r *fakeRuntime) has(containers ...*runtimeapi.Container) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.containers = containers
}

func (r *fakeRuntime) ListContainers(context.Context, *runtimeapi.ListContainersRequest,
	...grpc.CallOption) (*runtimeapi.ListContainersResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asked != nil {
		r.asked()
	}
	return &runtimeapi.ListContainersResponse{Containers: slices.Clone(r.containers)}, nil
}

func (r *fakeRuntime) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest,
	...grpc.CallOption) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{}, nil
}

func (r *fakeRuntime) GetContainerEvents(context.Context, *runtimeapi.GetEventsRequest,
	...grpc.CallOption) (grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse], error) {
	return nil, status.Error(codes.Unimplemented, "no events")
}

func (r *fakeRuntime) Version(context.Context, *runtimeapi.VersionRequest,
	...grpc.CallOption) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "containerd"}, nil
}

func (r *fakeRuntime) Status(context.Context, *runtimeapi.StatusRequest,
	...grpc.CallOption) (*runtimeapi.StatusResponse, error) {
	config := fmt.Sprintf(`{"enableCDI":true,"cdiSpecDirs":[%q]}`, r.dir)
	return &runtimeapi.StatusResponse{Info: map[string]string{"config": config}}, nil
}

// devices are those that the node sees.
type devices struct {
	mu      sync.Mutex
	seen    map[string]discovery.Device
	unknown bool // whether it sees others is not known yet
	changed chan struct{}
}

func (d *devices) Devices() (map[string]discovery.Device, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.seen), d.changed
}

func (d *devices) Gone(instance string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, is := d.seen[instance]
	return !is && !d.unknown
}

func (d *devices) set(seen map[string]discovery.Device) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen = seen
	close(d.changed)
	d.changed = make(chan struct{})
}

// rig is a node with a driver.
type rig struct {
	*Driver
	api     *api
	runtime *fakeRuntime
	devices *devices
	dir     string // of files
	events  *record.FakeRecorder
	shown   cache.Indexer // the SlotClaims that the node knows
	nodes   cache.Indexer
	kill    func()
}

func bothCameras() map[string]discovery.Device {
	return map[string]discovery.Device{camera: {ID: "a", Properties: map[string]string{"URL": "rtsp://a"}},
		other: {ID: "b", Properties: map[string]string{"URL": "rtsp://b"}}}
}

// start starts a node's claims, but not its Driver; dir has what stays there when it is killed.
func start(t *testing.T, a *api, name, dir string) *rig {
	t.Helper()
	r := &rig{api: a, dir: dir, runtime: &fakeRuntime{dir: filepath.Join(dir, "cdi")},
		events:  record.NewFakeRecorder(10),
		devices: &devices{seen: bothCameras(), changed: make(chan struct{})}}
	ours, core := informers.NewSharedInformerFactory(a, 0), kubeinformers.NewSharedInformerFactory(a.kube, 0)
	config := Config{Node: name, Kube: a.kube, Configurations: ours.Akri().V0().Configurations(),
		Slices: ours.Kubeslot().V1alpha1().DeviceSlices(), Pods: core.Core().V1().Pods(),
		Device: func(_ context.Context, instance string) (discovery.Device, error) {
			seen, _ := r.devices.Devices()
			device, is := seen[instance]
			if !is {
				return device, fmt.Errorf("device of Instance %s: node %s does not see it", instance, name)
			}
			return device, nil
		}, Seen: r.devices, Runtime: r.runtime, KubeletDirectory: filepath.Join(dir, "kubelet"), Resync: time.Hour}
	slotClaims, nodes := ours.Kubeslot().V1alpha1().SlotClaims(), core.Core().V1().Nodes()
	r.shown, r.nodes = slotClaims.Informer().GetIndexer(), nodes.Informer().GetIndexer()
	var err error
	config.Claims, err = claims.New(claims.Config{Node: name, Client: a, Claims: slotClaims,
		Configurations: config.Configurations,
		Pods:           config.Pods, Nodes: nodes, Namespaces: claims.NamespacesOf(a.kube),
		Runtime: r.runtime,
		Events:  r.events,
		Grace:   time.Nanosecond, Resync: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	config.CDI = cdi.NewInjector(r.runtime.dir, r.runtime)
	if r.Driver, err = New(config); err != nil {
		t.Fatal(err)
	}
	r.patience = 0
	config.Slices.Informer() // so that it is started
	before := a.watched()
	ctx, cancel := context.WithCancel(context.Background())
	ours.Start(ctx.Done())
	core.Start(ctx.Done())
	ours.WaitForCacheSync(ctx.Done())
	core.WaitForCacheSync(ctx.Done())
	for _, resource := range []string{"slotclaims", "configurations", "nodes", "pods"} {
		await.That(t, "a watch", func() bool { return a.watched()[resource] > before[resource] })
	}
	ended := make(chan struct{})
	go func() { defer close(ended); config.Claims.Run(ctx) }()
	<-config.Claims.Listed() // it asks the runtime no more by itself
	r.kill = sync.OnceFunc(func() { cancel(); <-ended; ours.Shutdown(); core.Shutdown() })
	t.Cleanup(r.kill)
	return r
}

// claim is an allocated ResourceClaim. Each result is "<request> <instance> <slots>".
func claim(uid types.UID, results ...string) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim-" + string(uid),
		UID: uid},
		Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{}}}
	for i, text := range results {
		parts := strings.Fields(text)
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results,
			resourceapi.DeviceRequestAllocationResult{
				Driver: v1alpha1.DRADriver, Request: parts[0], Pool: "pool-" + parts[1], Device: parts[1],
				ShareID: ptr.To(types.UID(fmt.Sprintf("s%d", i))),
				ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{
					"slots": resource.MustParse(parts[2])}})
	}
	return c
}

func reference(c *resourceapi.ResourceClaim) *v1alpha1.ResourceClaimReference {
	return &v1alpha1.ResourceClaimReference{Namespace: c.Namespace, Name: c.Name, UID: c.UID}
}

// ask prepares one claim as the kubelet asks for it.
func (r *rig) ask(t *testing.T, c *resourceapi.ResourceClaim) error {
	t.Helper()
	results, err := r.PrepareResourceClaims(t.Context(), []*resourceapi.ResourceClaim{c})
	if err != nil || len(results) != 1 {
		t.Fatalf("%v (%v), want one result", results, err)
	}
	return results[c.UID].Err
}

// held returns what is claimed once all is released that is to be.
func (r *rig) held(t *testing.T) map[string]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r.Claims.Drain(ctx)
	if ctx.Err() != nil {
		t.Fatal("not all is released")
	}
	return r.api.claimed(t)
}

// lose has somebody delete a SlotClaim of the node, which it cannot create again until a.noneAgain is false. That it is
// gone the node sees in a moment.
func (r *rig) lose(t *testing.T, name string) {
	t.Helper()
	r.api.noneAgain.Store(true)
	r.api.remove(t, name)
	await.That(t, "the informer to show that the claim is gone", func() bool {
		_, shown, _ := r.shown.GetByKey(name)
		return !shown
	})
}

func (r *rig) specPath(uid types.UID) string {
	return filepath.Join(r.runtime.dir, "slots.kubeslot.io-claim-"+string(uid)+".json")
}

func (r *rig) spec(uid types.UID) string {
	data, _ := os.ReadFile(r.specPath(uid))
	return string(data)
}

// container is one that runs of the pod, with a slot by its annotation; "" for none.
func container(id, pod, name string) *runtimeapi.Container {
	c := &runtimeapi.Container{Id: id, PodSandboxId: "box-" + pod, State: runtimeapi.ContainerState_CONTAINER_RUNNING,
		Annotations: map[string]string{},
		Labels: map[string]string{"io.kubernetes.pod.uid": pod, "io.kubernetes.pod.name": "pod-" + pod,
			"io.kubernetes.pod.namespace": "ns", "io.kubernetes.container.name": "main"}}
	if parsed, err := slot.Parse(name); err == nil {
		key, value := slot.Annotation(parsed, pod)
		c.Annotations[key] = value
	}
	return c
}
