package dra

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubeslot/kubeslot/controller/inventory"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// classRig is Classes before a fake API server.
type classRig struct {
	*testing.T
	*Classes
	api      client.Client
	requests []string
	changed  int
	lost     error // instead of the answer to a create
	version  *version.Version
	clock    *clocktesting.FakePassiveClock
}

func newClassRig(t *testing.T, objects ...client.Object) *classRig {
	scheme := runtime.NewScheme()
	if err := errors.Join(resourceapi.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	r := &classRig{T: t, version: version.MajorMinor(1, 37),
		clock: clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))}
	note := func(verb string) { r.requests = append(r.requests, verb) }
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	r.api = interceptor.NewClient(api, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, o ...client.ListOption) error {
			note("list")
			return c.List(ctx, l, o...)
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.CreateOption) error {
			note("create")
			return errors.Join(c.Create(ctx, obj, o...), r.lost)
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.UpdateOption) error {
			note("update")
			return c.Update(ctx, obj, o...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.DeleteOption) error {
			note("delete")
			return c.Delete(ctx, obj, o...)
		},
	})
	r.Classes = NewClasses(ClassConfig{Client: r.api, Live: r.api, Inventory: inventory.New(), Clock: r.clock,
		Version: func() *version.Version { return r.version }, Changed: func(string) { r.changed++ }})
	return r
}

func (r *classRig) reconcile() string {
	r.Helper()
	r.requests = nil
	if _, err := r.Reconcile(r.Context(), reconcile.Request{}); err != nil {
		r.Fatal(err)
	}
	return strings.Join(slices.DeleteFunc(r.requests, func(s string) bool { return s == "list" }), " ")
}

func TestClass(t *testing.T) {
	at := func(minor uint) *version.Version { return version.MajorMinor(1, minor) }
	notUnique := func(c *akriv0.Configuration) { c.Spec.UniqueDevices = new(false) }
	for name, tc := range map[string]struct {
		change  func(*akriv0.Configuration)
		version *version.Version
		named   string // extendedResourceName
	}{
		"unique devices":             {func(*akriv0.Configuration) {}, at(37), ""},
		"devices that may be shared": {notUnique, at(37), "akri.sh/cam"},
		"an older server":            {notUnique, at(36), ""},
		"slots that are held yet": {func(c *akriv0.Configuration) {
			notUnique(c)
			c.Status.Allocator = akriv0.NewAllocatorStatus(akriv0.AllocatorDRA, []string{"cam-a1"})
		}, at(37), ""},
		"slots that are not handed over yet": {func(c *akriv0.Configuration) {
			c.Spec.Allocator = akriv0.AllocatorSlots
		}, at(37), ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := draConfiguration("cam")
			tc.change(c)
			got := class(c, tc.version)
			if named := ptr.Deref(got.Spec.ExtendedResourceName, ""); named != tc.named {
				t.Errorf("extendedResourceName is %q, want %q", named, tc.named)
			}
			const cel = "device.driver == 'slots.kubeslot.io' && " +
				"device.attributes['slots.kubeslot.io'].configuration == 'cam'"
			if got.Name != "cam.slots.kubeslot.io" || got.Spec.Selectors[0].CEL.Expression != cel {
				t.Errorf("class is %s with the selector %s", got.Name, got.Spec.Selectors[0].CEL.Expression)
			}
		})
	}
}

// While the API server's version is not known, a DeviceClass keeps its extended resource, which pods request.
func TestClassBeforeTheVersionIsKnown(t *testing.T) {
	c := draConfiguration("cam")
	c.Spec.UniqueDevices = new(false)
	r := newClassRig(t, class(c, version.MajorMinor(1, 37)))
	r.Inventory.SetConfiguration(c)
	r.version = nil
	if got := r.reconcile(); got != "" || r.named() != "akri.sh/cam" {
		t.Errorf("%q; the class gives %q", got, r.named())
	}
	r.version = version.MajorMinor(1, 36)
	if got := r.reconcile(); got != "update" || r.named() != "" {
		t.Errorf("by an older server: %q; the class gives %q", got, r.named())
	}
}

// DeviceClasses are not watched: what somebody does to one is undone in a while, and until then nothing is requested.
func TestClassIsLookedAtAgain(t *testing.T) {
	r := newClassRig(t)
	r.Inventory.SetConfiguration(draConfiguration("cam"))
	r.reconcile()
	theirs := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.DeviceClassName("cam")}}
	if err := r.api.Delete(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	if r.reconcile(); len(r.requests) > 0 {
		t.Errorf("requests %q", r.requests)
	}
	r.clock.SetTime(r.clock.Now().Add(classAgain))
	if got := r.reconcile(); got != "create" {
		t.Errorf("later: %q", got)
	}
}

// named is the extended resource of the DeviceClass.
func (r *classRig) named() string {
	r.Helper()
	class := &resourceapi.DeviceClass{}
	if err := r.api.Get(r.Context(), types.NamespacedName{Name: "cam.slots.kubeslot.io"}, class); err != nil {
		r.Fatal(err)
	}
	return ptr.Deref(class.Spec.ExtendedResourceName, "")
}

