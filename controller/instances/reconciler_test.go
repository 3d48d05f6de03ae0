package instances

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/controller/inventory"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

var errWhy = errors.New("why")

func TestLifeOfAnInstance(t *testing.T) {
	r := newRig(t)
	r.inv.SetConfiguration(configuration(2))
	expect := func(what string, wrote []string, verbs ...string) {
		t.Helper()
		if !slices.Equal(wrote, verbs) {
			t.Errorf("%s: writes %q, want %q", what, wrote, verbs)
		}
	}
	expect("nothing", r.settle())
	r.inv.SetSlice(sliceOf("node-b", device(map[string]string{"K": "b"})))
	expect("found", r.settle(), "create")
	r.inv.SetSlice(sliceOf("node-a", device(map[string]string{"K": "a"})))
	expect("joined", r.settle(), "patch")
	if i := r.instance(); !slices.Equal(i.Spec.Nodes, []string{"node-a", "node-b"}) || i.Spec.BrokerProperties["K"] != "a" || i.Status.NodeCount != 2 {
		t.Errorf("joined: %+v", i)
	}
	expect("nothing new", r.settle())
	r.inv.SetClaim(claimOf(1, "node-a", v1alpha1.ConfigurationLevel))
	expect("claimed", r.settle(), "patch")
	if u := r.instance().Spec.DeviceUsage; u["cam-8120fe-1"] != "C:pod-uid:node-a" || u["cam-8120fe-0"] != "" || len(u) != 2 {
		t.Errorf("claimed: %v", u)
	}
	r.inv.SetConfiguration(configuration(1))
	expect("shrunk", r.settle(), "patch")
	if i := r.instance(); i.Spec.Capacity != 1 || i.Spec.DeviceUsage["cam-8120fe-1"] == "" || len(i.Status.Problems) != 1 {
		t.Errorf("shrunk under a claim: %+v", i)
	}
	edited := r.instance()
	edited.Spec.Capacity, edited.Finalizers, edited.Labels = 50, []string{"a.b/c"}, map[string]string{"l": "v"}
	if err := r.api.Update(t.Context(), edited); err != nil {
		t.Fatal(err)
	}
	expect("edited by hand", r.settle(), "patch")
	if i := r.instance(); i.Spec.Capacity != 1 || len(i.Finalizers) != 0 || i.Labels["l"] != "v" {
		t.Errorf("edited by hand: %+v", i)
	}
	r.inv.DeleteSlice("node-a-0")
	expect("left", r.settle(), "patch")
	r.inv.DeleteSlice("node-b-0")
	expect("unseen but claimed", r.settle(), "patch")
	if i := r.instance(); i.Status.NodeCount != 0 || len(i.Spec.Nodes) != 0 || !i.Spec.Shared {
		t.Errorf("unseen but claimed: %+v", i)
	}
	expect("unseen but claimed, later", r.settle())
	r.inv.DeleteClaim("cam-8120fe-1")
	expect("gone", r.settle(), "delete")
	if r.instance() != nil {
		t.Error("it was not deleted")
	}
	expect("gone, later", r.settle())
	if len(r.written)+len(r.waiting) != 0 {
		t.Errorf("remembers %v, %v", r.written, r.waiting)
	}
}

// The first change is written at once; those within the next second are one write.
func TestOneWriteASecond(t *testing.T) {
	r := newRig(t)
	r.inv.SetConfiguration(configuration(2))
	var at []time.Duration // of each write
	start := r.clock.Now()
	due := start // when the queue has the Instance looked at, besides at changes
	const nodes, every = 1000, 4 * time.Millisecond
	look := func() {
		before := len(r.writes)
		result, err := r.reconcile()
		if err != nil {
			t.Fatal(err)
		}
		if len(r.writes) > before {
			at = append(at, r.clock.Since(start))
		}
		if result.RequeueAfter > 0 {
			due = r.clock.Now().Add(result.RequeueAfter)
		}
	}
	for i := range nodes {
		r.clock.SetTime(start.Add(time.Duration(i) * every))
		r.inv.SetSlice(sliceOf(fmt.Sprintf("node-%04d", i), device(nil)))
		look()
	}
	for due.After(r.clock.Now()) {
		r.clock.SetTime(due)
		look()
	}
	if at[0] != 0 {
		t.Errorf("the first write comes after %s", at[0])
	}
	for i := 1; i < len(at); i++ {
		if at[i]-at[i-1] < Interval {
			t.Errorf("writes at %s and %s", at[i-1], at[i])
		}
	}
	if want := int(nodes*every/Interval) + 1; len(at) > want {
		t.Errorf("%d writes of %d nodes that join in %s, want %d: %v", len(at), nodes, nodes*every, want, at)
	}
	if i := r.instance(); i.Status.NodeCount != nodes || len(i.Spec.Nodes) != akriv0.MaxInstanceNodes {
		t.Errorf("%d nodes in the end, %d of them named", i.Status.NodeCount, len(i.Spec.Nodes))
	}
	r.clock.SetTime(r.clock.Now().Add(time.Hour))
	r.inv.SetSlice(sliceOf("node-x", device(nil)))
	before := len(r.writes)
	look()
	if len(r.writes) != before+1 {
		t.Error("a change after a quiet hour is not written at once")
	}
}

