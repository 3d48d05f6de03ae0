package brokers

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubeslot/kubeslot/controller/inventory"
	"github.com/kubeslot/kubeslot/controller/naming"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

const perNode = 50 // brokers; the default of brokerLimits

// large is a Reconciler with many Instances of one broker each, on a client that costs the same for any
// number of them, and a queue as the controller's. What is queued is worked on when the test says so.
type large struct {
	client.Client // nil: what is not implemented here is not called
	testing.TB
	r          *Reconciler
	inv        *inventory.Inventory
	instances  map[string]*akriv0.Instance
	pods       map[string]*corev1.Pod // by Instance
	queue      []string
	queued     map[string]bool
	reconciles int
	timers     int // Instances that are to be looked at again without an event
	// todo is what the scheduler and kubelets do, one thing at a time, when nothing is queued.
	todo     []func()
	kubelets bool // they work
	made     int
}

func newLarge(t testing.TB, brokers int) *large {
	f := &large{TB: t, inv: inventory.New(), kubelets: true,
		instances: map[string]*akriv0.Instance{}, pods: map[string]*corev1.Pod{}, queued: map[string]bool{}}
	f.start()
	for n := range brokers / perNode {
		node := fmt.Sprintf("node-%d", n)
		f.inv.SetNode(node, inventory.Node{UID: types.UID(node), Ready: true})
		s := &v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-0"}}
		s.Spec.NodeName = node
		for i := range perNode {
			id := fmt.Sprint("camera-", i)
			d := v1alpha1.Device{Configuration: v1alpha1.ConfigurationReference{Namespace: "default", Name: "cam"},
				ID: id, Hash: slot.InstanceHash(id, false, node, slot.LongHash)}
			s.Spec.Devices = append(s.Spec.Devices, d)
			name := d.Instance()
			f.instances[name] = &akriv0.Instance{Spec: akriv0.InstanceSpec{ConfigurationName: "cam"},
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
		}
		f.inv.SetSlice(s)
	}
	f.use("first")
	f.work()
	if len(f.pods) != brokers {
		t.Fatalf("%d pods, want %d", len(f.pods), brokers)
	}
	f.reconciles, f.timers = 0, 0
	return f
}

// start starts another controller, which has everything in its queue.
func (f *large) start() {
	f.r = New(Config{Client: f, Made: f, Live: f, Inventory: f.inv,
		Recorder: &events.FakeRecorder{}, Clock: clocktesting.NewFakePassiveClock(start),
		Changed: func(types.NamespacedName) {}, Wake: func(key types.NamespacedName) { f.add(key.Name) }})
	for name := range f.instances {
		f.add(name)
	}
}

// use has the Configuration ask for an image.
func (f *large) use(image string, changes ...func(*akriv0.ConfigurationSpec)) {
	c := configuration(1, `{"containers":[{"name":"b","image":"`+image+`"}]}`)
	c.Generation = int64(f.made + f.reconciles + 1) // more than before
	c.Spec.InstanceNameDigits = slot.LongHash
	c.Spec.BrokerLimits = &akriv0.BrokerLimits{PerNode: perNode, Total: 100000}
	for _, change := range changes {
		change(&c.Spec)
	}
	for _, key := range f.inv.SetConfiguration(c).Brokers {
		f.add(key.Name)
	}
}

func (f *large) add(instance string) {
	if !f.queued[instance] {
		f.queued[instance] = true
		f.queue = append(f.queue, instance)
	}
}

// work reconciles what is queued, and has the kubelets work, until there is nothing to do.
func (f *large) work() {
	for {
		switch {
		case len(f.queue) > 0:
			name := f.queue[0]
			f.queue = f.queue[1:]
			delete(f.queued, name)
			f.reconciles++
			key := types.NamespacedName{Namespace: "default", Name: name}
			result, err := f.r.Reconcile(f.Context(), reconcile.Request{NamespacedName: key})
			if err != nil {
				f.Fatal(err)
			}
			if result.RequeueAfter > 0 {
				f.timers++
			}
		case f.kubelets && len(f.todo) > 0:
			do := f.todo[0]
			f.todo = f.todo[1:]
			do()
		default:
			return
		}
	}
}

// images counts the pods by their image.
func (f *large) images() map[string]int {
	count := map[string]int{}
	for _, pod := range f.pods {
		count[pod.Spec.Containers[0].Image]++
	}
	return count
}

func (f *large) Get(_ context.Context, key types.NamespacedName, into client.Object, _ ...client.GetOption) error {
	if i, ok := into.(*akriv0.Instance); ok && f.instances[key.Name] != nil {
		f.instances[key.Name].DeepCopyInto(i)
		return nil
	}
	return apierrors.NewNotFound(akriv0.Resource("instances"), key.Name)
}

func (f *large) List(_ context.Context, into client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	list, ok := into.(*corev1.PodList)
	if !ok {
		return nil // there are no Jobs
	}
	if instance, one := o.FieldSelector.RequiresExactMatch(naming.Instance); one {
		if pod := f.pods[instance]; pod != nil {
			list.Items = append(list.Items, *pod)
		}
		return nil
	}
	for _, pod := range f.pods {
		list.Items = append(list.Items, *pod)
	}
	return nil
}

func (f *large) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	pod := o.(*corev1.Pod).DeepCopy()
	f.made++
	pod.UID = types.UID(fmt.Sprint("pod-", f.made))
	f.pods[pod.Labels[naming.Instance]] = pod
	f.add(pod.Labels[naming.Instance])
	f.todo = append(f.todo, func() { // bound
		pod.Spec.NodeName = pod.Labels[naming.TargetNode]
		f.add(pod.Labels[naming.Instance])
		f.todo = append(f.todo, func() { // Ready
			pod.Status.Phase = corev1.PodRunning
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			f.add(pod.Labels[naming.Instance])
		})
	})
	return nil
}