// While a node advertises slots, schedulers would make no claim for the extended resource there.
func TestClassWaitsForNodes(t *testing.T) {
	node := func(slots string) *corev1.Node {
		n := &corev1.Node{}
		n.Name = "node-a"
		n.Status.Allocatable = corev1.ResourceList{"akri.sh/cam": resource.MustParse(slots)}
		return n
	}
	r := newClassRig(t, node("2"))
	c := draConfiguration("cam")
	c.Spec.UniqueDevices = new(false)
	r.Inventory.SetConfiguration(c)
	for range 2 {
		r.reconcile()
		problem := r.Problem("cam")
		if r.named() != "" || !strings.Contains(problem, "node node-a advertises 2 akri.sh/cam still") {
			t.Fatalf("the class gives %q, problem %q", r.named(), problem)
		}
	}
	if err := r.api.Status().Update(t.Context(), node("0")); err != nil {
		t.Fatal(err)
	}
	r.reconcile()
	if problem := r.Problem("cam"); r.named() != "akri.sh/cam" || problem != "" {
		t.Errorf("the class gives %q, problem %q", r.named(), problem)
	}
	// It keeps the name, and asks for no Nodes any more.
	if r.reconcile(); slices.Contains(r.requests, "list") {
		t.Errorf("requests %q", r.requests)
	}
}

// A Configuration has its DeviceClass from when it asks for DRA until slots are given again.
func TestClassFollowsItsConfiguration(t *testing.T) {
	r := newClassRig(t)
	slots := draConfiguration("cam")
	slots.Spec.Allocator, slots.Status.Allocator = akriv0.AllocatorSlots, nil
	r.Inventory.SetConfiguration(slots)
	if got := r.reconcile(); got != "" {
		t.Errorf("a Configuration with slots: %s", got)
	}
	r.Inventory.SetConfiguration(draConfiguration("cam"))
	if got := r.reconcile(); got != "create" {
		t.Errorf("at first: %q", got)
	}
	if got := r.reconcile(); got != "" {
		t.Errorf("nothing changed: %q", got)
	}
	some := draConfiguration("cam")
	some.Spec.AllowedNamespaces = &akriv0.AllowedNamespaces{Names: []string{"yard"}}
	r.Inventory.SetConfiguration(some)
	if got := r.reconcile(); got != "update" {
		t.Errorf("allowedNamespaces changed: %q", got)
	}
	r.Inventory.SetConfiguration(slots)
	if got := r.reconcile(); got != "delete" {
		t.Errorf("slots again: %q", got)
	}
}

// A DeviceClass whose creation was not answered is deleted when the Configuration's slots are given again.
func TestClassWhoseCreationWasNotAnswered(t *testing.T) {
	r := newClassRig(t)
	r.Inventory.SetConfiguration(draConfiguration("cam"))
	r.reconcile() // lists what there is
	slots := draConfiguration("mic")
	r.lost = errors.New("no answer")
	r.Inventory.SetConfiguration(draConfiguration("mic"))
	if _, err := r.Reconcile(t.Context(), reconcile.Request{}); err == nil {
		t.Fatal("no error")
	}
	slots.Spec.Allocator, slots.Status.Allocator = akriv0.AllocatorSlots, nil
	r.Inventory.SetConfiguration(slots)
	r.reconcile()
	all := &resourceapi.DeviceClassList{}
	if err := r.api.List(t.Context(), all); err != nil || len(all.Items) != 1 {
		t.Errorf("%d DeviceClasses are there, want that of cam alone: %v", len(all.Items), err)
	}
}

// A controller that starts deletes what an earlier one left, and nothing else.
func TestDeletesClassesThatWereLeft(t *testing.T) {
	at := version.MajorMinor(1, 37)
	foreign := class(draConfiguration("foreign"), at)
	foreign.Name = "not-of-a-configuration"
	r := newClassRig(t, class(draConfiguration("gone"), at), class(draConfiguration("cam"), at), foreign)
	r.Inventory.SetConfiguration(draConfiguration("cam"))
	if got := r.reconcile(); got != "delete" {
		t.Errorf("requests: %q", got)
	}
	all := &resourceapi.DeviceClassList{}
	if err := r.api.List(t.Context(), all); err != nil || len(all.Items) != 2 {
		t.Errorf("%d DeviceClasses are there, want 2: %v", len(all.Items), err)
	}
}

// A DeviceClass that somebody else made stays, and is a problem for as long as it is there.
func TestClassOfSomebodyElse(t *testing.T) {
	foreign := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.DeviceClassName("cam")}}
	r := newClassRig(t, foreign)
	r.Inventory.SetConfiguration(draConfiguration("cam"))
	if got := r.reconcile(); got != "create" { // which the API server refuses
		t.Errorf("written: %q", got)
	}
	if problem := r.Problem("cam"); !strings.Contains(problem, "is not the controller's") || r.changed != 1 {
		t.Errorf("the problem is %q, reported %d times", problem, r.changed)
	}
	if err := r.api.Delete(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	if got := r.reconcile(); got != "create" || r.Problem("cam") != "" {
		t.Errorf("once it is gone: %q, problem %q", got, r.Problem("cam"))
	}
}
