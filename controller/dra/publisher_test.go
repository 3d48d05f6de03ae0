package dra

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubeslot/kubeslot/controller/inventory"
	"github.com/kubeslot/kubeslot/test/await"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// rig is a Publisher before a fake API server, with its queue filled as the watch does.
type rig struct {
	testing.TB
	*Publisher
	inv   *inventory.Inventory
	clock *clocktesting.FakeClock
	api   *fake.Clientset

	mu      sync.Mutex
	queue   queue
	writes  []string        // verbs and names of pools
	devices int             // of the last slice that was written
	refuse  error           // of writes
	lacking map[string]bool // names of Instances that are not there
	changed []string        // Configurations
}

func newRig(t testing.TB, objects ...runtime.Object) *rig {
	r := &rig{TB: t, inv: inventory.New(), clock: clocktesting.NewFakeClock(time.Unix(1e9, 0)),
		api: fake.NewClientset(objects...)}
	names := 0
	r.api.PrependReactor("*", "resourceslices", func(action clienttesting.Action) (bool, runtime.Object, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		var slice *resourceapi.ResourceSlice
		switch a := action.(type) {
		case clienttesting.CreateAction: // and updates
			slice = a.GetObject().(*resourceapi.ResourceSlice)
			if slice.ResourceVersion = fmt.Sprint(1000 + names); slice.Name == "" {
				names++
				slice.Name = fmt.Sprintf("%s%d", slice.GenerateName, names)
			}
			r.writes = append(r.writes, action.GetVerb()+" "+slice.Spec.Pool.Name)
			r.devices = len(slice.Spec.Devices)
		case clienttesting.DeleteAction:
			r.writes = append(r.writes, "delete")
		case clienttesting.ListAction:
			return r.list(a)
		default:
			return false, nil, nil
		}
		return r.refuse != nil, nil, r.refuse
	})
	r.Publisher = NewPublisher(PublisherConfig{Client: r.api, Inventory: r.inv, Source: r, Clock: r.clock,
		HasInstance: func(key types.NamespacedName) bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return !r.lacking[key.String()]
		},
		Changed: func(configuration string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.changed = append(r.changed, configuration)
		}})
	return r
}

// list minds the field selector, which the fake API server does not.
func (r *rig) list(action clienttesting.ListAction) (bool, runtime.Object, error) {
	all, err := r.api.Tracker().List(action.GetResource(), resourceapi.SchemeGroupVersion.WithKind("ResourceSlice"), "")
	if err != nil {
		return true, nil, err
	}
	list := all.(*resourceapi.ResourceSliceList)
	list.Items = slices.DeleteFunc(list.Items, func(s resourceapi.ResourceSlice) bool {
		return !action.GetListRestrictions().Fields.Matches(fields.Set{
			resourceapi.ResourceSliceSelectorDriver:   s.Spec.Driver,
			resourceapi.ResourceSliceSelectorNodeName: ptr.Deref(s.Spec.NodeName, "")})
	})
	return true, list, nil
}

// A slice with a node's name is not the controller's, which does not look for its end.
func TestSliceOfANode(t *testing.T) {
	r := newRig(t, &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "x"},
		Spec: resourceapi.ResourceSliceSpec{Driver: v1alpha1.DRADriver, NodeName: new("node-x")}})
	if err := r.Publisher.start(t.Context()); err != nil || r.controller != nil {
		t.Errorf("%v; a controller runs: %t", err, r.controller != nil)
	}
}

// Start and WaitForSync implement the source.
func (r *rig) Start(_ context.Context, q queue) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = q
	return nil
}

func (r *rig) WaitForSync(context.Context) error {
	r.add(r.inv.Everything())
	return nil
}

func (r *rig) add(change inventory.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range change.Brokers {
		if r.queue != nil {
			r.queue.Add(reconcile.Request{NamespacedName: key})
		}
	}
}

func (r *rig) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := r.Publisher.Start(ctx); err != nil {
			r.Error(err)
		}
	}()
	r.Cleanup(func() { cancel(); <-done })
}

// eventually waits until what it says is so, while time goes by.
func (r *rig) eventually(what string, is func() bool) {
	r.Helper()
	await.That(r.TB, what, func() (bool, string) {
		if is() {
			return true, ""
		}
		r.clock.Step(time.Second)
		all := r.written()
		return false, fmt.Sprintf("%d writes, the first are %q", len(all), all[:min(len(all), 10)])
	})
}

func (r *rig) written() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.writes)
}

func (r *rig) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writes = nil
}

