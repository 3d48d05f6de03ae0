package claims

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kubefake "k8s.io/client-go/kubernetes/fake"
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

// A container that starts, and of which nobody here has heard, is looked for at once, and not only at the next resync:
// its pod may be deleted by force while it runs, and its slot stays its own.
func TestWhatStartsUnheardOf(t *testing.T) {
	r := &fakeRuntime{events: make(chan *runtimeapi.ContainerEventResponse)}
	var listed atomic.Int32
	pod := boundPod(t, "u1", "cam", "cam-a1-0")
	client := kubefake.NewClientset(pod)
	f := start(t, newAPI(t, 1, map[string]string{"cam-a1-0": "CL u1 node-a"}), r, setup{pods: client,
		inspect: func(context.Context, []*runtimeapi.Container, map[string]*runtimeapi.PodSandbox) map[string]bool {
			listed.Add(1)
			return nil
		}})
	started := func(id, name string) *runtimeapi.ContainerEventResponse {
		e := event(id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
		e.PodSandboxStatus = &runtimeapi.PodSandboxStatus{Id: "box-u1", Annotations: pod.Annotations}
		e.ContainersStatuses = []*runtimeapi.ContainerStatus{{Id: "other"}, {Id: id, Labels: map[string]string{
			"io.kubernetes.pod.uid": "u1", "io.kubernetes.container.name": name}}}
		return e
	}
	before := listed.Load()
	r.events <- started("box-u1", "") // the sandbox
	r.events <- started("c0", "side")
	r.events <- event("another", deleted) // so all before has been handled
	if n := len(f.relist) + int(listed.Load()-before); n != 0 {
		t.Error("the runtime is listed for a container that was assigned nothing")
	}
	r.add(t, "c1", "u1", "cam", "cam-a1-0")
	r.events <- started("c1", "main")
	await.That(t, "the container to be known", func() bool { return f.containers.has("c1") })
	if err := client.Tracker().Delete(pods, pod.Namespace, pod.Name); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the pod's end to be seen", func() bool { return len(f.entitlements(mustSlot(t, "cam-a1-0"))) == 0 })
	f.still(t, "cam-a1-0", "CL u1 node-a")
	before = listed.Load()
	r.events <- started("c1", "main")
	r.events <- event("another", deleted)
	if n := len(f.relist) + int(listed.Load()-before); n != 0 {
		t.Error("the runtime is listed for a container that is known")
	}
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
