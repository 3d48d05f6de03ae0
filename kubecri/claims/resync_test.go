package claims

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/test/await"
)

// While the runtime cannot be listed, what is known stays: nothing is released, and who
// needs the list is told what is wrong with it.
func TestListThatFails(t *testing.T) {
	r := &fakeRuntime{events: make(chan *runtimeapi.ContainerEventResponse), down: true}
	r.add(t, "c1", "u1", "cam", "cam-a1-0")
	f := start(t, newAPI(t, 1, map[string]string{"cam-a1-0": "CL u1 node-a"}), r, setup{grace: time.Nanosecond})
	await.That(t, "the first try", func() bool { return f.ResyncError() != nil })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := f.Take(ctx, request(t, "u2", "cam", "cam-a1-0"))
	if err == nil || !strings.Contains(err.Error(), "list containers: no such file or directory") {
		t.Errorf("got %v, want why it is not known what is in use", err)
	}
	f.still(t, "cam-a1-0", "CL u1 node-a")

	r.change(func() { r.down = false })
	f.Resync()
	await.That(t, "the list", func() bool { return f.isKnown() && f.ResyncError() == nil })
	r.change(func() { r.down = true })
	if _, err := f.resync(t.Context()); err == nil {
		t.Fatal("no error")
	}
	f.still(t, "cam-a1-0", "CL u1 node-a")
	if got := f.containers.slots(); len(got) != 1 {
		t.Errorf("slots in use: %v, want that of the container", got)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the error %v hides the reason", err)
	}
}

// A container that was restored from a checkpoint has the annotations of the pod that was checkpointed. It uses what
// its own pod was assigned.
func TestRestoredContainer(t *testing.T) {
	r := &fakeRuntime{}
	r.add(t, "c1", "u9", "cam", "cam-a1-1")
	r.containers[0].Labels["io.kubernetes.pod.uid"], r.containers[0].PodSandboxId = "u1", "box-u1"
	r.pods = map[string]map[string]string{"box-u1": boundPod(t, "u1", "cam", "cam-a1-0").Annotations}
	f := start(t, newAPI(t, 2, nil), r, setup{})
	f.want(t, "cam-a1-0", "CL u1 node-a")
	f.still(t, "cam-a1-1", "")
}