// An API server whose CRD is older drops what it does not know: that is not tried again
// until something changes.
func TestOlderCRD(t *testing.T) {
	r := newRig(t)
	r.inv.SetConfiguration(configuration(2))
	r.inv.SetSlice(sliceOf("node-a", device(nil)))
	r.settle()
	r.drops = true
	for _, node := range []string{"node-b", "node-c"} {
		r.inv.SetSlice(sliceOf(node, device(nil)))
		if got := r.settle(); !slices.Equal(got, []string{"patch"}) {
			t.Errorf("%s: writes %v, want one try", node, got)
		}
	}
	r.drops = false
	r.inv.SetSlice(sliceOf("node-d", device(nil)))
	if got := r.settle(); !slices.Equal(got, []string{"patch"}) || r.instance().Status.NodeCount != 4 {
		t.Errorf("with the CRD of this version: %v, %+v", got, r.instance().Status)
	}
}

// Each write may fail, or be done and its answer lost, and the controller may be
// killed there: it ends up at the same, without a write too many.
func TestEachWriteMayFail(t *testing.T) {
	akris := func() *akriv0.Instance {
		return &akriv0.Instance{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: key.Name, Finalizers: []string{"node-a"}, OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "akri.sh/v0", Kind: "Configuration", Name: "cam", UID: "former", Controller: new(bool)}}},
			Spec: akriv0.InstanceSpec{ConfigurationName: "cam", Capacity: 9, Nodes: []string{"node-a", "node-z"}, DeviceUsage: map[string]string{"cam-8120fe-0": "node-a"}},
		}
	}
	errs := map[string]error{
		"internal": apierrors.NewInternalError(errWhy), "conflict": apierrors.NewConflict(akriv0.Resource("instances"), key.Name, errWhy),
		"not found": apierrors.NewNotFound(akriv0.Resource("instances"), key.Name), "exists": apierrors.NewAlreadyExists(akriv0.Resource("instances"), key.Name),
	}
	for fault := range errs {
		for _, done := range []bool{false, true} {
			for _, killed := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, done %v, killed %v", fault, done, killed), func(t *testing.T) {
					r := newRig(t, akris())
					failing := 0
					r.refuse = func() error {
						failing++
						if r.lost = done; done || failing%2 == 0 {
							return nil
						}
						return errs[fault]
					}
					steps := []func(){
						func() { r.inv.SetConfiguration(configuration(2)); r.inv.SetSlice(sliceOf("node-a", device(nil))) },
						func() { r.inv.SetClaim(claimOf(0, "node-a", v1alpha1.InstanceLevel)) },
						func() { r.inv.DeleteSlice("node-a-0"); r.inv.DeleteClaim("cam-8120fe-0") },
						func() { r.inv.SetSlice(sliceOf("node-a", device(nil))) },
						func() { r.inv.DeleteConfiguration("default", "cam") },
					}
					for i, step := range steps {
						step()
						for range 20 {
							result, err := r.reconcile()
							if err == nil && result.RequeueAfter == 0 {
								break
							}
							if raced := fault != "internal"; err != nil && raced && !done {
								t.Errorf("step %d: a cache that is behind is an error: %v", i, err)
							}
							if killed {
								r.restart()
							}
							r.clock.SetTime(r.clock.Now().Add(max(result.RequeueAfter, Interval)))
						}
						got, want := r.instance(), decide(key, r.inv.Device(key.Name), nil, nil, func(string) bool { return false }).want
						if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(metav1.ObjectMeta{}, "ResourceVersion"), cmpopts.EquateEmpty()); diff != "" {
							t.Fatalf("after step %d (-want +got):\n%s", i, diff)
						}
					}
					if want := len(steps) * map[bool]int{false: 2, true: 1}[done]; len(r.writes) != want {
						t.Errorf("%d writes, want %d: %q", len(r.writes), want, r.writes)
					}
				})
			}
		}
	}
}