// nodeReports is the DeviceSlice of a node with so many local devices of cam.
func nodeReports(node string, devices int) *v1alpha1.DeviceSlice {
	s := &v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-0"}}
	s.Spec.NodeName = node
	for i := range devices {
		id := fmt.Sprint("dev", i)
		s.Spec.Devices = append(s.Spec.Devices, v1alpha1.Device{
			ID: id, Hash: slot.InstanceHash(id, false, node, slot.LongHash),
			Configuration: v1alpha1.ConfigurationReference{Namespace: "default", Name: "cam"},
			Properties:    map[string]string{"MODEL": "m", "SERIAL": id, "PORT": "1", "BUS": "2", "VENDOR": "v"}})
	}
	return s
}

func camWithLongHashes(held ...string) *akriv0.Configuration {
	c := draConfiguration("cam", held...)
	c.Spec.InstanceNameDigits = slot.LongHash
	return c
}

// Writes follow what changes: a device that joins changes its node's slice alone.
func TestWritesWhatChanges(t *testing.T) {
	const nodes = 300
	r := newRig(t)
	r.inv.SetConfiguration(camWithLongHashes())
	for i := range nodes {
		r.inv.SetSlice(nodeReports(fmt.Sprint("node-", i), 10))
	}
	r.run()
	r.eventually("a slice a node", func() bool { return len(r.written()) == nodes })
	r.forget()
	r.add(r.inv.SetSlice(nodeReports("node-7", 11)))
	r.eventually("one slice of one node", func() bool { return len(r.written()) > 0 })
	r.add(r.inv.SetConfiguration(camWithLongHashes(nodeReports("node-8", 1).Spec.Devices[0].Instance())))
	r.eventually("one slice of the other node", func() bool { return len(r.written()) > 1 })
	if got := strings.Join(r.written(), ", "); got != "update cam/node-7, update cam/node-8" {
		t.Errorf("written: %s", got)
	}
}

// Of devices that many nodes see, each with all their names, changes are not written as fast as can be.
func TestPacesWhatManyNodesSee(t *testing.T) {
	var names []string
	for i := range 500 {
		names = append(names, fmt.Sprintf("node-%03d.example.com", i))
	}
	many := &published{Nodes: nodesWithHostnames(names, func(node string) string { return node })}
	pause := pauseAfter(poolOf(map[string]*published{"cam-8120fe": many}))
	if pause < 8*time.Millisecond || pause > 20*time.Millisecond { // some 10 kB
		t.Errorf("a device that 500 nodes see has a pause of %s", pause)
	}
	local := &published{Device: resourceapi.Device{NodeName: new("a")}}
	if pause := pauseAfter(poolOf(map[string]*published{"cam-8120fe": local})); pause > 0 {
		t.Errorf("a device of one node has a pause of %s", pause)
	}
	r := newRig(t)
	q := r.Publisher.queue
	q.pause = pause
	q.ShutDown()
	before := r.clock.Waiters()
	got := make(chan bool)
	go func() { _, shutdown := q.Get(); got <- shutdown }()
	await.That(t, "it to wait", func() bool { return r.clock.Waiters() > before })
	r.clock.Step(pause)
	if !await.Next(t, "the end of the pause", got) {
		t.Error("there is a pool")
	}
}

// A device that has no Instance, as those beyond spec.maxInstances, is published once it has one, and stays
// when somebody deletes that.
func TestPublishesInstancesAlone(t *testing.T) {
	r := newRig(t)
	r.inv.SetConfiguration(camWithLongHashes())
	reports := nodeReports("a", 2)
	second := types.NamespacedName{Namespace: "default", Name: reports.Spec.Devices[1].Instance()}
	exists := func(is bool) {
		r.mu.Lock()
		r.lacking = map[string]bool{second.String(): !is}
		r.mu.Unlock()
		r.add(inventory.Change{Brokers: []types.NamespacedName{second}})
	}
	published := func(devices int) func() bool {
		return func() bool { r.mu.Lock(); defer r.mu.Unlock(); return r.devices == devices }
	}
	exists(false)
	r.inv.SetSlice(reports)
	r.run()
	r.eventually("one device to be published", published(1))
	exists(true)
	r.eventually("both to be", published(2))
	exists(false)
	r.add(r.inv.SetSlice(nodeReports("a", 3)))
	r.eventually("all to be", published(3))
}

// When the last Configuration has slots again all slices go, and nothing is watched any more.
func TestCleansUp(t *testing.T) {
	r := newRig(t)
	r.inv.SetConfiguration(camWithLongHashes())
	r.inv.SetSlice(nodeReports("a", 1))
	r.run()
	r.eventually("it to be published", func() bool { return len(r.written()) == 1 })
	c := camWithLongHashes()
	c.Generation, c.Spec.Allocator = 2, akriv0.AllocatorSlots
	r.add(r.inv.SetConfiguration(c))
	r.eventually("it to be deleted", func() bool { return len(r.written()) == 2 && r.written()[1] == "delete" })
}

