package configurations

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubeslot/kubeslot/controller/brokers"
	"github.com/kubeslot/kubeslot/controller/inventory"
	"github.com/kubeslot/kubeslot/controller/limits"
	"github.com/kubeslot/kubeslot/controller/validation"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

var (
	start = time.Unix(1_000_000_000, 0).UTC()
	key   = types.NamespacedName{Namespace: "default", Name: "cam"}
)

func configuration(broker bool) *akriv0.Configuration {
	c := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cam", UID: "u", Generation: 3, CreationTimestamp: metav1.NewTime(start.Add(-time.Hour))},
		Spec: akriv0.ConfigurationSpec{Capacity: 2}}
	if broker {
		c.Spec.BrokerSpec = &akriv0.BrokerSpec{BrokerPodSpec: &runtime.RawExtension{Raw: []byte(`{}`)}}
	}
	return c
}

func TestStatus(t *testing.T) {
	older := configuration(false)
	older.Namespace = "other"
	base := configuration(false)
	base.Name = "ca"
	type problem = akriv0.ConfigurationProblem
	for name, tc := range map[string]struct {
		broker     bool
		paused     bool // spec.brokerUpdate
		service    bool
		disabled   Disabled
		invalid    string
		dra        []string // what is not published
		properties map[string]string
		summary    inventory.Summary
		instances  limits.Sum
		sum        brokers.Sum
		conditions []string // type=status reason: message
		problems   []problem
	}{
		"nothing yet": {
			summary: inventory.Summary{},
			conditions: []string{
				"Ready=Unknown NothingReported: no node reports",
				"Discovering=Unknown NothingReported: no node reports",
			},
		},
		"a selector that selects no node": {summary: inventory.Summary{Nowhere: true},
			conditions: []string{"Ready=Unknown NothingReported: spec.handlerNodeSelector selects no node", "Discovering=Unknown NothingReported: spec.handlerNodeSelector selects no node"}},
		"devices": {summary: inventory.Summary{Instances: 3, Nodes: 1, Slots: 6, Held: 2},
			conditions: []string{"Ready=True DevicesFound: 3 devices found on 1 node", "Discovering=True HandlerWorks: 3 devices found on 1 node"}},
		"brokers are disabled": {broker: true, service: true, disabled: Disabled{Brokers: true, Services: true},
			summary: inventory.Summary{Instances: 1, Nodes: 1},
			conditions: []string{
				"Ready=False BrokersDisabled: the controller runs no brokers: enable them",
				"Discovering=True HandlerWorks",
				"BrokersReady=False BrokersDisabled: the controller runs no brokers",
			},
			problems: []problem{{Reason: "BrokersDisabled", Message: noBrokers}}},
		"services are disabled": {broker: true, service: true, disabled: Disabled{Services: true},
			summary: inventory.Summary{Instances: 1, Nodes: 1},
			sum:     brokers.Sum{Instances: 1, Desired: 1, Ready: 1},
			conditions: []string{
				"Ready=False ServicesDisabled: the controller makes no Services: enable them",
				"Discovering=True HandlerWorks",
				"BrokersReady=True AllReady",
			},
			problems: []problem{{Reason: "ServicesDisabled", Message: noServices}}},
		"what is disabled is not asked for": {disabled: Disabled{Brokers: true, Services: true},
			summary:    inventory.Summary{Instances: 1, Nodes: 1},
			conditions: []string{"Ready=True DevicesFound", "Discovering=True HandlerWorks"}},
		"one node fails": {
			summary: inventory.Summary{
				Instances: 1,
				Nodes:     1,
				Problems:  []inventory.NodeProblem{{Node: "b", Reason: "UnknownHandler", Message: "no handler"}},
			},
			conditions: []string{"Ready=False UnknownHandler: node b: no handler", "Discovering=False UnknownHandler: node b: no handler"}, problems: []problem{{Node: "b", Reason: "UnknownHandler", Message: "no handler"}}},
		"nodes without the handler, which runs elsewhere": {
			summary:    inventory.Summary{Instances: 3, Nodes: 1, WithoutHandler: 2},
			conditions: []string{"Ready=True DevicesFound: 3 devices found on 1 node; 2 nodes without the handler", "Discovering=True HandlerWorks: 3 devices found on 1 node; 2 nodes without the handler"}},
		"properties that are withheld": {
			summary:    inventory.Summary{Instances: 1, Nodes: 1, Withheld: []string{"RANGE", "SONAR"}},
			conditions: []string{"Ready=True DevicesFound: 1 device found on 1 node", "Discovering=True HandlerWorks: 1 device found on 1 node"},
			problems: []problem{{Reason: "PropertiesWithheld", Message: "no container gets these properties of its devices as variables of their names, since spec.propertyPrefixes does not let it: RANGE, SONAR. " +
				"Containers have them as <NAME>_<HASH> and in AKRI_DEVICES"}}},
		"a reason that is none": {
			summary: inventory.Summary{
				Problems: []inventory.NodeProblem{{Node: "b", Reason: "no such", Message: "m"}},
			},
			conditions: []string{"Ready=False NodeProblem: node b: m", "Discovering=False NodeProblem: node b: m"}, problems: []problem{{Node: "b", Reason: "no such", Message: "m"}}},
		"nodes fail alike, and one twice": {summary: inventory.Summary{Problems: []inventory.NodeProblem{
			{Node: "a", Reason: "R", Message: "m"}, {Node: "b", Reason: "R", Message: "m"}, {Node: "b", Reason: "S", Message: "n"}, {Node: "c", Reason: "R", Message: "m"}}},
			conditions: []string{"Ready=False R: node a: m", "Discovering=False R: 3 nodes have problems; a says: m"},
			problems:   []problem{{Node: "a", Reason: "R", Message: "m", Count: 3}, {Node: "b", Reason: "S", Message: "n"}}},
		"another has the name": {
			summary: inventory.Summary{TakenBy: older},
			conditions: []string{
				"Ready=False NameTaken: Configuration other/cam is older",
				"Discovering=False NameTaken: Configuration other/cam is older",
			},
			problems: []problem{{Reason: "NameTaken", Message: takenBy("cam", older)}}},
		"its name is that of an Instance": {summary: inventory.Summary{TakenBy: base},
			conditions: []string{"Ready=False NameTaken: Configuration default/ca is older, and akri.sh/cam names an Instance that it has or may have: give this one another name", "Discovering=False NameTaken: Configuration default/ca"},
			problems:   []problem{{Reason: "NameTaken", Message: takenBy("cam", base)}}},
		"wrong in itself, and on a node": {
			invalid: "spec.x: unknown field",
			summary: inventory.Summary{
				Instances: 1,
				Nodes:     1,
				Problems:  []inventory.NodeProblem{{Node: "b", Reason: "R", Message: "m"}},
			},
			conditions: []string{"Ready=False InvalidConfiguration: spec.x: unknown field", "Discovering=False R: node b: m"}, problems: []problem{{Reason: "InvalidConfiguration", Message: "spec.x: unknown field"}, {Node: "b", Reason: "R", Message: "m"}}},
		"properties that are no variables": {
			properties: map[string]string{"SITE": "yard", "FORMAT": "JPEG"},
			summary:    inventory.Summary{Instances: 1, Nodes: 1},
			conditions: []string{"Ready=True DevicesFound: 1 device found on 1 node", "Discovering=True"},
			problems: []problem{{Reason: "PropertiesWithheld", Message: "no container gets these brokerProperties as variables of their names, since spec.propertyPrefixes does not let it: SITE. " +
				"Containers have them as <NAME>_<HASH> and in AKRI_DEVICES. To have them by their names, in spec.propertyPrefixes set [" + strings.Join(akriv0.DefaultPropertyPrefixes, ", ") +
				", SITE]; a list replaces the defaults, so it names those that are used here, too"}}},
		"devices that are not published": {dra: []string{"why"},
			summary:    inventory.Summary{Instances: 1, Nodes: 1},
			conditions: []string{"Ready=False DevicesNotPublished: why", "Discovering=True"},
			problems:   []problem{{Reason: "DevicesNotPublished", Message: "why"}}},
		"properties that brokers have": {
			broker:     true,
			properties: map[string]string{"SITE": "yard"},
			summary:    inventory.Summary{Instances: 1, Nodes: 1},
			sum:        brokers.Sum{Instances: 1, Desired: 2, Ready: 2},
			conditions: []string{"Ready=True DevicesFound", "Discovering=True", "BrokersReady=True"}},
		"reports left out": {summary: inventory.Summary{Instances: 1, Nodes: 1, LeftOut: 2, FirstLeftOut: "why"},
			conditions: []string{"Ready=False ReportsLeftOut: 2 reports of devices left out", "Discovering=True"}, problems: []problem{{Reason: "ReportsLeftOut", Message: "2 reports of devices left out; the first: why"}}},
		"brokers": {
			broker:     true,
			summary:    inventory.Summary{Instances: 1, Nodes: 1},
			sum:        brokers.Sum{Instances: 1, Desired: 2, Ready: 2},
			conditions: []string{"Ready=True DevicesFound", "Discovering=True", "BrokersReady=True AllReady: 2 of 2 brokers are ready"}},
		"no Instance": {broker: true, summary: inventory.Summary{},
			conditions: []string{"Ready=Unknown NothingReported", "Discovering=Unknown", "BrokersReady=Unknown NothingToRun"}},
		"brokers roll out": {
			broker:     true,
			summary:    inventory.Summary{Instances: 1, Nodes: 1},
			sum:        brokers.Sum{Instances: 1, Desired: 2, Ready: 2, Outdated: 1},
			conditions: []string{"Ready=False RollingOut", "Discovering=True", "BrokersReady=False RollingOut: 2 of 2 brokers are ready; 1 are of an earlier spec"}},
		"a roll-out is paused": {broker: true, paused: true,
			summary: inventory.Summary{Instances: 1, Nodes: 1},
			sum:     brokers.Sum{Instances: 1, Desired: 2, Ready: 2, Updated: 1, Outdated: 1},
			conditions: []string{"Ready=False RolloutPaused", "Discovering=True",
				"BrokersReady=False RolloutPaused: 2 of 2 brokers are ready; 1 are of an earlier spec, and stay"}},
		"paused, and nothing to roll out": {broker: true, paused: true,
			summary:    inventory.Summary{Instances: 1, Nodes: 1},
			sum:        brokers.Sum{Instances: 1, Desired: 2, Ready: 2, Updated: 2},
			conditions: []string{"Ready=True DevicesFound", "Discovering=True", "BrokersReady=True AllReady"}},
		"brokers start": {
			broker:     true,
			summary:    inventory.Summary{Instances: 1, Nodes: 1},
			sum:        brokers.Sum{Instances: 1, Desired: 1},
			conditions: []string{"Ready=False BrokersNotReady", "Discovering=True", "BrokersReady=False BrokersNotReady: 0 of 1 brokers are ready"}},
		"a broker waits for a node": {broker: true, summary: inventory.Summary{Instances: 1, Nodes: 1},
			sum: brokers.Sum{Instances: 1, Desired: 1, NotReady: brokers.NotReady{Pod: "p", Why: "it has no node: Unschedulable"}},
			conditions: []string{"Ready=False BrokersNotReady: 0 of 1 brokers are ready; pod p", "Discovering=True",
				"BrokersReady=False BrokersNotReady: 0 of 1 brokers are ready; pod p: it has no node: Unschedulable; see all with kubectl get pods -n default -l akri.sh/configuration=cam"}},
		"a broker fails": {broker: true, summary: inventory.Summary{Instances: 1, Nodes: 1},
			sum: brokers.Sum{Instances: 1, Desired: 2, Ready: 1, NotReady: brokers.NotReady{Pod: "p", Why: "ImagePullBackOff: container b", Failing: true}},
			conditions: []string{"Ready=False BrokersNotReady: 1 of 2 brokers are ready; pod p", "Discovering=True",
				"BrokersReady=False BrokersNotReady: 1 of 2 brokers are ready; pod p: ImagePullBackOff: container b; see all"},
			problems: []problem{{Reason: "BrokersNotReady", Message: "1 of 2 brokers are ready; pod p: ImagePullBackOff: container b; see all with kubectl get pods -n default -l akri.sh/configuration=cam"}}},
		"a broker of the next spec fails": {broker: true, summary: inventory.Summary{Instances: 1, Nodes: 1},
			sum: brokers.Sum{Instances: 1, Desired: 2, Ready: 1, Outdated: 1, NotReady: brokers.NotReady{Pod: "p", Why: "w", Failing: true}},
			conditions: []string{"Ready=False BrokersNotReady", "Discovering=True",
				"BrokersReady=False RollingOut: 1 of 2 brokers are ready; 1 are of an earlier spec; pod p: w; see all"},
			problems: []problem{{Reason: "BrokersNotReady", Message: "1 of 2 brokers are ready; 1 are of an earlier spec; pod p: w; see all with kubectl get pods -n default -l akri.sh/configuration=cam"}}},
		"one that is not needed fails": {broker: true, summary: inventory.Summary{Instances: 1, Nodes: 1},
			sum:        brokers.Sum{Instances: 1, Desired: 1, Ready: 1, NotReady: brokers.NotReady{Pod: "p", Why: "w", Failing: true}},
			conditions: []string{"Ready=True", "Discovering=True", "BrokersReady=True AllReady: 1 of 1 brokers are ready"}},
		"brokers with problems": {broker: true, summary: inventory.Summary{Instances: 2, Nodes: 1},
			sum:        brokers.Sum{Instances: 2, Desired: 2, Problem: &brokers.Problem{Reason: "Why", Message: "m"}, FirstWith: "cam-1", With: 2},
			conditions: []string{"Ready=False Why: 2 Instances, the first is cam-1: m", "Discovering=True", "BrokersReady=False Why: 0 of 2 brokers are ready; 2 Instances, the first is cam-1: m"},
			problems:   []problem{{Reason: "Why", Message: "2 Instances, the first is cam-1: m"}}},
		"more devices than Instances": {
			summary:    inventory.Summary{Instances: 12345, Nodes: 1},
			instances:  limits.Sum{Used: 10000, Withheld: 2345},
			conditions: []string{"Ready=False InstanceLimit: 12345 devices, 10000 Instances", "Discovering=True"},
			problems: []problem{{Reason: "InstanceLimit", Message: "12345 devices, 10000 Instances: spec.maxInstances is 10000; the others have no Instance and no broker, " +
				"and pods get their slots all the same. Raise it, or have the discovery handler find fewer"}}},
		"more brokers than in total": {broker: true, summary: inventory.Summary{Instances: 1240, Nodes: 30},
			sum:        brokers.Sum{Instances: 1240, Desired: 1240, Ready: 990, Limit: limits.Sum{Used: 1000, Withheld: 240, TotalReached: true, FullNodes: 1, FirstFull: "a"}},
			conditions: []string{"Ready=False BrokerLimit: 1000 of 1240 broker pods", "Discovering=True", "BrokersReady=False BrokerLimit: 990 of 1240 brokers are ready; 1000 of 1240 broker pods: spec.brokerLimits.total is 1000"},
			problems: []problem{{Reason: "BrokerLimit", Message: "1000 of 1240 broker pods: spec.brokerLimits.total is 1000; the others wait. " +
				"Raise it, or have the discovery handler find fewer devices"}}},
		"more Jobs than on the nodes": {broker: true, summary: inventory.Summary{Instances: 120, Nodes: 2},
			sum:        brokers.Sum{Instances: 120, Desired: 120, Ready: 100, Limit: limits.Sum{Used: 100, Withheld: 20, NodesWithoutRoom: 2}},
			conditions: []string{"Ready=False BrokerLimit", "Discovering=True", "BrokersReady=False BrokerLimit"},
			problems: []problem{{Reason: "BrokerLimit", Message: "100 of 120 broker pods: spec.brokerLimits.perNode is 50, and there is no room for a Job on 2 nodes that can reach its device; " +
				"the others wait. Raise it, or have the discovery handler find fewer devices"}}},
		"more brokers than on the nodes": {broker: true, summary: inventory.Summary{Instances: 120, Nodes: 2},
			sum:        brokers.Sum{Instances: 120, Desired: 120, Ready: 100, Limit: limits.Sum{Used: 100, Withheld: 20, FullNodes: 2, FirstFull: "a"}},
			conditions: []string{"Ready=False BrokerLimit", "Discovering=True", "BrokersReady=False BrokerLimit"},
			problems: []problem{{Reason: "BrokerLimit", Message: "100 of 120 broker pods: spec.brokerLimits.perNode is 50, and 2 nodes have so many or more, the first is a; " +
				"the others wait. Raise it, or have the discovery handler find fewer devices"}}},
	} {
		t.Run(name, func(t *testing.T) {
			c := configuration(tc.broker)
			if tc.service {
				c.Spec.ConfigurationServiceSpec = &runtime.RawExtension{Raw: []byte(`{}`)}
			}
			c.Spec.BrokerProperties = tc.properties
			if tc.paused {
				c.Spec.BrokerUpdate = &akriv0.BrokerUpdate{Paused: true}
			}
			st := status(c, tc.disabled, tc.invalid, tc.dra, tc.summary, tc.instances, tc.sum, start)
			if st.ObservedGeneration != 3 || int(st.Instances) != tc.summary.Instances || int(st.Slots.Held) != tc.summary.Held || (st.Brokers != nil) != tc.broker {
				t.Errorf("%+v", st)
			}
			if st.Brokers != nil && int(st.Brokers.Updated) != tc.sum.Updated {
				t.Errorf("%d brokers are updated, want %d", st.Brokers.Updated, tc.sum.Updated)
			}
			if len(st.Conditions) != len(tc.conditions) {
				t.Fatalf("conditions %+v, want %q", st.Conditions, tc.conditions)
			}
			for i, c := range st.Conditions {
				if got := fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message); !strings.HasPrefix(got, tc.conditions[i]) || c.ObservedGeneration != 3 {
					t.Errorf("condition %q, want %q", got, tc.conditions[i])
				}
			}
			if d := cmp.Diff(tc.problems, st.Problems); d != "" {
				t.Errorf("problems (-want +got):\n%s", d)
			}
		})
	}
}

