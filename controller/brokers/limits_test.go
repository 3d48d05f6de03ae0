package brokers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubeslot/kubeslot/controller/inventory"
	"github.com/kubeslot/kubeslot/controller/limits"
	"github.com/kubeslot/kubeslot/controller/naming"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// fleet is a rig with many devices, whose Instances are there.
type fleet struct {
	*rig
	instances  []*akriv0.Instance // the oldest first
	generation int64
}

// newFleet has each node report the devices, which are one and the same if they are shared.
func newFleet(t *testing.T, c *akriv0.Configuration, devices int, shared bool, nodes ...string) *fleet {
	t.Helper()
	const bySlice = 256
	f := &fleet{}
	var objects []client.Object
	found := inventory.New()
	made := map[string]bool{}
	for _, node := range nodes {
		found.SetNode(node, inventory.Node{UID: types.UID(node), Ready: true})
		var all []v1alpha1.Device
		for i := range devices {
			d := v1alpha1.Device{Configuration: v1alpha1.ConfigurationReference{Namespace: "default", Name: "cam"}, ID: fmt.Sprint("d", i), Shared: shared}
			d.Hash = slot.InstanceHash(d.ID, shared, node, slot.LongHash)
			all = append(all, d)
			if made[d.Instance()] {
				continue
			}
			made[d.Instance()] = true
			f.instances = append(f.instances, &akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: d.Instance(), UID: types.UID(d.Instance()),
				CreationTimestamp: metav1.NewTime(start.Add(time.Duration(len(made)) * time.Second))}, Spec: akriv0.InstanceSpec{ConfigurationName: "cam", Shared: shared}})
			objects = append(objects, f.instances[len(f.instances)-1])
		}
		for chunk := range slices.Chunk(all, bySlice) {
			found.SetSlice(&v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-" + chunk[0].ID}, Spec: v1alpha1.DeviceSliceSpec{NodeName: node, Devices: chunk}})
		}
	}
	f.rig = newRig(t, objects...)
	f.inv = found
	f.sets(c)
	f.restart()
	return f
}

func (f *fleet) restart() {
	f.rig.restart()
	f.Made = quick{f.Made, f.rig}
}

// sets has the Configuration be c.
func (f *fleet) sets(c *akriv0.Configuration) {
	f.generation++
	c.Spec.InstanceNameDigits, c.Generation = slot.LongHash, f.generation
	f.inv.SetConfiguration(c)
}

// quick reads pods and Jobs from the fake API server, which takes milliseconds for a list,
// only of Instances for which something was made.
type quick struct {
	client.Reader
	rig *rig
}

func (q quick) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	if instance, one := o.FieldSelector.RequiresExactMatch(naming.Instance); one && !q.rig.madeFor(instance) {
		return nil
	}
	return q.Reader.List(ctx, list, opts...)
}

func (f *fleet) look(i *akriv0.Instance) {
	f.Helper()
	if _, err := f.Reconcile(f.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(i)}); err != nil {
		f.Error(err)
	}
}

// lookAtAll looks at all Instances in turn, the newest first, and then at those that were
// woken.
func (f *fleet) lookAtAll() {
	f.Helper()
	for _, i := range slices.Backward(f.instances) {
		f.look(i)
	}
	f.lookAtWoken()
}

func (f *fleet) lookAtWoken() {
	f.Helper()
	for len(f.woken) > 0 {
		key := f.woken[0]
		f.woken = f.woken[1:]
		f.look(&akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})
	}
}

// has says which devices have brokers, in the order of their age.
func (f *fleet) has() string {
	f.Helper()
	of := map[string]int{}
	for _, pod := range f.pods() {
		of[pod.Labels[naming.Instance]]++
	}
	var words []string
	for i, instance := range f.instances {
		if n := of[instance.Name]; n > 0 {
			words = append(words, fmt.Sprint(i))
		}
	}
	return strings.Join(words, " ")
}