// Without a Configuration for DRA there is one request: whether an earlier process left slices.
func TestDoesNothingWithoutDRA(t *testing.T) {
	r := newRig(t)
	c := camWithLongHashes()
	c.Spec.Allocator, c.Status.Allocator = akriv0.AllocatorSlots, nil
	r.inv.SetConfiguration(c)
	r.inv.SetSlice(nodeReports("a", 1))
	r.run()
	r.eventually("it to have looked", func() bool { return len(r.api.Actions()) > 0 })
	r.add(r.inv.SetSlice(nodeReports("a", 2)))
	r.eventually("the change to be seen", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return r.queue.Len() == 0 })
	if all := r.api.Actions(); len(all) != 1 || all[0].GetVerb() != "list" {
		t.Errorf("requests: %v", all)
	}
}

// An earlier process may have left slices of a Configuration that is gone.
func TestCleansUpAfterAnother(t *testing.T) {
	old := &resourceapi.ResourceSlice{}
	old.Name, old.ResourceVersion = "00000-slots.kubeslot.io-x", "1"
	old.Spec = resourceapi.ResourceSliceSpec{Driver: v1alpha1.DRADriver, Pool: resourceapi.ResourcePool{Name: "cam/a"}}
	r := newRig(t, old)
	r.run()
	r.eventually("it to be deleted", func() bool { return len(r.written()) == 1 && r.written()[0] == "delete" })
}

// What the API server refuses is a problem of the Configuration, until it takes it.
func TestProblemOfPublishing(t *testing.T) {
	for _, refuse := range []error{
		apierrors.NewInvalid(resourceapi.SchemeGroupVersion.WithKind("ResourceSlice").GroupKind(), "x", nil),
		apierrors.NewForbidden(resourceapi.Resource("resourceslices"), "x", errors.New("a role lacks it")),
	} {
		problemOfPublishing(t, refuse)
	}
}

func problemOfPublishing(t *testing.T, refuse error) {
	t.Helper()
	r := newRig(t)
	r.refuse = refuse
	r.inv.SetConfiguration(camWithLongHashes())
	r.inv.SetSlice(nodeReports("a", 1))
	r.run()
	r.eventually("the problem to be known", func() bool { return strings.Contains(r.Problem("cam"), "of pool cam/a") })
	r.eventually("it to be said", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return len(r.changed) > 0 })
	r.mu.Lock()
	changed := slices.Clone(r.changed)
	r.refuse = nil
	r.mu.Unlock()
	if !slices.Equal(changed, []string{"cam"}) {
		t.Errorf("changed: %v", changed)
	}
	r.eventually("the problem to be gone", func() bool { return r.Problem("cam") == "" })
}

// What the API server drops of a slice is not written again, and is a problem until the pool is another.
func TestDroppedFields(t *testing.T) {
	r := newRig(t)
	drop := true
	r.api.PrependReactor("*", "resourceslices", func(action clienttesting.Action) (bool, runtime.Object, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if create, writes := action.(clienttesting.CreateAction); writes && drop { // and updates
			for i := range create.GetObject().(*resourceapi.ResourceSlice).Spec.Devices {
				create.GetObject().(*resourceapi.ResourceSlice).Spec.Devices[i].AllowMultipleAllocations = nil
			}
		}
		return false, nil, nil
	})
	r.inv.SetConfiguration(camWithLongHashes())
	r.inv.SetSlice(nodeReports("a", 1))
	r.run()
	r.eventually("the problem to be known", func() bool { return strings.Contains(r.Problem("cam"), "of pool cam/a") })
	began := r.clock.Now()
	r.eventually("the pool to be looked at again", func() bool { return r.clock.Since(began) > 10*syncDelay })
	if got := r.written(); len(got) != 1 || r.Problem("cam") == "" {
		t.Errorf("written: %q; problem %q", got, r.Problem("cam"))
	}
	r.mu.Lock()
	drop = false
	r.mu.Unlock()
	r.add(r.inv.SetSlice(nodeReports("a", 2)))
	r.eventually("the other pool to be written", func() bool { return len(r.written()) == 2 && r.Problem("cam") == "" })
}

// What a device that joins costs of 10 on each node.
func BenchmarkUpdate(b *testing.B) {
	for _, nodes := range []int{500, 5000} {
		b.Run(fmt.Sprint("nodes=", nodes), func(b *testing.B) {
			r := newRig(b)
			r.inv.SetConfiguration(camWithLongHashes())
			for i := range nodes {
				r.inv.SetSlice(nodeReports(fmt.Sprint("node-", i), 10))
			}
			began := time.Now()
			r.run()
			r.eventually("a slice a node", func() bool { return len(r.written()) == nodes })
			first := time.Since(began).Seconds()
			for devices := 11; b.Loop(); devices ^= 11 ^ 12 {
				r.forget()
				r.add(r.inv.SetSlice(nodeReports("node-7", devices)))
				r.eventually("it to be written", func() bool { return len(r.written()) == 1 })
			}
			b.ReportMetric(first, "s-to-publish-all")
		})
	}
}
