package configurationresources

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/kube-scheduler/claims"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned/fake"
)

// claimRig has claimMode Scheduler, and two cameras of one slot each.
type claimRig struct {
	*rig
	akri *fake.Clientset
	// answer is what the API server says to a Binding, and does with it.
	answer func(live *v1.Pod) error
}

var instances = akriv0.SchemeGroupVersion.WithResource("instances")

func newClaimRig(t *testing.T) *claimRig {
	r := &claimRig{rig: newRig(t), akri: fake.NewSimpleClientset()}
	ended, end := context.WithCancel(t.Context())
	end()
	r.Plugin.ctx = ended // tests look for strays themselves
	r.claims = &claims.Writer{Client: r.akri, Seen: r.book.refresh}
	apply := clienttesting.ObjectReaction(r.akri.Tracker())
	r.akri.PrependReactor("patch", "instances", func(action clienttesting.Action) (bool, runtime.Object, error) {
		_, obj, err := apply(action)
		if err != nil {
			return true, nil, apierrors.NewGenericServerResponse(422, "patch", instances.GroupResource(), "", err.Error(), 0, false)
		}
		in := obj.(*akriv0.Instance)
		version, err := strconv.Atoi(in.ResourceVersion)
		if err != nil {
			return true, nil, err
		}
		in.ResourceVersion = strconv.Itoa(version + 1)
		return true, in, r.akri.Tracker().Update(instances, in, in.Namespace)
	})
	for _, name := range []string{"cam-1", "cam-2"} {
		r.set(t, name, "1", "")
	}
	r.client.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		b := a.(clienttesting.CreateAction).GetObject().(*v1.Binding)
		live := pod(b.Name, "1")
		live.Spec.NodeName, live.Annotations = b.Target.Name, b.Annotations
		err := error(nil)
		if r.answer != nil {
			err = r.answer(live)
		}
		if r.client.Tracker().Add(live) != nil && err == nil {
			err = apierrors.NewConflict(v1.Resource("pods"), b.Name, errors.New("it is bound"))
		}
		return true, nil, err
	})
	return r
}

// set is an Instance's only slot as the API server has it; the informer is told of
// it if the version says so.
func (r *claimRig) set(t *testing.T, name, version, usage string) {
	t.Helper()
	in := &akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: "uid-of-" + "it", ResourceVersion: version},
		Spec: akriv0.InstanceSpec{ConfigurationName: "cam", Capacity: 1, Nodes: []string{"node-a"}, DeviceUsage: map[string]string{name + "-0": usage}}}
	err := r.akri.Tracker().Add(in)
	if apierrors.IsAlreadyExists(err) {
		err = r.akri.Tracker().Update(instances, in, in.Namespace)
	}
	if err != nil {
		t.Fatal(err)
	}
	if version != unseen {
		r.book.setInstance(in.DeepCopy())
	}
}

// unseen is the version of an Instance that the informer does not show yet.
const unseen = "100"

func (r *claimRig) usage(t *testing.T, name string) string {
	t.Helper()
	in, err := r.akri.Tracker().Get(instances, "default", name)
	if err != nil {
		t.Fatal(err)
	}
	return in.(*akriv0.Instance).Spec.DeviceUsage[name+"-0"]
}

func TestClaimsBeforeTheBinding(t *testing.T) {
	r := newClaimRig(t)
	p := pod("p", "2")
	state := r.schedule(t, p, "node-a")
	r.answer = func(*v1.Pod) error {
		for _, name := range []string{"cam-1", "cam-2"} {
			if got := r.usage(t, name); got != "C:p-uid:node-a" {
				t.Errorf("when the Binding is sent, the slot of %s is claimed as %q", name, got)
			}
		}
		return nil
	}
	if status := r.Bind(r.ctx, state, p, "node-a"); !status.IsSuccess() || len(r.bindings()) != 1 {
		t.Fatalf("Bind: %v, %d bindings", status, len(r.bindings()))
	}
	for _, a := range r.akri.Actions() {
		if a.GetVerb() != "patch" {
			t.Errorf("more than one write for each Instance: %v", a)
		}
	}
	if len(r.akri.Actions()) != 2 {
		t.Errorf("%d API calls for two Instances", len(r.akri.Actions()))
	}
}