// gone has a device go, and the garbage collector delete its brokers.
func (f *fleet) gone(at int) {
	f.Helper()
	i := f.instances[at]
	if err := f.fake.Delete(f.Context(), i.DeepCopy()); err != nil {
		f.Fatal(err)
	}
	f.look(i)
	if len(f.woken) > 0 {
		f.Errorf("woken %v while the pod of Instance %d is there", f.woken, at)
	}
	for _, pod := range f.pods() {
		if pod.Labels[naming.Instance] == i.Name {
			if err := f.fake.Delete(f.Context(), &pod); err != nil {
				f.Fatal(err)
			}
		}
	}
	f.look(i)
	f.lookAtWoken()
}

func limited(perNode, total int32) *akriv0.Configuration {
	c := configuration(1, onePod)
	c.Spec.BrokerLimits = &akriv0.BrokerLimits{PerNode: perNode, Total: total}
	return c
}

// Brokers that exist stay, and those that wait are made when others have gone, the oldest
// Instance's first.
func TestBrokerLimits(t *testing.T) {
	f := newFleet(t, limited(2, 3), 6, false, "a")
	expect := func(what, has string, used, withheld int) {
		t.Helper()
		if s := f.sum(); f.has() != has || s.Limit.Used != used || s.Limit.Withheld != withheld {
			t.Errorf("%s: brokers of %s, %+v; want of %s, %d, %d withheld", what, f.has(), s.Limit, has, used, withheld)
		}
	}
	f.lookAtAll()
	expect("two on one node", "4 5", 2, 4)
	if s := f.sum(); s.Desired != 6 || s.Expected != 2 || s.Limit.FirstFull != "a" || s.Problem != nil || len(f.told()) > 0 {
		t.Errorf("%+v", s)
	}
	f.run(corev1.PodRunning)
	f.gone(5)
	expect("one has gone: the oldest waited longest", "0 4", 2, 3)
	f.sets(limited(4, 3))
	f.look(f.instances[3])
	f.lookAtWoken()
	expect("a higher limit of the node: up to the total", "0 1 4", 3, 2)
	if s := f.sum(); !s.Limit.TotalReached || s.Limit.FullNodes != 0 {
		t.Errorf("%+v", s)
	}
	f.sets(limited(1, 1))
	f.lookAtAll()
	expect("a lower limit: what exists stays", "0 1 4", 3, 2)
	f.restart()
	f.lookAtAll()
	expect("the controller was killed", "0 1 4", 3, 2)
	f.run(corev1.PodFailed)
	f.clock.SetTime(f.clock.Now().Add(time.Minute))
	for range 3 {
		f.lookAtAll()
	}
	expect("brokers that end have successors", "0 1 4", 3, 2)
	f.gone(4)
	expect("still beyond the lower limit", "0 1", 2, 2)
	f.sets(configuration(1, onePod))
	f.lookAtAll()
	expect("the default limit", "0 1 2 3", 4, 0)
	f.sets(configuration(1, ""))
	f.lookAtAll()
	f.lookAtAll()
	expect("no broker", "", 0, 0)
	f.inv.DeleteConfiguration("default", "cam")
	f.lookAtAll()
	if s := f.sum(); s != (Sum{}) {
		t.Errorf("its Configuration is gone: %+v", s)
	}
}

// A shared device's broker goes to a node that has room, though another comes first.
func TestBrokerLimitsOfSharedDevices(t *testing.T) {
	f := newFleet(t, limited(3, 100), 9, true, "a", "b", "c")
	f.lookAtAll()
	on := map[string]int{}
	for _, pod := range f.pods() {
		on[pod.Labels[naming.TargetNode]]++
	}
	if want := map[string]int{"a": 3, "b": 3, "c": 3}; !maps.Equal(on, want) || f.sum().Limit.Withheld != 0 {
		t.Errorf("brokers on %v, want %v; %+v", on, want, f.sum())
	}
}

