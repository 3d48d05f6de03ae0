package claims

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	clocktesting "k8s.io/utils/clock/testing"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
)

func TestTakeWritesOnceForAnInstance(t *testing.T) {
	f := start(t, newAPI(t, cam("cam-a1", 3, nil)), &fakeRuntime{}, setup{})
	f.mustTake(t, "c1", request(t, "u1", "cam", "cam-a1-0", "cam", "cam-a1-2", "cam-a1", "cam-a1-1"))
	for name, want := range map[string]string{"cam-a1-0": "C:u1:node-a", "cam-a1-2": "C:u1:node-a", "cam-a1-1": "node-a"} {
		if got := f.api.usage(t, name); got != want {
			t.Errorf("deviceUsage of %s is %q, want %q", name, got, want)
		}
	}
	if n := f.api.writes(); n != 1 {
		t.Errorf("%d writes", n)
	}
	// The container restarts: its claims are there, and need no API server.
	f.api.set(true)
	f.mustTake(t, "c2", request(t, "u1", "cam", "cam-a1-0", "cam", "cam-a1-2", "cam-a1", "cam-a1-1"))
}

func TestTakeRetriesOnConflict(t *testing.T) {
	a := newAPI(t, cam("cam-a1", 2, nil))
	f := start(t, a, &fakeRuntime{}, setup{})
	a.before = func() {
		a.write(t, "cam-a1", func(in *akriv0.Instance) { in.Spec.DeviceUsage = map[string]string{"cam-a1-1": "node-b"} })
	}
	f.mustTake(t, "c1", request(t, "u1", "cam", "cam-a1-0"))
	f.wantUsage(t, "cam-a1-0", "C:u1:node-a")
	f.wantUsage(t, "cam-a1-1", "node-b")
}

func TestOneOfTwoNodesGetsTheLastSlot(t *testing.T) {
	a := newAPI(t, cam("cam-a1", 1, nil))
	fs := []*fixture{start(t, a, &fakeRuntime{}, setup{node: here}), start(t, a, &fakeRuntime{}, setup{node: there})}
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for i, f := range fs {
		r := request(t, fmt.Sprintf("u%d", i), "cam", "cam-a1-0")
		wg.Go(func() { _, errs[i] = f.Take(t.Context(), r) })
	}
	wg.Wait()
	if (errs[0] == nil) == (errs[1] == nil) {
		t.Fatalf("want one refused: %v", errs)
	}
	var r *Refusal
	if err := errors.Join(errs...); !errors.As(err, &r) || !strings.Contains(err.Error(), "cam-a1-0") {
		t.Errorf("the refusal is %v", err)
	}
}

func TestARefusedSlotGivesBackTheOthers(t *testing.T) {
	f := start(t, newAPI(t, cam("cam-a1", 1, nil), cam("cam-b2", 1, map[string]string{"cam-b2-0": "C:other:node-b"})), &fakeRuntime{}, setup{})
	_, err := f.Take(t.Context(), request(t, "u1", "cam", "cam-a1-0", "cam", "cam-b2-0"))
	var refusal *Refusal
	if !errors.As(err, &refusal) {
		t.Fatalf("got %v, want a refusal", err)
	}
	f.wantUsage(t, "cam-a1-0", "")
	f.wantUsage(t, "cam-b2-0", "C:other:node-b")
}

func TestReleaseWithTheLastContainer(t *testing.T) {
	for name, last := range map[string]func(*fixture){
		"removed":         func(f *fixture) { f.ContainerRemoved("c2") },
		"sandbox stopped": func(f *fixture) { f.SandboxStopped("box-u1") },
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, newAPI(t, cam("cam-a1", 2, nil)), &fakeRuntime{}, setup{})
			f.mustTake(t, "c1", request(t, "u1", "cam", "cam-a1-0"))
			f.mustTake(t, "c2", request(t, "u1", "cam", "cam-a1-0"))
			f.mustTake(t, "other", request(t, "u2", "cam-a1", "cam-a1-1"))
			f.ContainerRemoved("c1")
			f.ContainerRemoved("never heard of")
			if err := f.reconcile(t.Context(), "cam-a1"); err != nil {
				t.Fatal(err)
			}
			if got := f.api.usage(t, "cam-a1-0"); got != "C:u1:node-a" {
				t.Fatalf("released while a container uses it: %q", got)
			}
			last(f)
			f.wantUsage(t, "cam-a1-0", "")
			f.wantUsage(t, "cam-a1-1", "node-a")
			// The next pod gets it, whatever the informer shows by now.
			f.mustTake(t, "c3", request(t, "u3", "cam", "cam-a1-0"))
			f.wantUsage(t, "cam-a1-0", "C:u3:node-a")
		})
	}
}

