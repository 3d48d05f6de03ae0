package claims

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubeslot/kubeslot/kubecri/crilist"
	"github.com/kubeslot/kubeslot/test/await"
)

// Containers whose slots would be released are stopped side by side, and none gets more than half of
// the time that is left to end by itself.
func TestPromisedContainersStopInParallel(t *testing.T) {
	for after, grace := range map[time.Duration]int64{60 * time.Second: 5, 76 * time.Second: 2, 79500 * time.Millisecond: 0, 100 * time.Second: 0} {
		t.Run(after.String(), func(t *testing.T) {
			clock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
			a, cut := promising(t)
			f := start(t, a, &fakeRuntime{}, setup{leases: true, clock: clock})
			const n = 6
			for i := range n {
				f.begin(t, fmt.Sprint("c", i), fmt.Sprint("u", i), fmt.Sprintf("cam-a%d-0", i))
			}
			var begun atomic.Int32
			all := make(chan struct{})
			var mu sync.Mutex
			var graces []int64
			f.runtime.change(func() {
				f.runtime.stopping = func(ctx context.Context, in *runtimeapi.StopContainerRequest) error {
					mu.Lock()
					graces = append(graces, in.Timeout)
					mu.Unlock()
					if begun.Add(1) == n {
						close(all)
					}
					select {
					case <-all:
						return nil
					case <-time.After(time.Minute):
						return errors.New("the others are not stopped meanwhile")
					}
				}
			})
			cut(errAway)
			clock.Step(after)
			f.keepPromises(t.Context())
			await.That(t, "all to be stopped", func() bool {
				for i := range n {
					if f.runs(t, fmt.Sprint("c", i)) {
						return false
					}
				}
				return true
			})
			mu.Lock()
			defer mu.Unlock()
			if slices.ContainsFunc(graces, func(g int64) bool { return g != grace }) {
				t.Errorf("grace periods %v, want %d s", graces, grace)
			}
		})
	}
}

// A renewal of the Lease that hangs does not delay a stop.
func TestHangingRenewalDelaysNoStop(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	a, _ := promising(t)
	var hang atomic.Bool
	f := start(t, a, &fakeRuntime{}, setup{leases: true, clock: clock, hangs: func(ctx context.Context) {
		if !hang.Load() {
			return
		}
		if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > fenceStopRetry {
			t.Errorf("a renewal right before a stop has until %v, or for ever (%t)", deadline, !ok)
		}
		<-ctx.Done()
	}})
	f.begin(t, "c1", "u1", "cam-a1-0")
	f.kill() // its own loop, which renews at any time
	hang.Store(true)
	clock.Step(60*time.Second - 50*time.Millisecond)
	f.keepPromises(t.Context())
	clock.Step(50 * time.Millisecond)
	f.keepPromises(t.Context())
	await.That(t, "the stop", func() bool { return !f.runs(t, "c1") })
}

// A container that has been created and not started is removed, for the runtime does not stop it, and
// the kubelet starts it. One that is being started cannot be removed: it is stopped when it runs.
func TestCreatedContainerIsNotStarted(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	a, cut := promising(t)
	f := start(t, a, &fakeRuntime{}, setup{leases: true, clock: clock})
	f.mustCreate(t, "c1", "u1", "cam", "cam-a1-0")
	f.mustCreate(t, "c2", "u2", "cam", "cam-a1-1")
	state := func(id string, s runtimeapi.ContainerState) {
		f.runtime.change(func() {
			for _, c := range f.runtime.containers {
				if c.Id == id {
					c.State = s
				}
			}
		})
	}
	there := func(id string) bool {
		f.runtime.mu.Lock()
		defer f.runtime.mu.Unlock()
		return slices.ContainsFunc(f.runtime.containers, func(c *runtimeapi.Container) bool { return c.Id == id })
	}
	state("c1", runtimeapi.ContainerState_CONTAINER_CREATED)
	state("c2", runtimeapi.ContainerState_CONTAINER_CREATED)
	late, err := f.Take(t.Context(), request(t, "u3", "cam", "cam-b2-0"))
	if err != nil {
		t.Fatal(err)
	}
	f.runtime.change(func() { f.runtime.starting = true })
	cut(errAway)
	clock.Step(60 * time.Second)
	f.keepPromises(t.Context())
	await.That(t, "a try", func() bool { f.keepPromises(t.Context()); return there("c1") })
	state("c2", runtimeapi.ContainerState_CONTAINER_RUNNING)
	f.runtime.change(func() { f.runtime.starting = false })
	await.That(t, "the created one to be removed and the started one to be stopped", func() bool {
		f.keepPromises(t.Context())
		return !there("c1") && !f.runs(t, "c2")
	})

	t.Log("the runtime has created one meanwhile")
	f.runtime.add(t, "c3", "u3", "cam", "cam-b2-0")
	state("c3", runtimeapi.ContainerState_CONTAINER_CREATED)
	late.Created("c3")
	await.That(t, "it to be removed at once", func() bool { return !there("c3") })
}