// A node's stolen credential can have 10,000 Instances made. They have as many brokers as a node
// may have of one Configuration. docs/security.md has the number.
func TestBrokersOfAStolenNode(t *testing.T) {
	f := newFleet(t, configuration(1, onePod), akriv0.DefaultMaxInstances, false, "stolen")
	f.lookAtAll()
	if n := len(f.pods()); n != akriv0.DefaultBrokersPerNode {
		t.Errorf("%d brokers", n)
	}
	if got, want := f.sum().Limit, (limits.Sum{Used: 50, Withheld: 9950, FullNodes: 1, FirstFull: "stolen"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if len(f.writes) != akriv0.DefaultBrokersPerNode {
		t.Errorf("%d writes", len(f.writes))
	}
}

// A machine on the nodes' network can have 600 mDNS services, and more, which all nodes
// reach. docs/security.md has the numbers.
func TestBrokersOfTheNetwork(t *testing.T) {
	f := newFleet(t, configuration(2, onePod), 600, true, "a", "b")
	f.lookAtAll()
	on := map[string]int{}
	for _, pod := range f.pods() {
		on[pod.Labels[naming.TargetNode]]++
	}
	if want := map[string]int{"a": 50, "b": 50}; !maps.Equal(on, want) {
		t.Errorf("brokers on %v, want %v", on, want)
	}
	if s := f.sum().Limit; s.Used != 100 || s.Withheld != 1100 || s.FullNodes != 2 {
		t.Errorf("%+v", s)
	}
	if !testing.Short() {
		var nodes []string
		for i := range 30 {
			nodes = append(nodes, fmt.Sprint("n", i))
		}
		f = newFleet(t, configuration(2, onePod), 600, true, nodes...)
		f.lookAtAll()
		if n := len(f.pods()); n != akriv0.DefaultBrokersTotal {
			t.Errorf("on 30 nodes %d brokers", n)
		}
	}
}

// Workers that look at many Instances at once make as many brokers as there may be.
func TestBrokerLimitsOfManyWorkers(t *testing.T) {
	f := newFleet(t, limited(7, 11), 60, true, "a", "b")
	queue := make(chan *akriv0.Instance)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for i := range queue {
				f.look(i)
			}
		})
	}
	for range 3 {
		for _, i := range f.instances {
			queue <- i
		}
	}
	close(queue)
	workers.Wait()
	if n, s := len(f.pods()), f.sum().Limit; n != 11 || s.Used != 11 || s.Withheld != 49 {
		t.Errorf("%d brokers, %+v", n, s)
	}
}

// Brokers have the controller's PriorityClass unless their spec has one, and another class
// replaces none of them.
func TestPriorityClass(t *testing.T) {
	for name, tc := range map[string]struct{ of, spec, want string }{
		"none":      {"", onePod, ""},
		"default":   {"kubeslot-broker", onePod, "kubeslot-broker"},
		"its own":   {"kubeslot-broker", strings.Replace(onePod, "{", `{"priorityClassName":"mine",`, 1), "mine"},
		"a number":  {"kubeslot-broker", strings.Replace(onePod, "{", `{"priority":7,`, 1), ""},
		"of a Job":  {"kubeslot-broker", "", "kubeslot-broker"},
		"a Job's 0": {"", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := configuration(1, tc.spec)
			if tc.spec == "" {
				c = jobConfiguration(1, jobSpec)
			}
			f := newFacts(t, c, "a")
			f.priority = tc.of
			var spec *corev1.PodSpec
			if tc.spec != "" {
				pod, err := renderPod(f, "a", 0)
				if err != nil {
					t.Fatal(err)
				}
				spec = &pod.Spec
			} else {
				job, err := renderJob(f)
				if err != nil {
					t.Fatal(err)
				}
				spec = &job.Spec.Template.Spec
			}
			if spec.PriorityClassName != tc.want {
				t.Errorf("%q, want %q", spec.PriorityClassName, tc.want)
			}
		})
	}
	r := newRig(t, theInstance())
	r.inv.SetConfiguration(configuration(1, onePod))
	r.found("a")
	r.settle()
	r.restart()
	r.PriorityClass = "kubeslot-broker"
	if writes := r.settle(); len(writes) > 0 {
		t.Errorf("with another class: %q", writes)
	}
}
