package claims

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

func TestTakeCreatesAClaimForEachSlot(t *testing.T) {
	f := start(t, newAPI(t, 3, nil), &fakeRuntime{}, setup{})
	slots := []string{"cam", "cam-a1-0", "cam", "cam-a1-2", "cam-a1", "cam-a1-1"}
	f.mustCreate(t, "c1", "u1", slots...)
	for name, level := range map[string]v1alpha1.Level{"cam-a1-0": "CL", "cam-a1-2": "CL", "cam-a1-1": "IL"} {
		want := &v1alpha1.SlotClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.ConfigurationLabel: "cam"},
			OwnerReferences: []metav1.OwnerReference{v1alpha1.NodeOwner(here, "uid-a")}},
			Spec: v1alpha1.SlotClaimSpec{NodeName: here, Container: "main", Level: level, Holder: "u1",
				Pod: &v1alpha1.PodReference{Namespace: "ns", Name: "pod-u1", UID: "u1"}}}
		got := f.api.claim(t, name).DeepCopy()
		got.UID = ""
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("claim of slot %s (-want +got):\n%s", name, diff)
		}
	}
	// The container restarts: its claims are there, and need no API server.
	f.api.set(away)
	f.mustCreate(t, "c2", "u1", slots...)
}

// What Take says to a slot that has a claim already.
func TestTakeOfAClaimedSlot(t *testing.T) {
	for _, test := range []struct {
		name, claim string
		change      func(*v1alpha1.SlotClaim)
		instance    bool  // requested by its name
		capacity    int32 // more than 2
		writes      int
		errors      []string
	}{
		{name: "free", writes: 1},
		{name: "the pod's already", claim: "CL u1 node-a"},
		{name: "the pod's already, through the Instance", claim: "IL u1 node-a", instance: true},
		{name: "held by another pod", claim: "CL u2 node-a", errors: []string{"cam-a1-1", `container "main" of pod ns/pod-u2 on node node-a`, "creation is retried"}},
		{name: "held through the Instance by another pod", claim: "IL u2 node-a", instance: true, errors: []string{"ns/pod-u2 on node node-a"}},
		{name: "held on another node", claim: "CL u1 node-b", errors: []string{"node-b"}},
		{name: "held at the other level", claim: "IL u1 node-a", errors: []string{"cam-a1-1"}},
		{name: "held for a pod as a whole", claim: "CL u2 node-b", change: func(c *v1alpha1.SlotClaim) { c.Spec.Container = "" }, errors: []string{"by pod ns/pod-u2 on node node-b"}},
		{name: "held by a device of the kubelet", claim: "CL cam-7 node-b", change: func(c *v1alpha1.SlotClaim) { c.Spec.Pod = nil }, errors: []string{`(holder "cam-7") on node node-b`}},
		{name: "the pod's, but it is to go", claim: "CL u1 node-a", change: func(c *v1alpha1.SlotClaim) { c.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} },
			errors: []string{"is being deleted"}},
		{name: "beyond the capacity", capacity: -1, errors: []string{"cam-a1-1", "Configuration cam", "capacity 1"}},
		{name: "beyond the capacity, and the pod's already: the capacity shrank", capacity: -1, claim: "CL u1 node-a"},
		{name: "beyond the capacity, and another pod's", capacity: -1, claim: "CL u2 node-a", errors: []string{"capacity 1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := newAPI(t, 2+test.capacity, nil)
			if test.claim != "" {
				claim := claimed(t, "cam-a1-1", test.claim)
				if test.change != nil {
					test.change(claim)
				}
				if err := a.add(claim); err != nil {
					t.Fatal(err)
				}
			}
			resource := "cam"
			if test.instance {
				resource = "cam-a1"
			}
			_, err := start(t, a, &fakeRuntime{}, setup{}).Take(t.Context(), request(t, "u1", resource, "cam-a1-1"))
			var refusal *Refusal
			if errors.As(err, &refusal) != (test.errors != nil) || err != nil && refusal == nil {
				t.Fatalf("error %v, want a refusal with %q", err, test.errors)
			}
			for _, part := range test.errors {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
			if n := a.writes(); n != test.writes {
				t.Errorf("%d writes, want %d", n, test.writes)
			}
		})
	}
}