func (f *large) Delete(_ context.Context, o client.Object, _ ...client.DeleteOption) error {
	instance := o.GetLabels()[naming.Instance]
	f.pods[instance].DeletionTimestamp = &metav1.Time{Time: start}
	f.add(instance)
	f.todo = append(f.todo, func() { // gone
		delete(f.pods, instance)
		f.add(instance)
	})
	return nil
}

// going counts the pods that are being deleted.
func (f *large) going() (n int) {
	for _, pod := range f.pods {
		if pod.DeletionTimestamp != nil {
			n++
		}
	}
	return n
}

// perBroker is how often an Instance is reconciled whose broker is replaced: for the spec, for its
// turn, and for each of its pods' five events; the last two of its former broker's and the first of its
// successor's may be one.
const perBroker = 7

// Who waits for its turn is woken once, when it has it, however many wait. So a roll-out takes as long as
// the kubelets do.
func TestRolloutWakesWhoHasItsTurn(t *testing.T) {
	for _, brokers := range []int{200, 2000} {
		f := newLarge(t, brokers)
		f.kubelets = false
		f.use("second")
		if f.work(); f.reconciles > brokers+perNode || f.going() != perNode || f.timers > 0 {
			t.Errorf("%d brokers, the first node's are going: %d reconciles, %d going, %d timers",
				brokers, f.reconciles, f.going(), f.timers)
		}
		f.kubelets = true
		f.work()
		if n := f.images()["second"]; n != brokers || f.reconciles > perBroker*brokers || f.timers > 2*brokers {
			t.Errorf("%d brokers: %d have the second image after %d reconciles and %d timers, want %d each at most",
				brokers, n, f.reconciles, f.timers, perBroker)
		}
	}
}

// maxUnavailable is on how many nodes brokers are replaced at a time, and counts when it is changed. While
// a roll-out is paused no broker is replaced; those that are missing are of the new spec.
func TestMaxUnavailableAndPaused(t *testing.T) {
	f := newLarge(t, 10*perNode)
	update := func(maxUnavailable string, paused bool) func(*akriv0.ConfigurationSpec) {
		value := intstr.Parse(maxUnavailable)
		return func(s *akriv0.ConfigurationSpec) {
			s.BrokerUpdate = &akriv0.BrokerUpdate{MaxUnavailable: &value, Paused: paused}
		}
	}
	expect := func(what string, going, second int) {
		t.Helper()
		if f.work(); f.going() != going*perNode || f.images()["second"] != second*perNode {
			t.Errorf("%s: %d are going, %d have the second image, want %d and %d nodes'",
				what, f.going(), f.images()["second"], going, second)
		}
		if s := f.r.Sum(theConfiguration); s.Outdated+s.Updated != 10*perNode || s.Updated != second*perNode {
			t.Errorf("%s: %d are outdated, %d updated", what, s.Outdated, s.Updated)
		}
	}
	f.kubelets = false
	f.use("second", update("39%", true))
	expect("paused", 0, 0)
	f.use("second", update("39%", false))
	expect("39% of 10 nodes", 3, 0)
	f.use("second", update("5", false))
	expect("5 nodes", 5, 0)
	f.use("second", update("5", true))
	f.kubelets = true
	expect("paused while 5 nodes are replaced", 0, 5)
	f.use("second", update("0", false)) // as without it; the status says that it is wrong
	f.kubelets = false
	expect("a wrong number", 1, 5)
	f.kubelets = true
	expect("all", 0, 10)
}

// A controller that starts looks at each Instance once, and writes nothing where all is as it should be.
func TestStartWritesNothing(t *testing.T) {
	f := newLarge(t, 10*perNode)
	made := f.made
	f.start()
	f.work()
	if f.made != made || f.going() > 0 || f.reconciles != len(f.instances) || f.timers > 0 {
		t.Errorf("%d made, %d going, %d reconciles of %d Instances, %d timers",
			f.made-made, f.going(), f.reconciles, len(f.instances), f.timers)
	}
}

// The start with 50,000 Instances whose brokers are there: what the controller itself takes for them.
func BenchmarkStart(b *testing.B) {
	f := newLarge(b, 50_000)
	for b.Loop() {
		f.start()
		f.work()
	}
}

// A roll-out of 10,000 brokers whose pods are Ready at once: what the controller itself takes.
func BenchmarkRollout(b *testing.B) {
	for range b.N {
		b.StopTimer()
		f := newLarge(b, 10_000)
		f.use("second")
		b.StartTimer()
		f.work()
		b.ReportMetric(float64(f.reconciles)/10_000, "reconciles/broker")
	}
}