// A cache that is behind leads to no second Instance, and to no hot loop.
func TestCacheIsBehind(t *testing.T) {
	r := newRig(t)
	r.inv.SetConfiguration(configuration(1))
	r.inv.SetSlice(sliceOf("node-a", device(nil)))
	r.settle()
	r.stale = r.instance()
	r.inv.DeleteSlice("node-a-0")
	for range 5 {
		result, err := r.reconcile()
		if err != nil || result.RequeueAfter <= 0 {
			t.Fatalf("%+v, %v", result, err)
		}
		r.clock.SetTime(r.clock.Now().Add(result.RequeueAfter))
	}
	r.stale = nil
	if wrote := r.settle(); len(wrote) != 0 || r.instance() != nil {
		t.Errorf("wrote %q once the cache has caught up", wrote)
	}
}

// Exactly what was read is deleted: not an Instance that was made or edited since.
func TestDeletesWhatItHasRead(t *testing.T) {
	r := newRig(t)
	r.inv.SetConfiguration(configuration(1))
	r.inv.SetSlice(sliceOf("node-a", device(nil)))
	r.settle()
	read := r.instance()
	r.inv.DeleteSlice("node-a-0")
	r.settle()
	if p := r.preconditions; p == nil || p.UID == nil || *p.UID != read.UID || p.ResourceVersion == nil || *p.ResourceVersion != read.ResourceVersion {
		t.Errorf("preconditions %+v, want those of %s at %s", p, read.UID, read.ResourceVersion)
	}
}

// An Instance of Akri's, or of a Kubeslot before DeviceSlices, is not touched while
// one of its nodes may still write it, and adopted then.
func TestUpgrade(t *testing.T) {
	before := &akriv0.Instance{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: key.Name, Finalizers: []string{"node-a", "node-b"}},
		Spec: akriv0.InstanceSpec{ConfigurationName: "cam", Capacity: 2, Shared: true, Nodes: []string{"node-a", "node-b"},
			DeviceUsage: map[string]string{"cam-8120fe-0": "C:u:node-a", "cam-8120fe-1": "node-b"}},
	}
	r := newRig(t, before.DeepCopy())
	r.inv.SetConfiguration(configuration(2))
	node := func(name string) { r.inv.SetNode(name, inventory.Node{UID: types.UID(name)}) }
	untouched := func(when string) {
		t.Helper()
		result, err := r.reconcile()
		if err != nil || len(r.writes) != 0 || result.RequeueAfter != LookAgain {
			t.Fatalf("%s: %q, %+v, %v", when, r.writes, result, err)
		}
	}
	node("node-a")
	node("node-b")
	untouched("nobody is upgraded")
	r.inv.SetSlice(sliceOf("node-a", device(nil)))
	r.inv.SetClaim(claimOf(0, "node-a", v1alpha1.ConfigurationLevel))
	untouched("node-b is not upgraded")
	r.restart()
	untouched("node-b is not upgraded, after a restart")
	r.inv.SetSlice(sliceOf("node-b", device(nil)))
	r.inv.SetClaim(claimOf(1, "node-b", v1alpha1.InstanceLevel))
	if wrote := r.settle(); !slices.Equal(wrote, []string{"patch"}) {
		t.Fatalf("adopted with %q", wrote)
	}
	i := r.instance()
	if len(i.Finalizers) != 0 || len(i.OwnerReferences) != 1 || i.Status.NodeCount != 2 ||
		i.Spec.DeviceUsage["cam-8120fe-0"] != "C:pod-uid:node-a" || i.Spec.DeviceUsage["cam-8120fe-1"] != "node-b" {
		t.Errorf("adopted: %+v", i)
	}

	r = newRig(t, before.DeepCopy())
	r.inv.SetConfiguration(configuration(2))
	node("node-a")
	untouched("its node is not upgraded")
	r.inv.DeleteNode("node-a")
	if wrote := r.settle(); !slices.Equal(wrote, []string{"delete", "patch"}) || r.instance() != nil {
		t.Errorf("once its nodes are gone: %q, %+v", wrote, r.instance())
	}
}

// The garbage collector deletes Instances with their Configuration, which does not
// wait for them; one that is made anew has them again.
func TestConfigurationIsMadeAnew(t *testing.T) {
	r := newRig(t)
	r.inv.SetConfiguration(configuration(1))
	r.inv.SetSlice(sliceOf("node-a", device(nil)))
	r.settle()
	deleting := configuration(1)
	deleting.DeletionTimestamp = &metav1.Time{Time: time.Unix(1e9, 0)}
	r.inv.SetConfiguration(deleting)
	if wrote := r.settle(); !slices.Equal(wrote, []string{"delete"}) {
		t.Errorf("while it is deleted: %q", wrote)
	}
	r.inv.DeleteConfiguration("default", "cam")
	anew := configuration(1)
	anew.UID = types.UID("anew")
	r.inv.SetConfiguration(anew)
	if wrote := r.settle(); !slices.Equal(wrote, []string{"create"}) || r.instance().OwnerReferences[0].UID != "anew" {
		t.Errorf("made anew: %q, %+v", wrote, r.instance())
	}
}
