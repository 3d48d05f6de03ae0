package claims

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/kubecri/crilist"
	"github.com/kubeslot/kubeslot/test/await"
)

const (
	deleted = runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
	stopped = runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
)

func event(id string, what runtimeapi.ContainerEventType) *runtimeapi.ContainerEventResponse {
	return &runtimeapi.ContainerEventResponse{ContainerId: id, ContainerEventType: what}
}

// withContainer runs Claims on a node where container c1 of pod u1 uses a slot,
// of a runtime that has events. The periodic resync is an hour away.
func withContainer(t *testing.T, state runtimeapi.ContainerState) *fixture {
	t.Helper()
	r := &fakeRuntime{events: make(chan *runtimeapi.ContainerEventResponse), stopped: map[string]bool{}}
	r.add(t, "c1", "u1", "cam", "cam-a1-0")
	r.containers[0].State = state
	f := start(t, newAPI(t, 1, map[string]string{"cam-a1-0": "CL u1 node-a"}), r, setup{})
	return f
}

func TestWhatEndsBehindOurBackIsReleasedUponItsEvent(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*fakeRuntime)
		event  *runtimeapi.ContainerEventResponse
	}{
		{"container removed", func(r *fakeRuntime) { r.containers = nil }, event("c1", deleted)},
		{"sandbox removed", func(r *fakeRuntime) { r.containers = nil }, event("box-u1", deleted)},
		{"sandbox died", func(r *fakeRuntime) { r.stopped["box-u1"] = true }, event("box-u1", stopped)},
		{"last container of a dead sandbox died", func(r *fakeRuntime) { r.stopped["box-u1"] = true }, event("c1", stopped)},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := withContainer(t, runtimeapi.ContainerState_CONTAINER_EXITED)
			f.runtime.change(func() { test.change(f.runtime) })
			f.runtime.events <- event("another", stopped)
			f.runtime.events <- test.event
			f.want(t, "cam-a1-0", "")
		})
	}
}

// A container that runs on when its sandbox's process has died uses its device.
func TestContainerOutlivesItsSandbox(t *testing.T) {
	f := withContainer(t, runtimeapi.ContainerState_CONTAINER_RUNNING)
	f.runtime.change(func() { f.runtime.stopped["box-u1"] = true })
	if _, err := f.resync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(f.containers.bySlot); n != 1 {
		t.Fatalf("%d slots in use, want the running container's", n)
	}
	f.runtime.change(func() { f.runtime.containers[0].State = runtimeapi.ContainerState_CONTAINER_EXITED })
	f.runtime.events <- event("c1", stopped)
	f.want(t, "cam-a1-0", "")
}

// An exited container of a ready sandbox is restarted there, and keeps its slot.
func TestContainerThatExitsKeepsItsSlot(t *testing.T) {
	f := withContainer(t, runtimeapi.ContainerState_CONTAINER_EXITED)
	f.runtime.events <- event("c1", stopped)
	f.runtime.events <- event("c1", stopped) // the first one has been handled
	if _, err := f.resync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(f.containers.bySlot); n != 1 {
		t.Errorf("%d slots in use, want 1", n)
	}
}

func TestListensAgainWhenTheStreamEnds(t *testing.T) {
	f := withContainer(t, runtimeapi.ContainerState_CONTAINER_EXITED)
	f.runtime.events <- event("another", stopped)
	f.runtime.change(func() { f.runtime.containers = nil })
	f.runtime.events <- nil // what happens until the next stream is found by a resync
	f.want(t, "cam-a1-0", "")
	f.runtime.events <- event("c9", deleted) // and somebody listens
}

// A container that starts past us is shown to Inspect when the runtime says that it has
// started, and not only at the next resync, which is an hour away.
func TestWhatStartsPastUsIsLookedAtUponItsEvent(t *testing.T) {
	r := &fakeRuntime{events: make(chan *runtimeapi.ContainerEventResponse)}
	var inspected atomic.Int32
	f := start(t, newAPI(t, 1, nil), r, setup{
		inspect: func(context.Context, []*runtimeapi.Container, map[string]*runtimeapi.PodSandbox) map[string]bool {
			inspected.Add(1)
			return nil
		},
		lacks: func(_ context.Context, c *runtimeapi.Container, podAnnotations map[string]string) bool {
			if c.PodSandboxId != "box" || c.State != runtimeapi.ContainerState_CONTAINER_RUNNING || c.CreatedAt != 7 || podAnnotations["of"] != "the pod" {
				t.Errorf("asked about %v of a pod with annotations %v", c, podAnnotations)
			}
			return c.Labels["name"] == "past" && c.Annotations["given"] == ""
		}})
	started := func(id, given string) *runtimeapi.ContainerEventResponse {
		e := event(id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
		e.PodSandboxStatus = &runtimeapi.PodSandboxStatus{Id: "box", Annotations: map[string]string{"of": "the pod"}}
		for _, id := range []string{"other", id} {
			e.ContainersStatuses = append(e.ContainersStatuses, &runtimeapi.ContainerStatus{Id: id, CreatedAt: 7, State: runtimeapi.ContainerState_CONTAINER_RUNNING,
				Labels: map[string]string{"name": id}, Annotations: map[string]string{"given": given}})
		}
		return e
	}
	before := inspected.Load()
	r.events <- event("box", runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT) // a sandbox
	r.events <- started("past", "its device")
	r.events <- started("other", "")
	r.events <- event("another", deleted) // so all before has been handled
	if n := len(f.relist) + int(inspected.Load()-before); n != 0 {
		t.Errorf("the runtime is listed for containers that lack nothing")
	}
	r.events <- started("past", "")
	await.That(t, "the containers to be inspected", func() bool { return inspected.Load() > before })
}

// CRI-O has events only with enable_pod_events, and else ends each stream at once: asked
// again each second, it would be listed each second.
func TestRuntimeThatEndsStreamsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &fakeRuntime{events: make(chan *runtimeapi.ContainerEventResponse, 2)}
		happened := func(*runtimeapi.ContainerEventResponse) {}
		r.events <- nil
		if err := crilist.Events(t.Context(), r, happened); status.Code(err) != codes.Unimplemented {
			t.Errorf("a stream that ended before any event: %v", err)
		}
		r.events <- event("another", stopped)
		r.events <- nil
		if err := crilist.Events(t.Context(), r, happened); status.Code(err) == codes.Unimplemented {
			t.Errorf("a stream that ended after an event: %v", err)
		}
	})
}

func TestDrainWaitsForReleases(t *testing.T) {
	f := withContainer(t, runtimeapi.ContainerState_CONTAINER_EXITED)
	f.Drain(t.Context()) // nothing to wait for
	f.api.set(away)
	f.Removed("c1")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	f.Drain(ctx) // ends, although the API server is down
	if ctx.Err() == nil || f.containers.pending() != 1 {
		t.Fatalf("Drain did not wait for the release (%d pending)", f.containers.pending())
	}
	f.api.set(nil)
	f.Drain(t.Context())
	if got := f.api.who(t, "cam-a1-0"); got != "" {
		t.Errorf("after Drain the slot is %q", got)
	}
}