// Between what Take knows and what it does, a claim may come and go.
func TestTakeOfAClaimThatChangesMeanwhile(t *testing.T) {
	for name, meanwhile := range map[string]func(a *api, verb string){
		"the scheduler creates it for the pod": func(a *api, verb string) {
			if verb == "create" {
				a.put(t, "cam-a1-0", "CL u1 node-a")
			}
		},
		"another's is there, and goes": func(a *api, verb string) {
			if a.who(t, "cam-a1-0") == "" && verb == "create" {
				a.put(t, "cam-a1-0", "CL u2 node-b")
			} else if verb == "get" {
				a.remove(t, "cam-a1-0")
				a.set(nil)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t, 1, nil)
			f := start(t, a, &fakeRuntime{}, setup{})
			a.set(func(verb string, do func() error) error { meanwhile(a, verb); return do() })
			f.mustCreate(t, "c1", "u1", "cam", "cam-a1-0")
			f.still(t, "cam-a1-0", "CL u1 node-a")
		})
	}
}

// A device that is not shared is this node's alone, by its Instance's hash. Another node
// that claims its slots, even for ever, keeps no pod here from it, and the claim is made
// when the other's is gone. Slots of shared devices may be another's.
func TestAnotherNodesClaimOfADeviceThatIsOnlyHere(t *testing.T) {
	device := discovery.Device{ID: "stick"}
	own := slot.InstanceName("cam", slot.InstanceHash("stick", false, here, slot.ShortHash)) + "-0"
	theirs := slot.InstanceName("cam", slot.InstanceHash("stick", false, there, slot.ShortHash)) + "-0"
	shared := slot.InstanceName("cam", slot.InstanceHash("stick", true, "", slot.ShortHash)) + "-0"
	t.Run("stands", func(t *testing.T) {
		f := start(t, newAPI(t, 1, map[string]string{own: "CL u9 node-b"}), &fakeRuntime{}, setup{device: &device})
		f.mustCreate(t, "c1", "u1", "cam", own)
		f.wantEvent(t, "ClaimNotBelieved", own, "node-b")
		f.still(t, own, "CL u9 node-b")
		if err := f.create(t, "c2", "u2", "cam", own); err == nil || !strings.Contains(err.Error(), "is used by container") {
			t.Errorf("another pod of this node: %v, want a refusal", err)
		}
		f.api.remove(t, own)
		f.still(t, own, "CL u1 node-a")
		f.remove("c1")
		f.want(t, own, "")
	})
	t.Run("comes and goes all the time", func(t *testing.T) {
		a := newAPI(t, 1, nil)
		f := start(t, a, &fakeRuntime{}, setup{device: &device})
		a.set(func(verb string, do func() error) error {
			if verb == "create" {
				a.put(t, own, "CL u9 node-b")
				defer a.remove(t, own)
			}
			return do()
		})
		taken, err := f.Take(t.Context(), request(t, "u1", "cam", own))
		if err != nil {
			t.Fatal(err)
		}
		taken.Failed(errors.New("no"))
	})
	for _, name := range []string{theirs, shared} {
		t.Run("refused: "+name, func(t *testing.T) {
			f := start(t, newAPI(t, 1, map[string]string{name: "CL u9 node-b"}), &fakeRuntime{}, setup{device: &device})
			if err := f.create(t, "c1", "u1", "cam", name); err == nil || !strings.Contains(err.Error(), "node-b") {
				t.Errorf("%v, want a refusal", err)
			}
		})
	}
}