// Another writer has taken a slot that the ledger has for free.
func TestSlotTakenByAnotherWriter(t *testing.T) {
	r := newClaimRig(t)
	p := pod("p", "2")
	r.book.setPod(p)
	state := r.schedule(t, p, "node-a")
	r.set(t, "cam-2", unseen, "C:other:node-b")
	status := r.Bind(r.ctx, state, p, "node-a")
	if status.Code() != fwk.Unschedulable || len(r.bindings()) != 0 {
		t.Fatalf("Bind: %v, %d bindings", status, len(r.bindings()))
	}
	for _, part := range []string{"cam-2-0", "other", "node-b", "tried again"} {
		if !strings.Contains(status.Message(), part) {
			t.Errorf("message %q lacks %q", status.Message(), part)
		}
	}
	if r.usage(t, "cam-1") != "" || r.usage(t, "cam-2") != "C:other:node-b" {
		t.Errorf("left behind: %q, %q", r.usage(t, "cam-1"), r.usage(t, "cam-2"))
	}
	r.Unreserve(r.ctx, state, p, "node-a")
	if _, status := r.filter(p, "node-a"); status.Code() != fwk.Unschedulable || !strings.Contains(status.Message(), "1 of 2 slots free") {
		t.Errorf("the ledger does not know: %v", status)
	}
	// What the informer shows of before changes nothing, and what comes after wakes.
	r.activated = nil
	stale := r.book.instance("cam-2").DeepCopy()
	stale.ResourceVersion, stale.Spec.DeviceUsage = "1", nil
	r.book.setInstance(stale)
	if _, status := r.filter(p, "node-a"); status.IsSuccess() || len(r.activated) != 0 {
		t.Errorf("an old event counts: %v", status)
	}
	r.set(t, "cam-2", "101", "")
	if _, status := r.filter(p, "node-a"); !status.IsSuccess() || len(r.activated) != 1 {
		t.Errorf("given back: %v, activated %v", status, r.activated)
	}
}

func TestInstanceGoneAtBind(t *testing.T) {
	r := newClaimRig(t)
	p := pod("p", "2")
	state := r.schedule(t, p, "node-a")
	r.book.deleteInstance(r.book.instance("cam-2"))
	if status := r.Bind(r.ctx, state, p, "node-a"); status.Code() != fwk.Error || !strings.Contains(status.Message(), "cam-2 does not exist") {
		t.Errorf("Bind: %v", status)
	}
	if got := r.usage(t, "cam-1"); got != "" {
		t.Errorf("left behind: %q", got)
	}
}

// A failed bind gives its claims back if the pod is certainly not bound by it.
func TestClaimsOfAFailedBind(t *testing.T) {
	reset := errors.New("connection reset")
	for name, test := range map[string]struct {
		answer func(*v1.Pod) error
		kept   bool
		bound  bool
	}{
		"refused": {func(p *v1.Pod) error {
			p.Spec.NodeName = ""
			return apierrors.NewForbidden(v1.Resource("pods"), "p", errors.New("quota"))
		}, false, false},
		"lost, then refused": {func() func(p *v1.Pod) error {
			answers := []error{reset, apierrors.NewForbidden(v1.Resource("pods"), "p", errors.New("quota"))}
			return func(p *v1.Pod) error {
				p.Spec.NodeName = ""
				err := answers[0]
				answers = answers[1:]
				return err
			}
		}(), false, false},
		"lost, applied": {once(reset), true, true},
		"bound elsewhere": {func(p *v1.Pod) error {
			p.Spec.NodeName = "node-b"
			return apierrors.NewConflict(v1.Resource("pods"), "p", reset)
		}, false, false},
		"bound there by another scheduler": {func(p *v1.Pod) error {
			p.Annotations = nil
			return apierrors.NewConflict(v1.Resource("pods"), "p", reset)
		}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newClaimRig(t)
			p := pod("p", "1")
			state := r.schedule(t, p, "node-a")
			r.answer = test.answer
			if status := r.Bind(r.ctx, state, p, "node-a"); status.IsSuccess() != test.bound {
				t.Fatalf("Bind: %v", status)
			}
			if got := r.usage(t, "cam-1"); (got != "") != test.kept {
				t.Errorf("deviceUsage is %q, kept should be %v", got, test.kept)
			}
		})
	}
	t.Run("the scheduler ends before it knows", func(t *testing.T) {
		r := newClaimRig(t)
		p := pod("p", "1")
		state := r.schedule(t, p, "node-a")
		ctx, end := context.WithCancel(r.ctx)
		r.answer = func(*v1.Pod) error { end(); return reset }
		r.client.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, reset })
		if status := r.Bind(ctx, state, p, "node-a"); status.IsSuccess() {
			t.Fatal("bound")
		}
		if got := r.usage(t, "cam-1"); got != "C:p-uid:node-a" {
			t.Errorf("deviceUsage is %q", got)
		}
	})
}