func TestStatusIsBounded(t *testing.T) {
	var many []inventory.NodeProblem
	for i := range 40 {
		many = append(many, inventory.NodeProblem{Node: fmt.Sprintf("n%02d", i), Reason: "R", Message: fmt.Sprint(i, strings.Repeat("é", 2000))})
	}
	st := status(configuration(false), Disabled{}, "", nil,
		inventory.Summary{Problems: many}, limits.Sum{}, brokers.Sum{}, start)
	if n := len(st.Problems); n != akriv0.MaxConfigurationProblems || !strings.Contains(st.Problems[n-1].Message, "25 more") || st.Problems[0].Node != "n00" {
		t.Errorf("%d problems, the last %q", n, st.Problems[n-1].Message)
	}
	if n := len([]rune(st.Problems[0].Message)); n != maxMessageLength {
		t.Errorf("a message of %d characters", n)
	}
}

// A condition keeps the time since when it holds.
func TestTransitionTimes(t *testing.T) {
	c := configuration(false)
	found := inventory.Summary{Instances: 1, Nodes: 1}
	c.Status = status(c, Disabled{}, "", nil, found, limits.Sum{}, brokers.Sum{}, start)
	later := status(c, Disabled{}, "", nil, inventory.Summary{Instances: 2, Nodes: 1},
		limits.Sum{}, brokers.Sum{}, start.Add(time.Minute))
	if !later.Conditions[0].LastTransitionTime.Time.Equal(start) || later.Conditions[0].Message == c.Status.Conditions[0].Message {
		t.Errorf("still true: %+v", later.Conditions[0])
	}
	c.Status = later
	if failed := status(c, Disabled{}, "", nil, inventory.Summary{}, limits.Sum{}, brokers.Sum{},
		start.Add(time.Hour)); !failed.Conditions[0].LastTransitionTime.Time.Equal(start.Add(time.Hour)) ||
		later.Conditions[0].Status != metav1.ConditionTrue {
		t.Errorf("no longer true: %+v, before %+v", failed.Conditions[0], later.Conditions[0])
	}
}