// What is deleted is the claim that was looked at, not another that came since.
func TestAReleaseLeavesANewClaimOfTheSlot(t *testing.T) {
	for _, next := range []string{"CL u2 node-b", ""} {
		f := start(t, newAPI(t, 1, nil), &fakeRuntime{}, setup{})
		f.mustCreate(t, "c1", "u1", "cam", "cam-a1-0")
		f.api.set(func(verb string, do func() error) error {
			if verb == "delete" {
				f.api.remove(t, "cam-a1-0")
				if next != "" {
					f.api.put(t, "cam-a1-0", next)
				}
				f.api.set(nil)
			}
			return do()
		})
		f.remove("c1")
		f.Drain(t.Context())
		f.still(t, "cam-a1-0", next)
	}
}

func TestOneOfTwoNodesGetsTheLastSlot(t *testing.T) {
	a := newAPI(t, 1, nil)
	nodes := []string{here, there}
	fs := []*fixture{start(t, a, &fakeRuntime{}, setup{node: here}), start(t, a, &fakeRuntime{}, setup{node: there})}
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for i, f := range fs {
		r := request(t, fmt.Sprintf("u%d", i), "cam", "cam-a1-0")
		wg.Go(func() { _, errs[i] = f.Take(t.Context(), r) })
	}
	wg.Wait()
	winner := 0
	if errs[0] != nil {
		winner = 1
	}
	var refusal *Refusal
	want := fmt.Sprintf(`slot cam-a1-0 is claimed by container "main" of pod ns/pod-u%d on node %s`, winner, nodes[winner])
	if err := errs[1-winner]; errs[winner] != nil || !errors.As(err, &refusal) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want one refusal with %q", errs, want)
	}
}

func TestARefusedSlotGivesBackTheOthers(t *testing.T) {
	f := start(t, newAPI(t, 2, map[string]string{"cam-b2-0": "CL u9 node-b", "cam-c3-0": "CL u1 node-a"}), &fakeRuntime{}, setup{})
	_, err := f.Take(t.Context(), request(t, "u1", "cam", "cam-a1-0", "cam", "cam-b2-0", "cam", "cam-c3-0", "cam-a1", "cam-a1-1"))
	var refusal *Refusal
	if !errors.As(err, &refusal) {
		t.Fatalf("got %v, want a refusal", err)
	}
	f.Drain(t.Context())
	for name, want := range map[string]string{"cam-a1-0": "", "cam-a1-1": "", "cam-b2-0": "CL u9 node-b", "cam-c3-0": "CL u1 node-a"} {
		f.still(t, name, want)
	}
}

func TestReleaseWithTheLastContainer(t *testing.T) {
	for name, last := range map[string]func(*fixture){
		"removed":         func(f *fixture) { f.Removed("c2") },
		"sandbox stopped": func(f *fixture) { f.Removed("box-u1") },
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, newAPI(t, 2, nil), &fakeRuntime{}, setup{})
			init := request(t, "u1", "cam", "cam-a1-0")
			init.Container = "init"
			taken, err := f.Take(t.Context(), init)
			if err != nil {
				t.Fatal(err)
			}
			taken.Created("c1")
			f.mustCreate(t, "c2", "u1", "cam", "cam-a1-0")
			f.mustCreate(t, "other", "u2", "cam-a1", "cam-a1-1")
			f.Removed("c1")
			f.Removed("never heard of")
			f.still(t, "cam-a1-0", "CL u1 node-a")
			if got := f.api.claim(t, "cam-a1-0").Spec.Container; got != "init" {
				t.Errorf("the claim is of container %q", got)
			}
			last(f)
			f.want(t, "cam-a1-0", "")
			f.still(t, "cam-a1-1", "IL u2 node-a")
			// The next pod gets it, whatever the informer shows by now.
			f.mustCreate(t, "c3", "u3", "cam", "cam-a1-0")
			f.still(t, "cam-a1-0", "CL u3 node-a")
		})
	}
}