// A pod whose Binding is refused releases its claims. That wakes who was refused
// meanwhile, and not the pod itself, which would claim and release without end: the
// watch shows the released Instances only when the pod has given back its slots.
func TestReleasedClaimsDoNotWakeTheirPod(t *testing.T) {
	r := newClaimRig(t)
	p, q := pod("p", "2"), pod("q", "1")
	for _, waiting := range []*v1.Pod{p, q} {
		if err := r.known.Add(waiting); err != nil {
			t.Fatal(err)
		}
		r.book.setPod(waiting)
	}
	state := r.schedule(t, p, "node-a")
	if _, status := r.filter(q, "node-a"); status.IsSuccess() {
		t.Fatal("no slot is left, and another pod gets one")
	}
	r.answer = func(live *v1.Pod) error {
		live.Spec.NodeName = ""
		return apierrors.NewForbidden(v1.Resource("pods"), "p", errors.New("a webhook's word"))
	}
	if status := r.Bind(r.ctx, state, p, "node-a"); status.IsSuccess() {
		t.Fatal("bound")
	}
	r.Unreserve(r.ctx, state, p, "node-a")
	for _, name := range []string{"cam-1", "cam-2"} {
		in, err := r.akri.Tracker().Get(instances, "default", name)
		if err != nil {
			t.Fatal(err)
		}
		if version := in.(*akriv0.Instance).ResourceVersion; version != "3" {
			t.Fatalf("Instance %s has version %s, want 3: claimed and released", name, version)
		}
		r.book.setInstance(in.(*akriv0.Instance).DeepCopy())
	}
	if want := []string{"q"}; !slices.Equal(r.activated, want) {
		t.Errorf("tried again: %v, want %v", r.activated, want)
	}
}

// once answers the first Binding with the error.
func once(err error) func(*v1.Pod) error {
	return func(*v1.Pod) error {
		e := err
		err = nil
		return e
	}
}

// Of the claims that a killed scheduler made before it could bind, those for a pod
// that waits are released, once the API server says that it is not bound.
func TestStrayClaims(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*claimRig, *v1.Pod)
		kept   bool
	}{
		"of a waiting pod": {func(*claimRig, *v1.Pod) {}, false},
		"of a pod that is gone by now": {func(r *claimRig, p *v1.Pod) {
			_ = r.client.Tracker().Delete(v1.SchemeGroupVersion.WithResource("pods"), p.Namespace, p.Name)
		}, false},
		"of another scheduler's pod": {func(_ *claimRig, p *v1.Pod) { p.Spec.SchedulerName = "other" }, true},
		"of a pod that is bound by now": {func(r *claimRig, p *v1.Pod) {
			live := p.DeepCopy()
			live.Spec.NodeName = "node-a"
			_ = r.client.Tracker().Update(v1.SchemeGroupVersion.WithResource("pods"), live, p.Namespace)
		}, true},
		"without an answer": {func(r *claimRig, _ *v1.Pod) {
			r.client.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("refused") })
		}, true},
		"of an unknown holder":      {func(r *claimRig, p *v1.Pod) { r.book.deletePod(p) }, true},
		"before the ledger is full": {func(r *claimRig, _ *v1.Pod) { r.book.sources = append(r.book.sources, func() bool { return false }) }, true},
		"of a bind under way": {func(r *claimRig, p *v1.Pod) {
			req, _ := requestOf(p)
			if _, _, err := r.book.assume(&cycle{req: req}, "node-a", r.args.Strategy); err != nil {
				panic(err)
			}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newClaimRig(t)
			p := pod("p", "1")
			p.Spec.SchedulerName = v1.DefaultSchedulerName
			if err := r.client.Tracker().Add(p.DeepCopy()); err != nil {
				t.Fatal(err)
			}
			r.set(t, "cam-1", "2", "C:p-uid:node-a")
			r.book.setPod(p)
			test.change(r, p)
			r.releaseStrays(r.ctx)
			if got := r.usage(t, "cam-1"); (got != "") != test.kept {
				t.Errorf("deviceUsage is %q, kept should be %v", got, test.kept)
			}
		})
	}
}

// What a claim met is no news of an Instance that has been deleted since.
func TestRefreshLeavesDeletedInstancesAlone(t *testing.T) {
	r := newClaimRig(t)
	read := r.book.instance("cam-1").DeepCopy()
	read.ResourceVersion = "7"
	r.book.deleteInstance(read)
	r.book.refresh(read)
	if r.book.instance("cam-1") != nil {
		t.Error("it is back")
	}
	again := read.DeepCopy()
	again.UID, again.ResourceVersion = "another", "8"
	r.book.setInstance(again)
	late := read.DeepCopy()
	late.ResourceVersion = "9"
	r.book.refresh(late)
	if got := r.book.instance("cam-1"); got.UID != "another" {
		t.Errorf("the former one is back: %v", got.UID)
	}
}