func TestReleaseOutlastsAnAPIOutage(t *testing.T) {
	f := start(t, newAPI(t, cam("cam-a1", 1, nil)), &fakeRuntime{}, setup{})
	f.mustTake(t, "c1", request(t, "u1", "cam", "cam-a1-0"))
	f.api.set(true)
	f.ContainerRemoved("c1")
	if err := f.reconcile(t.Context(), "cam-a1"); err == nil {
		t.Fatal("no error while the API server is down")
	}
	if _, err := f.Take(t.Context(), request(t, "u2", "cam", "cam-a1-0")); err == nil {
		t.Fatal("a slot was taken while the API server is down")
	}
	f.api.set(false)
	f.wantUsage(t, "cam-a1-0", "")
}

func TestAnotherPodOfTheNodeIsRefused(t *testing.T) {
	f := start(t, newAPI(t, cam("cam-a1", 1, nil)), &fakeRuntime{}, setup{})
	f.mustTake(t, "c1", request(t, "u1", "cam-a1", "cam-a1-0"))
	// deviceUsage cannot tell: it says node-a for both.
	_, err := f.Take(t.Context(), request(t, "u2", "cam-a1", "cam-a1-0"))
	if err == nil || !strings.Contains(err.Error(), "ns/pod-u1") {
		t.Errorf("got %v, want a refusal that names ns/pod-u1", err)
	}
}

func TestAFailedCreateReleases(t *testing.T) {
	f := start(t, newAPI(t, cam("cam-a1", 2, nil)), &fakeRuntime{}, setup{})
	f.mustTake(t, "c1", request(t, "u1", "cam", "cam-a1-1"))
	taken, err := f.Take(t.Context(), request(t, "u1", "cam", "cam-a1-0", "cam", "cam-a1-1"))
	if err != nil {
		t.Fatal(err)
	}
	taken.Failed(status.Error(codes.Unknown, "no such image"))
	f.wantUsage(t, "cam-a1-0", "")
	f.wantUsage(t, "cam-a1-1", "C:u1:node-a") // c1 has it
}

// The kubelet's deadline may pass although the runtime creates the container.
func TestAnUncertainCreateIsLeftToTheRuntimesWord(t *testing.T) {
	f := start(t, newAPI(t, cam("cam-a1", 1, nil)), &fakeRuntime{}, setup{})
	taken, err := f.Take(t.Context(), request(t, "u1", "cam", "cam-a1-0"))
	if err != nil {
		t.Fatal(err)
	}
	f.runtime.add(t, "c1", "u1", "u1@cam-a1-0")
	taken.Failed(status.Error(codes.DeadlineExceeded, "late"))
	for deadline := time.Now().Add(10 * time.Second); len(f.book.uses("cam-a1").held) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("in 10 s the runtime was not asked")
		}
	}
	f.wantUsage(t, "cam-a1-0", "C:u1:node-a")
	f.ContainerRemoved("c1")
	f.wantUsage(t, "cam-a1-0", "")
}