func TestReleaseOutlastsAnAPIOutage(t *testing.T) {
	f := start(t, newAPI(t, 1, nil), &fakeRuntime{}, setup{})
	f.mustCreate(t, "c1", "u1", "cam", "cam-a1-0")
	f.api.set(away)
	f.Removed("c1")
	if err := f.reconcile(t.Context(), mustSlot(t, "cam-a1-0")); err == nil {
		t.Fatal("no error while the API server is down")
	}
	if _, err := f.Take(t.Context(), request(t, "u2", "cam", "cam-a1-0")); err == nil {
		t.Fatal("a slot was taken while the API server is down")
	}
	f.podGone(boundPod(t, "u2", "cam", "cam-a1-0")) // it waits no longer
	f.api.set(nil)
	f.want(t, "cam-a1-0", "")
}

func TestAnotherPodOfTheNodeIsRefused(t *testing.T) {
	f := start(t, newAPI(t, 1, nil), &fakeRuntime{}, setup{})
	f.mustCreate(t, "c1", "u1", "cam-a1", "cam-a1-0")
	next := request(t, "u2", "cam-a1", "cam-a1-0")
	next.Pod.Name = "pod-u1" // it came after the other
	_, err := f.Take(t.Context(), next)
	if err == nil || !strings.Contains(err.Error(), "ns/pod-u1 on this node") {
		t.Errorf("got %v, want a refusal that names ns/pod-u1", err)
	}
}

func TestAFailedCreateReleases(t *testing.T) {
	f := start(t, newAPI(t, 2, nil), &fakeRuntime{}, setup{})
	f.mustCreate(t, "c1", "u1", "cam", "cam-a1-1")
	taken, err := f.Take(t.Context(), request(t, "u1", "cam", "cam-a1-0", "cam", "cam-a1-1"))
	if err != nil {
		t.Fatal(err)
	}
	taken.Failed(status.Error(codes.Unknown, "no such image"))
	f.want(t, "cam-a1-0", "")
	f.still(t, "cam-a1-1", "CL u1 node-a") // c1 has it
}

// The kubelet's deadline may pass although the runtime creates the container.
func TestAnUncertainCreateIsLeftToTheRuntimesWord(t *testing.T) {
	f := start(t, newAPI(t, 1, nil), &fakeRuntime{}, setup{})
	taken, err := f.Take(t.Context(), request(t, "u1", "cam", "cam-a1-0"))
	if err != nil {
		t.Fatal(err)
	}
	f.runtime.add(t, "c1", "u1", "cam", "cam-a1-0")
	taken.Failed(status.Error(codes.DeadlineExceeded, "late"))
	await.That(t, "the runtime to be asked", func() bool { return f.containers.has("c1") })
	f.still(t, "cam-a1-0", "CL u1 node-a")
	f.Removed("c1")
	f.want(t, "cam-a1-0", "")
}

