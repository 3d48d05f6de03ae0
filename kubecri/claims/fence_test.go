package claims

import (
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/test/await"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// promising is an API server whose Configuration has releaseUnreachableAfter of 80 s: containers are
// stopped after 60. cut cuts the node off, and mends.
func promising(t *testing.T) (a *api, cut func(error)) {
	t.Helper()
	a = newAPI(t, 2, nil)
	a.promise(t, 80*time.Second)
	faults := make(chan error, 1)
	faults <- nil
	a.kube.PrependReactor("*", "leases", func(ktesting.Action) (bool, runtime.Object, error) {
		err := <-faults
		faults <- err
		return err != nil, nil, err
	})
	return a, func(err error) {
		<-faults
		faults <- err
		a.set(nil)
		if err != nil {
			a.set(away)
		}
	}
}

// promise sets the Configuration's releaseUnreachableAfter; 0 for none.
func (a *api) promise(t *testing.T, d time.Duration) {
	t.Helper()
	c, err := a.AkriV0().Configurations("default").Get(t.Context(), "cam", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c = c.DeepCopy()
	c.Spec.ReleaseUnreachableAfter = nil
	if d > 0 {
		c.Spec.ReleaseUnreachableAfter = &metav1.Duration{Duration: d}
	}
	if err := a.Tracker().Update(configurations, c, "default"); err != nil {
		t.Fatal(err)
	}
}

var errAway = errors.New("connection refused")

func (f *fixture) runs(t *testing.T, id string) bool {
	t.Helper()
	f.runtime.mu.Lock()
	defer f.runtime.mu.Unlock()
	for _, c := range f.runtime.containers {
		if c.Id == id {
			return c.State == runtimeapi.ContainerState_CONTAINER_RUNNING
		}
	}
	t.Fatalf("there is no container %s", id)
	return false
}

// begin creates a running container.
func (f *fixture) begin(t *testing.T, id, pod, slot string) {
	t.Helper()
	f.mustCreate(t, id, pod, "cam", slot)
	f.runtime.change(func() {
		for _, c := range f.runtime.containers {
			if c.Id == id {
				c.State = runtimeapi.ContainerState_CONTAINER_RUNNING
			}
		}
	})
}

func (f *fixture) renewals(t *testing.T) (n int) {
	t.Helper()
	for _, action := range f.api.kube.Actions() {
		if action.GetResource().Resource == "leases" && action.GetVerb() != "get" {
			n++
		}
	}
	return n
}

// A node promises to stop containers before their slots are released, and keeps it: after three
// quarters of the time without the API server. It creates none again before it has made their claims anew.
func TestUnreachableNodeStopsContainers(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	a, cut := promising(t)
	f := start(t, a, &fakeRuntime{}, setup{leases: true, clock: clock})
	f.begin(t, "c1", "u1", "cam-a1-0")
	claim := a.claim(t, "cam-a1-0")
	if d := claim.Spec.ReleaseUnreachableAfter; d == nil || d.Duration != 80*time.Second {
		t.Fatalf("the claim promises %v, want 80 s", d)
	}
	lease, err := a.kube.CoordinationV1().Leases("kube-node-lease").Get(t.Context(), "kubecri.node-a", metav1.GetOptions{})
	if err != nil || len(lease.OwnerReferences) != 1 || lease.OwnerReferences[0].UID != "uid-a" {
		t.Fatalf("Lease %+v, %v; want one that the Node owns", lease, err)
	}
	pass := func(d time.Duration) { clock.Step(d) }
	for range 20 { // it is renewed
		before := f.renewals(t)
		pass(10 * time.Second)
		if f.keepPromises(t.Context()) != 10*time.Second || f.renewals(t) == before || !f.runs(t, "c1") {
			t.Fatal("not renewed, or stopped though it is")
		}
	}
	if err := f.create(t, "c2", "u1", "cam", "cam-a1-0"); err != nil { // the kubelet restarts it
		t.Fatal(err)
	}
	if n := a.writes(); n != 1 {
		t.Errorf("%d writes, want the one claim", n)
	}

	cut(errAway)
	pass(59 * time.Second)
	if next := f.keepPromises(t.Context()); next != time.Second || !f.runs(t, "c1") {
		t.Fatalf("looks again after %v, want 1 s; runs: %v", next, f.runs(t, "c1"))
	}
	if err := f.create(t, "c3", "u1", "cam", "cam-a1-0"); err != nil {
		t.Errorf("a container that is created again within the time: %v", err)
	}
	pass(time.Second)
	f.keepPromises(t.Context())
	await.That(t, "the container to be stopped: the slot is released in 20 s", func() bool { return !f.runs(t, "c1") })
	err = f.create(t, "c4", "u1", "cam", "cam-a1-0")
	if err == nil || !strings.Contains(err.Error(), "releaseUnreachableAfter") {
		t.Fatalf("%v, want no container before the API server is reached", err)
	}

	t.Log("another node has the slot when the API server is there again")
	a.remove(t, "cam-a1-0")
	a.put(t, "cam-a1-0", "CL u2 node-b")
	cut(nil)
	if err := f.create(t, "c5", "u1", "cam", "cam-a1-0"); err == nil || !strings.Contains(err.Error(), "node-b") {
		t.Errorf("%v, want the other's claim named", err)
	}
}

// A claim that promises, and that the controller may be deleting, is made anew by a container that is
// created: after a silence, also one that nobody noticed since the machine was suspended, after a
// restart, and where the node does not promise anything any more. The controller deletes by UID.
func TestClaimIsMadeAnewAfterSilence(t *testing.T) {
	forbidden := apierrors.NewForbidden(akriv0.Resource("leases"), "kubecri.node-a", errors.New("no"))
	silence := func(t *testing.T, f *fixture, cut func(error)) {
		cut(errAway)
		f.config.Clock.(*clocktesting.FakeClock).Step(61 * time.Second)
		f.keepPromises(t.Context())
		await.That(t, "the stop", func() bool { return !f.runs(t, "c1") })
		cut(nil)
	}
	for name, test := range map[string]struct {
		then     func(t *testing.T, f *fixture, cut func(error)) *fixture
		promises bool
	}{
		"silence": {func(t *testing.T, f *fixture, cut func(error)) *fixture {
			silence(t, f, cut)
			f.keepPromises(t.Context())
			return f
		}, true},
		"suspended": {func(t *testing.T, f *fixture, _ func(error)) *fixture {
			f.config.Clock.(*clocktesting.FakeClock).Step(100 * time.Second)
			f.keepPromises(t.Context())
			return f
		}, true},
		"restarted": {func(t *testing.T, f *fixture, _ func(error)) *fixture {
			f.kill()
			return start(t, f.api, f.runtime, setup{leases: true, clock: f.config.Clock, checkpoint: f.config.Checkpoint})
		}, true},
		"the Configuration has no releaseUnreachableAfter any more": {func(t *testing.T, f *fixture, cut func(error)) *fixture {
			silence(t, f, cut)
			f.api.promise(t, 0)
			await.That(t, "the informer", func() bool {
				return f.configurations()[0].Spec.ReleaseUnreachableAfter == nil
			})
			return f
		}, false},
		"the Lease is forbidden": {func(t *testing.T, f *fixture, cut func(error)) *fixture {
			silence(t, f, cut)
			cut(forbidden)
			f.api.set(nil)
			return f
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			a, cut := promising(t)
			f := start(t, a, &fakeRuntime{}, setup{leases: true, clock: clocktesting.NewFakeClock(time.Unix(1e9, 0))})
			f.begin(t, "c1", "u1", "cam-a1-0")
			first := a.claim(t, "cam-a1-0").UID
			f = test.then(t, f, cut)
			f.mustCreate(t, "c2", "u1", "cam", "cam-a1-0")
			second := a.claim(t, "cam-a1-0")
			if second.UID == first || (second.Spec.ReleaseUnreachableAfter != nil) != test.promises {
				t.Errorf("UID %s after %s, promises %v, want another one, and a promise: %v", second.UID, first, second.Spec.ReleaseUnreachableAfter, test.promises)
			}
			f.mustCreate(t, "c3", "u1", "cam", "cam-a1-0")
			if third := a.claim(t, "cam-a1-0").UID; third != second.UID {
				t.Error("made anew once more, though it stands")
			}
		})
	}
}

// A process that starts while the API server is away does not know when the former one last reached
// it, and stops at once what was promised.
func TestStartWithoutTheAPIServerStopsPromised(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	a, cut := promising(t)
	s := setup{leases: true, clock: clock, checkpoint: t.TempDir() + "/c", device: &discovery.Device{ID: "foo"}}
	r := &fakeRuntime{}
	f := start(t, a, r, s)
	f.begin(t, "c1", "u1", "cam-a1-0")
	await.That(t, "the checkpoint", func() bool {
		saved := loadSaved(s.checkpoint, here)
		return len(saved.claims) == 1
	})
	f.kill()
	cut(errAway)
	s.unread = true
	f = start(t, a, r, s)
	await.That(t, "the runtime to be read", func() bool { return f.isKnown() })
	f.keepPromises(t.Context())
	if !f.runs(t, "c1") {
		t.Fatal("stopped before the API server was asked for a while")
	}
	clock.Step(fenceStartGrace)
	f.keepPromises(t.Context())
	await.That(t, "the container to be stopped: nobody knows for how long the node has been silent", func() bool {
		return !f.runs(t, "c1")
	})
	if f.savedHold(mustSlot(t, "cam-a1-0"), f.saved.claims[mustSlot(t, "cam-a1-0")].Spec) {
		t.Error("the checkpoint's claim is believed, though it may have been released")
	}
}

// A node that may not write its Lease promises nothing, and one without such claims writes none.
func TestNodeThatPromisesNothing(t *testing.T) {
	a, cut := promising(t)
	cut(apierrors.NewForbidden(akriv0.Resource("leases"), "kubecri.node-a", errors.New("no")))
	a.set(nil)
	f := start(t, a, &fakeRuntime{}, setup{leases: true})
	f.begin(t, "c1", "u1", "cam-a1-0")
	if d := a.claim(t, "cam-a1-0").Spec.ReleaseUnreachableAfter; d != nil {
		t.Errorf("promises %v", d)
	}
	if next := f.keepPromises(t.Context()); next != fenceIdle {
		t.Errorf("looks again after %v", next)
	}

	f = start(t, newAPI(t, 1, nil), &fakeRuntime{}, setup{leases: true})
	f.begin(t, "c1", "u1", "cam-a1-0")
	f.keepPromises(t.Context())
	if n := f.renewals(t); n != 0 {
		t.Errorf("%d renewals of a Lease that nobody asks for", n)
	}
}

// A claim that is made again says so: the node has objected to its deletion.
func TestClaimMadeAgainSaysSo(t *testing.T) {
	a, _ := promising(t)
	f := start(t, a, &fakeRuntime{}, setup{leases: true})
	f.begin(t, "c1", "u1", "cam-a1-0")
	if a.claim(t, "cam-a1-0").Spec.MadeAgain {
		t.Error("the first claim says that it was made again")
	}
	a.remove(t, "cam-a1-0")
	await.That(t, "the claim to be made again", func() bool { return a.claim(t, "cam-a1-0") != nil })
	spec := a.claim(t, "cam-a1-0").Spec
	if !spec.MadeAgain || spec.ReleaseUnreachableAfter == nil {
		t.Errorf("made again as %+v", spec)
	}
}
