package claims

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/kubecri/checkpoint"
	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// A slot that an id of the kubelet's holds is released when no container uses it and the kubelet keeps it
// no more. That a container is removed says nothing: its pod's next one has the slot.
func TestTheKubeletKeepsSlots(t *testing.T) {
	var asked atomic.Int32
	var gone atomic.Bool
	r := &fakeRuntime{events: make(chan *runtimeapi.ContainerEventResponse)}
	f := start(t, newAPI(t, 2, nil), r, setup{grace: time.Nanosecond, kubelet: &Kubelet{
		Ask:   func(context.Context) (time.Duration, error) { asked.Add(1); return 0, nil },
		Keeps: func(slot.Name) bool { return !gone.Load() }}})
	name := mustSlot(t, "cam-a1-0")
	for _, want := range []bool{true, false} {
		use := Use{v1alpha1.ConfigurationLevel, "cam-0"}
		if wrote, other, err := f.Hold(t.Context(), name, use); wrote != want || other != nil || err != nil {
			t.Fatalf("Hold() = %t, %v, %v; want %t", wrote, other, err, want)
		}
	}
	refresh := func() {
		t.Helper()
		if err := f.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	r.add(t, "c1", "cam-0", "cam", name.String())
	refresh()
	gone.Store(true)
	refresh()
	f.still(t, name.String(), "CL cam-0 "+here) // for the container
	gone.Store(false)

	refreshed, lists := 2, 1+len(afterEnd) // lists after each start and event
	for n, event := range []*runtimeapi.ContainerEventResponse{
		{ContainerId: "c1", ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT},
		{ContainerId: "c2", ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT},
	} {
		calm := refreshed + (n+1)*lists
		await.That(t, "the last list after something happened", func() bool { return int(asked.Load()) == calm })
		r.change(func() { r.containers = nil })
		r.events <- event
		await.That(t, "the kubelet to be asked", func() bool { return int(asked.Load()) > calm })
	}
	await.That(t, "the container to be gone", func() bool { return !f.containers.has("c1") })
	refresh()
	f.still(t, name.String(), "CL cam-0 "+here)
	if n := f.containers.pending(); n != 0 {
		t.Errorf("%d slots wait for their release, which nobody wants", n)
	}
	gone.Store(true)
	refresh()
	f.still(t, name.String(), "")
}

// A node that has changed its mode starts while the API server is away: what its checkpoint says of pods'
// claims holds for no id of the kubelet's.
func TestCheckpointOfAnotherMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint")
	id := v1alpha1.SlotClaimSpec{NodeName: here, Level: v1alpha1.ConfigurationLevel, Holder: "cam-0"}
	pod := specOf(here, Pod{"default", "p", "u1"}, "main", v1alpha1.ConfigurationLevel)
	if _, err := checkpoint.NewWriter(path).Write(checkpoint.Checkpoint{Claims: []checkpoint.Claim{
		{Slot: "cam-a1-0", Spec: id}, {Slot: "cam-a1-1", Spec: pod}}}); err != nil {
		t.Fatal(err)
	}
	f := start(t, newAPI(t, 2, nil), &fakeRuntime{}, setup{checkpoint: path, unread: true, kubelet: &Kubelet{
		Ask:   func(context.Context) (time.Duration, error) { return 0, nil },
		Keeps: func(slot.Name) bool { return true }}})
	if all := f.Holdings(""); len(all) != 1 || all[0].Slot != mustSlot(t, "cam-a1-0") {
		t.Errorf("the kubelet's ids hold %v, want slot cam-a1-0 alone", all)
	}
}