func TestStartAgreesWithTheRuntime(t *testing.T) {
	r := &fakeRuntime{stopped: map[string]bool{"box-dead": true}}
	r.add(t, "c1", "u1", "cam", "cam-a1-0", "cam-b2", "cam-b2-0")
	r.add(t, "c2", "dead", "cam", "cam-a1-1")
	r.add(t, "c3", "u3", "cam", "cam-a1-2")
	r.add(t, "c4", "u4", "cam", "cam-a1-5")
	clock := clocktesting.NewFakeClock(time.Now())
	f := start(t, newAPI(t, 6, map[string]string{ // c1's claims were lost
		"cam-a1-1": "CL dead node-a",
		"cam-a1-2": "CL u3 node-a",
		"cam-a1-3": "CL gone node-b",
		"cam-a1-4": "IL gone node-a",
		"cam-a1-5": "CL thief node-b",
	}), r, setup{grace: 20 * time.Second, clock: clock})
	f.want(t, "cam-a1-0", "CL u1 node-a")
	f.want(t, "cam-b2-0", "IL u1 node-a")
	f.wantEvent(t, "SlotLost", "cam-a1-5", "ns/pod-thief", there)
	// A claim of this node in its grace is neither released nor given away.
	if _, err := f.Take(t.Context(), request(t, "u9", "cam", "cam-a1-1")); err == nil {
		t.Error("took a claim in its grace")
	}
	f.still(t, "cam-a1-1", "CL dead node-a")
	f.still(t, "cam-a1-4", "IL gone node-a")
	clock.Step(19 * time.Second)
	f.still(t, "cam-a1-4", "IL gone node-a")
	clock.Step(2 * time.Second)
	f.want(t, "cam-a1-1", "")
	f.want(t, "cam-a1-4", "")
	for name, want := range map[string]string{"cam-a1-2": "CL u3 node-a", "cam-a1-3": "CL gone node-b", "cam-a1-5": "CL thief node-b"} {
		f.still(t, name, want)
	}
	select {
	case event := <-f.events.Events:
		t.Errorf("recorded again: %s", event)
	default:
	}
}

// CRI does not show the annotations that NRI gave a container.
func TestContainersOfNRIUseWhatTheirPodsWereAssigned(t *testing.T) {
	r := &fakeRuntime{}
	r.add(t, "c1", "u1")
	r.add(t, "c2", "u2")
	assigned := func(uid, node, slot string) map[string]string {
		return map[string]string{assignment.HolderAnnotation: uid, assignment.Annotation: fmt.Sprintf(
			`{"nodename":%q,"runningcontainer":{"main":{"allocatefrom":{"akri.sh/cam/0":%q}},"side":{"allocatefrom":{"akri.sh/cam/0":"cam-a1-2"}}}}`, node, slot)}
	}
	r.pods = map[string]map[string]string{"box-u1": assigned("u1", here, "cam-a1-0"), "box-u2": assigned("forged", here, "cam-a1-1")}
	clock := clocktesting.NewFakeClock(time.Now())
	f := start(t, newAPI(t, 3, map[string]string{"cam-a1-1": "CL u2 node-a", "cam-a1-2": "CL u1 node-a"}), r, setup{clock: clock, grace: time.Minute})
	f.want(t, "cam-a1-0", "CL u1 node-a")  // made again
	f.still(t, "cam-a1-1", "CL u2 node-a") // within its grace
	f.still(t, "cam-a1-2", "CL u1 node-a")
	clock.Step(2 * time.Minute)
	f.want(t, "cam-a1-1", "") // what somebody wrote grants nothing
	f.want(t, "cam-a1-2", "") // no container uses it
	f.still(t, "cam-a1-0", "CL u1 node-a")
	r.change(func() { r.stopped = map[string]bool{"box-u1": true} }) // and c1 has exited
	f.Resync()
	f.want(t, "cam-a1-0", "")
}

func TestTakeWaitsForTheRuntimesWord(t *testing.T) {
	r := &fakeRuntime{down: true}
	f := start(t, newAPI(t, 1, map[string]string{"cam-b2-0": "CL u2 node-a"}), r, setup{grace: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := f.Take(ctx, request(t, "u1", "cam", "cam-a1-0")); err == nil || !strings.Contains(err.Error(), "runtime") {
		t.Errorf("got %v, want an error that names the runtime", err)
	}
	<-f.synced
	f.still(t, "cam-b2-0", "CL u2 node-a")
	await.That(t, "the claims to be looked at", func() bool { return len(f.store.names()) == 1 && f.queue.Len() == 0 })
	r.change(func() { r.down = false })
	f.Resync()
	f.mustCreate(t, "c1", "u1", "cam", "cam-a1-0")
	f.want(t, "cam-b2-0", "") // nobody's, as the runtime says
}