// A node that comes back, and whose slot another has claimed meanwhile as it had promised, stops its
// container, and says so: kubecri was frozen or the machine suspended, or kubecri did not run.
func TestLostPromisedSlotIsStopped(t *testing.T) {
	for name, restart := range map[string]bool{"frozen": false, "restarted": true} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
			a, _ := promising(t)
			s := setup{leases: true, clock: clock, checkpoint: filepath.Join(t.TempDir(), "checkpoint")}
			f := start(t, a, &fakeRuntime{}, s)
			f.begin(t, "c1", "u1", "cam-a1-0")
			if restart {
				f.kill()
			}
			clock.Step(100 * time.Second)
			a.replace(t, "cam-a1-0", "CL u2 node-b")
			if restart {
				f = start(t, a, f.runtime, s)
			}
			f.wantEvent(t, "SlotReleased", "main", "cam-a1-0", "ns/pod-u2", there, "delete the pod")
			if f.runs(t, "c1") {
				t.Error("both run")
			}
			f.still(t, "cam-a1-0", "CL u2 node-b")
			if len(f.events.Events) > 0 {
				t.Error(<-f.events.Events)
			}
		})
	}
}

// replace replaces a claim by another's.
func (a *api) replace(t *testing.T, name, text string) {
	t.Helper()
	a.mu.Lock()
	a.uids++
	claim := claimed(t, name, text)
	claim.UID = "other"
	a.mu.Unlock()
	replaced := make(chan struct{})
	a.set(func(_ string, do func() error) error { <-replaced; return do() }) // the node does not make it again between
	a.remove(t, name)
	err := a.Tracker().Create(claimResource, claim, "")
	a.set(nil)
	close(replaced)
	if err != nil {
		t.Fatal(err)
	}
}

// A container that was stopped uses its slot no more: its claim is not made again when the controller
// has released it, and nobody is told of two users when another has claimed it. Also by the next
// process.
func TestStoppedContainerUsesNoSlot(t *testing.T) {
	for _, restart := range []bool{false, true} {
		for _, now := range []string{"", "CL u2 node-b"} {
			t.Run(fmt.Sprintf("restart %v, claimed %q", restart, now), func(t *testing.T) {
				clock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
				a, cut := promising(t)
				s := setup{leases: true, clock: clock, checkpoint: filepath.Join(t.TempDir(), "checkpoint")}
				f := start(t, a, &fakeRuntime{}, s)
				f.begin(t, "c1", "u1", "cam-a1-0")
				cut(errAway)
				clock.Step(61 * time.Second)
				f.keepPromises(t.Context())
				await.That(t, "the stop", func() bool { return !f.containers.uses(mustSlot(t, "cam-a1-0")) })
				if restart {
					f.kill()
				}
				a.remove(t, "cam-a1-0")
				if now != "" {
					a.put(t, "cam-a1-0", now)
				}
				cut(nil)
				if restart {
					f = start(t, a, f.runtime, s)
				}
				await.That(t, "the informer", func() bool { return f.store.get(mustSlot(t, "cam-a1-0")) == nil })
				f.still(t, "cam-a1-0", now)
				if len(f.events.Events) > 0 {
					t.Error(<-f.events.Events)
				}
			})
		}
	}
}

// A promise is in the checkpoint before its container is created. Where that cannot be written,
// nothing is promised.
func TestNoPromiseWithoutCheckpoint(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	a, _ := promising(t)
	path := filepath.Join(t.TempDir(), "checkpoint")
	temporary := filepath.Join(filepath.Dir(path), ".checkpoint.tmp")
	f := start(t, a, &fakeRuntime{}, setup{leases: true, clock: clock, checkpoint: path})
	f.mustCreate(t, "c1", "u1", "cam", "cam-a1-0")
	if saved := loadSaved(path, here); len(saved.claims) != 1 {
		t.Errorf("the checkpoint has %v", saved.claims)
	}
	if err := os.MkdirAll(temporary+"/in-the-way", 0o700); err != nil {
		t.Fatal(err)
	}
	err := f.create(t, "c2", "u2", "cam", "cam-a1-1")
	if err == nil {
		t.Fatal("a container whose promise is not in the checkpoint")
	}
	for _, part := range []string{"cam-a1-1", "main", "ns/pod-u2", path, "writable"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
	if who := a.who(t, "cam-a1-1"); who != "" {
		t.Errorf("slot of %s, want the claim released", who)
	}
	f.mustCreate(t, "c2", "u2", "cam", "cam-a1-1")
	if d := a.claim(t, "cam-a1-1").Spec.ReleaseUnreachableAfter; d != nil {
		t.Errorf("promises %v, though that cannot be kept", d)
	}
	await.That(t, "the way to be free", func() bool { return os.RemoveAll(temporary) == nil })
	await.That(t, "the checkpoint", func() bool {
		clock.Step(crilist.MaxRetry / 4)
		return f.CheckpointError() == nil
	})
	f.mustCreate(t, "c3", "u3", "cam", "cam-b2-0")
	if a.claim(t, "cam-b2-0").Spec.ReleaseUnreachableAfter == nil {
		t.Error("promises nothing, though the checkpoint is written")
	}
}

// Silence is measured by a clock that counts the time that the machine was suspended.
func TestSilenceCountsSuspend(t *testing.T) {
	c := silenceClock(clock.RealClock{})
	uptime := func() float64 {
		t.Helper()
		text, err := os.ReadFile("/proc/uptime")
		if err != nil {
			t.Fatal(err)
		}
		seconds, err := strconv.ParseFloat(strings.Fields(string(text))[0], 64)
		if err != nil {
			t.Fatal(err)
		}
		return seconds
	}
	before := uptime()
	now := c.Now().Sub(time.Unix(0, 0)).Seconds()
	if after := uptime(); now < before-1 || now > after+1 {
		t.Errorf("%v s since the start, want %v to %v", now, before, after)
	}
	if fake := clocktesting.NewFakeClock(time.Now()); silenceClock(fake) != clock.PassiveClock(fake) {
		t.Error("another clock than was given")
	}
}