// rig is a Reconciler before a fake API server.
type rig struct {
	*testing.T
	*Reconciler
	inv    *inventory.Inventory
	clock  *clocktesting.FakePassiveClock
	api    client.WithWatch
	writes []time.Time
	fail   error // of the next write
	reads  int   // of the API server
	sum    brokers.Sum
	found  validation.Findings
	checks int                   // calls of Check
	stale  *akriv0.Configuration // what the cache still has
}

func newRig(t *testing.T, c *akriv0.Configuration) *rig {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{akriv0.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	r := &rig{T: t, inv: inventory.New(), clock: clocktesting.NewFakePassiveClock(start)}
	write := func(do func() error) error {
		r.writes = append(r.writes, r.clock.Now())
		if err := r.fail; err != nil {
			r.fail = nil
			return err
		}
		return do()
	}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&akriv0.Configuration{}).WithObjects(c).WithReturnManagedFields()
	r.api = interceptor.NewClient(builder.Build(), interceptor.Funcs{
		Get: func(
			ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption,
		) error {
			if into, ok := o.(*akriv0.Configuration); ok && r.stale != nil {
				r.stale.DeepCopyInto(into)
				return nil
			}
			return c.Get(ctx, k, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return write(func() error { return c.Patch(ctx, o, p, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return write(func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
	})
	live := interceptor.NewClient(r.api, interceptor.Funcs{Get: func(
		ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption,
	) error {
		r.reads++
		return c.Get(ctx, k, o, opts...)
	}})
	r.Reconciler = New(Config{Client: r.api, Live: live, Inventory: r.inv, Clock: r.clock,
		Brokers:   func(types.NamespacedName) brokers.Sum { return r.sum },
		Instances: func(types.NamespacedName) limits.Sum { return limits.Sum{} },
		Check:     func(*akriv0.Configuration) validation.Findings { r.checks++; return r.found }})
	return r
}

func (r *rig) reconcile() reconcile.Result {
	r.Helper()
	result, err := r.Reconcile(r.Context(), reconcile.Request{NamespacedName: key})
	if err != nil {
		r.Fatal(err)
	}
	return result
}

func (r *rig) configuration() *akriv0.Configuration {
	r.Helper()
	c := &akriv0.Configuration{}
	if err := r.api.Get(r.Context(), key, c); err != nil {
		r.Fatal(err)
	}
	return c
}

func (r *rig) slice(node string, devices int, problems ...v1alpha1.Problem) {
	s := &v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-0"}, Spec: v1alpha1.DeviceSliceSpec{NodeName: node, Problems: problems}}
	for i := range devices {
		id := fmt.Sprint("foo", i)
		s.Spec.Devices = append(s.Spec.Devices, v1alpha1.Device{Configuration: v1alpha1.ConfigurationReference{Namespace: "default", Name: "cam"}, ID: id, Shared: true,
			Hash: slot.InstanceHash(id, true, "", slot.ShortHash)})
	}
	r.inv.SetSlice(s)
}

// What the inventory knows is in the metrics.
func TestCounts(t *testing.T) {
	r := newRig(t, configuration(false))
	r.inv.SetConfiguration(configuration(false))
	r.inv.SetNode("node-b", inventory.Node{UID: "b"})
	r.slice("node-a", 2, v1alpha1.Problem{Reason: "NoLease"})
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(Counts(r.inv))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			got[f.GetName()] += m.GetGauge().GetValue()
		}
	}
	want := map[string]float64{
		"akri_instance_count": 2, "kubeslot_controller_configuration_problems": 1,
		"kubeslot_controller_nodes_without_kubecri": 1, "kubeslot_controller_ignored_devices": 0,
		"kubeslot_controller_ignored_claims": 0,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// Finalizers that Akri's agents left are taken off, once their nodes run kubecri or are
// gone; nobody else's.
func TestAkrisFinalizers(t *testing.T) {
	c := configuration(false)
	c.Finalizers = []string{"node-a", "node-b", "node-gone", "example.com/keep", "mine", metav1.FinalizerOrphanDependents}
	for _, f := range []string{"node-a", "node-b", "node-gone"} {
		c.ManagedFields = append(c.ManagedFields, metav1.ManagedFieldsEntry{Manager: f + "-fin", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "akri.sh/v0",
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:finalizers":{"v:\"` + f + `\"":{}}}}`)})
	}
	r := newRig(t, c)
	r.inv.SetConfiguration(c)
	r.inv.SetNode("node-a", inventory.Node{UID: "a"})
	r.inv.SetNode("node-b", inventory.Node{UID: "b"})
	r.slice("node-a", 1)
	want := func(what string, finalizers ...string) {
		t.Helper()
		if got := r.configuration().Finalizers; !slices.Equal(got, finalizers) {
			t.Errorf("%s: %q, want %q", what, got, finalizers)
		}
	}
	r.reconcile()
	r.clock.SetTime(start.Add(lookInterval))
	for range 3 { // events of its Instances
		if result := r.reconcile(); result.RequeueAfter == 0 || result.RequeueAfter > akriAgain {
			t.Errorf("node-b is not looked at again: %+v", result)
		}
	}
	if r.reads != 1 {
		t.Errorf("%d reads of the API server in a second, want 1", r.reads)
	}
	want("kubecri runs on node-a", "node-b", "example.com/keep", "mine", metav1.FinalizerOrphanDependents)
	r.clock.SetTime(start.Add(time.Minute))
	r.reconcile()
	want("nothing new", "node-b", "example.com/keep", "mine", metav1.FinalizerOrphanDependents)
	r.inv.DeleteNode("node-b")
	r.clock.SetTime(start.Add(2 * time.Minute))
	r.fail = apierrors.NewConflict(akriv0.Resource("configurations"), "cam", errors.New("why"))
	if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err == nil {
		t.Error("a conflict is not tried again")
	}
	r.clock.SetTime(start.Add(3 * time.Minute))
	r.reconcile()
	want("node-b is gone", "example.com/keep", "mine", metav1.FinalizerOrphanDependents)
}

// A node that never gets kubecri, and has no agent of Akri's any more, does not keep a Configuration for ever.
func TestAkrisFinalizerOfADeletedConfiguration(t *testing.T) {
	c := configuration(false)
	c.Finalizers = []string{"node-b", "example.com/keep"}
	c.DeletionTimestamp = &metav1.Time{Time: start}
	c.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "node-b-fin", Operation: metav1.ManagedFieldsOperationApply,
		APIVersion: "akri.sh/v0", FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:finalizers":{"v:\"node-b\"":{}}}}`)}}
	r := newRig(t, c)
	r.inv.SetConfiguration(c)
	r.inv.SetNode("node-b", inventory.Node{UID: "b"})
	for _, step := range []struct {
		after time.Duration
		want  []string
	}{{0, c.Finalizers}, {agentsTake - time.Second, c.Finalizers}, {agentsTake, []string{"example.com/keep"}}} {
		r.clock.SetTime(start.Add(step.after))
		if result := r.reconcile(); len(step.want) == 2 && result.RequeueAfter != akriAgain {
			t.Errorf("after %v: looked at again after %v", step.after, result.RequeueAfter)
		}
		if got := r.configuration().Finalizers; !slices.Equal(got, step.want) {
			t.Errorf("after %v: %q, want %q", step.after, got, step.want)
		}
	}
}