func TestStartAgreesWithTheRuntime(t *testing.T) {
	r := &fakeRuntime{stopped: map[string]bool{"box-dead": true}}
	r.add(t, "c1", "u1", "u1@cam-a1-0", "cam-b2-0")
	r.add(t, "c2", "dead", "dead@cam-a1-1")
	r.add(t, "c3", "u3", "u3@cam-a1-2")
	r.add(t, "c4", "u4", "u4@cam-a1-5")
	clock := clocktesting.NewFakeClock(time.Now())
	a := newAPI(t, cam("cam-b2", 1, nil), cam("cam-a1", 6, map[string]string{
		"cam-a1-0": "", // c1's claim was lost
		"cam-a1-1": "C:dead:node-a",
		"cam-a1-2": "C:u3:node-a",
		"cam-a1-3": "C:gone:node-b",
		"cam-a1-4": "node-a",
		"cam-a1-5": "C:thief:node-b",
	}))
	f := start(t, a, r, setup{grace: 20 * time.Second, clock: clock})
	f.wantUsage(t, "cam-a1-0", "C:u1:node-a")
	f.wantUsage(t, "cam-b2-0", "node-a")
	select {
	case event := <-f.events.Events:
		for _, part := range []string{"SlotLost", "cam-a1-5", "thief"} {
			if !strings.Contains(event, part) {
				t.Errorf("event %q does not say %q", event, part)
			}
		}
	case <-time.After(10 * time.Second):
		t.Fatal("no event for the lost slot in 10 s")
	}
	// A claim of this node in its grace is neither released nor given away.
	if _, err := f.Take(t.Context(), request(t, "u9", "cam", "cam-a1-1")); err == nil {
		t.Error("took a claim in its grace")
	}
	clock.Step(19 * time.Second)
	if err := f.reconcile(t.Context(), "cam-a1"); err != nil {
		t.Fatal(err)
	}
	if got := f.api.usage(t, "cam-a1-4"); got != "node-a" {
		t.Errorf("released before its grace was over: %q", got)
	}
	clock.Step(2 * time.Second)
	f.wantUsage(t, "cam-a1-1", "")
	f.wantUsage(t, "cam-a1-4", "")
	for name, want := range map[string]string{"cam-a1-2": "C:u3:node-a", "cam-a1-3": "C:gone:node-b", "cam-a1-5": "C:thief:node-b"} {
		if got := f.api.usage(t, name); got != want {
			t.Errorf("deviceUsage of %s is %q, want %q", name, got, want)
		}
	}
	select {
	case event := <-f.events.Events:
		t.Errorf("told again: %s", event)
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
	f := start(t, newAPI(t, cam("cam-a1", 3, map[string]string{"cam-a1-1": "C:u2:node-a", "cam-a1-2": "C:u1:node-a"})), r, setup{clock: clock, grace: time.Minute})
	f.wantUsage(t, "cam-a1-0", "C:u1:node-a")                  // remade
	f.wantUsage(t, "cam-a1-1", "C:u2:node-a")                  // within its grace
	if err := f.reconcile(t.Context(), "cam-a1"); err != nil { // knows of the orphans from here on
		t.Fatal(err)
	}
	clock.Step(2 * time.Minute)
	f.wantUsage(t, "cam-a1-1", "") // what somebody wrote grants nothing
	f.wantUsage(t, "cam-a1-2", "") // no container uses it
	f.wantUsage(t, "cam-a1-0", "C:u1:node-a")
	r.change(func() { r.stopped = map[string]bool{"box-u1": true} }) // and c1 has exited
	f.Resync()
	f.wantUsage(t, "cam-a1-0", "")
}

func TestAClaimLostLaterIsRemade(t *testing.T) {
	f := start(t, newAPI(t, cam("cam-a1", 1, nil)), &fakeRuntime{}, setup{})
	f.mustTake(t, "c1", request(t, "u1", "cam", "cam-a1-0"))
	f.api.write(t, "cam-a1", func(in *akriv0.Instance) { in.Spec.DeviceUsage["cam-a1-0"] = "" })
	f.wantUsage(t, "cam-a1-0", "C:u1:node-a")
}

func TestTakeWaitsForTheRuntimesWord(t *testing.T) {
	r := &fakeRuntime{down: true}
	f := start(t, newAPI(t, cam("cam-a1", 1, nil)), r, setup{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := f.Take(ctx, request(t, "u1", "cam", "cam-a1-0")); err == nil || !strings.Contains(err.Error(), "runtime") {
		t.Errorf("got %v, want an error that names the runtime", err)
	}
	r.mu.Lock()
	r.down = false
	r.mu.Unlock()
	f.Resync()
	f.mustTake(t, "c1", request(t, "u1", "cam", "cam-a1-0"))
}

func TestMissingInstance(t *testing.T) {
	f := start(t, newAPI(t), &fakeRuntime{}, setup{})
	var refusal *Refusal
	if _, err := f.Take(t.Context(), request(t, "u1", "cam", "cam-a1-0")); !errors.As(err, &refusal) || !strings.Contains(err.Error(), "cam-a1") {
		t.Errorf("got %v, want a refusal that names cam-a1", err)
	}
}

// An Instance that the informer does not show yet is looked up.
func TestTakeBeforeTheInformerKnows(t *testing.T) {
	a := newAPI(t, cam("cam-a1", 1, nil))
	f := start(t, a, &fakeRuntime{}, setup{})
	obj, _, _ := f.store.indexer.GetByKey("default/cam-a1")
	if err := f.store.indexer.Delete(obj); err != nil {
		t.Fatal(err)
	}
	f.mustTake(t, "c1", request(t, "u1", "cam", "cam-a1-0"))
	f.wantUsage(t, "cam-a1-0", "C:u1:node-a")
}
